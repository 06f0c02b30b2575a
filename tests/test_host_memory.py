"""What is available on each system, played here with files and stand-ins."""

from __future__ import annotations

import ctypes
import os
import sys
from types import SimpleNamespace

import pytest
import torch

from flatgauge import host_memory
from flatgauge.host_memory import UNSTATED, available_memory
from flatgauge.memory import free_memory

MEMINFO = """MemTotal:       16000000 kB
MemFree:          100000 kB
MemAvailable:    8000000 kB
HugePages_Total:       0
"""
GIB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Write its files; without any it is no Linux, and has no psutil."""
    monkeypatch.setattr(host_memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(host_memory, "GROUPS", tmp_path / "groups")
    monkeypatch.setitem(sys.modules, "psutil", None)

    def write(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    return write


def group(base, limit, used, stat=""):
    """The files of a control group of version 2."""
    names = ("max", "current", "stat")
    texts = (f"{limit}\n", f"{used}\n", stat)
    return {
        f"groups__{base}memory_DOT_{name}": text
        for name, text in zip(names, texts, strict=True)
    }


def without_sysconf(monkeypatch, *names):
    kept = {name: 1 for name in os.sysconf_names if name not in names}

    def sysconf(name):
        if name not in kept:
            raise ValueError("unrecognized configuration name")
        return {"SC_PHYS_PAGES": 2**22, "SC_PAGE_SIZE": 2**14}[name]

    monkeypatch.setattr(os, "sysconf", sysconf)


def test_this_machine_has_some():
    assert 0 < free_memory(torch.device("cpu")) < 2**50


def test_linux_counts_what_is_only_cached(machine):
    machine(proc__meminfo=MEMINFO)
    assert available_memory() == 8_000_000 * 1024


@pytest.mark.parametrize("path", ["/", "/a/b", "/not/seen/from/here"])
def test_a_control_group_can_leave_less(machine, path):
    machine(proc__meminfo=MEMINFO, proc__self__cgroup=f"0::{path}\n")
    machine(**group("", 4 * GIB, 3 * GIB, f"anon 5\ninactive_file {GIB // 2}\n"))
    assert available_memory() == GIB * 3 // 2


def test_the_tightest_group_counts(machine):
    machine(proc__meminfo=MEMINFO, proc__self__cgroup="0::/a/b\n")
    machine(**group("", "max", GIB))
    machine(**group("a__", 3 * GIB, GIB), **group("a__b__", "max", GIB))
    assert available_memory() == 2 * GIB
    machine(**group("a__b__", GIB, 2 * GIB))
    assert available_memory() == 0


def test_groups_of_version_one(machine):
    lines = "5:cpu,cpuacct:/a\n4:memory:/a\n0::/a\n"
    machine(proc__meminfo=MEMINFO, proc__self__cgroup=lines)
    machine(
        groups__memory__a__memory_DOT_limit_in_bytes=str(3 * GIB),
        groups__memory__a__memory_DOT_usage_in_bytes=str(2 * GIB),
        groups__memory__memory_DOT_limit_in_bytes=str(2**63 - 4096),
        groups__memory__memory_DOT_usage_in_bytes=str(2 * GIB),
    )
    assert available_memory() == GIB
    stat = f"inactive_file 7\ntotal_inactive_file {GIB}\n"
    machine(groups__memory__a__memory_DOT_stat=stat)
    assert available_memory() == 2 * GIB


@pytest.mark.parametrize("text", ["", "MemAvailable: much kB\n", "MemTotal: 5 kB\n"])
def test_an_old_or_odd_linux(machine, monkeypatch, text):
    machine(proc__meminfo=text, proc__self__cgroup="0::/\n")
    machine(**group("", "max", "?"))
    without_sysconf(monkeypatch)
    assert available_memory() == 2**34


def test_macos_is_taken_to_have_a_quarter_of_the_whole(machine, monkeypatch):
    without_sysconf(monkeypatch, "SC_AVPHYS_PAGES")
    assert available_memory() == 2**34


def test_psutil_is_asked_where_it_is_installed(machine, monkeypatch):
    known = SimpleNamespace(available=5 * GIB)
    psutil = SimpleNamespace(virtual_memory=lambda: known)
    monkeypatch.setitem(sys.modules, "psutil", psutil)
    assert available_memory() == 5 * GIB


def windows(monkeypatch, available):
    """GlobalMemoryStatusEx, as documented."""

    def status(pointer):
        found = pointer._obj
        assert found.length == ctypes.sizeof(found) == 64
        assert type(found).available.offset == 16
        found.available = available
        return int(available > 0)

    kernel = SimpleNamespace(GlobalMemoryStatusEx=status)
    monkeypatch.setattr(sys, "platform", "win32")
    windll = SimpleNamespace(kernel32=kernel)
    monkeypatch.setattr(ctypes, "windll", windll, raising=False)
    monkeypatch.delattr(os, "sysconf", raising=False)


def test_windows_is_asked(machine, monkeypatch):
    windows(monkeypatch, 6 * GIB)
    assert available_memory() == 6 * GIB


def test_what_says_nothing_is_taken_to_have_little(machine, monkeypatch):
    windows(monkeypatch, 0)
    assert available_memory() == UNSTATED
