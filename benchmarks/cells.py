"""Cells and rows of the page's tables."""

from __future__ import annotations

from typing import Any

from benchmarks.targets import is_right

Found = dict[str, Any]
MIB = 2**20
NONE = "–"


def rows(head: list[str], cells: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in cells] + [""]


def describe(one: Found) -> str:
    return f"{one['network']}, {one['samples']} samples, {one['precision']}"


def columns(
    several: list[Found], *keys: str, without: tuple[str, ...] = ()
) -> list[str]:
    names = [name for one in several for key in keys for name in one.get(key, {})]
    return [name for name in dict.fromkeys(names) if name not in without]


def with_error(one: Found, name: str, style: str) -> str:
    if name not in one["gradients"]:
        return "failed" if name in one.get("failures", {}) else NONE
    taken = format(one["gradients"][name], style)
    error = one.get("error", {}).get(name)
    if error is None:
        return taken
    return f"{taken} ({error:.0e})" if error < 0.005 else f"{taken} ({error:.1%})"


def status(name: str) -> str:
    return name.lower().replace("_", " ")


def speed_up(one: Found, package: str) -> str:
    times = one["gradients"]
    if package not in times:
        return NONE
    faster = f"{times[package] / times['flatgauge']:.2f}"
    return faster if is_right(one, package) else f"({faster})"


def peak_cell(one: Found, name: str) -> str:
    if name not in one["peak"]:
        return "failed" if name in one["failures"] else NONE
    return f"{mib(one['peak'][name])} ({mib(one['held'][name])})"


def mib(size: float) -> str:
    return f"{size / MIB:.0f}"


def duration(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def failed(several: list[Found]) -> list[str]:
    lines = [
        f"- {name} on {one['network']}: `{message.replace('`', '')}`"
        for one in several
        for name, message in one.get("failures", {}).items()
    ]
    return ["Failures:", "", *lines, ""] if lines else []
