"""Claims and results: each network is one process's at a time, and stored once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import measurement, provenance

from flatgauge.errors import FlatgaugeError
from flatgauge.results import Report, Status
from flatgauge.studies import store as stores
from flatgauge.studies.presence import is_present, present
from flatgauge.studies.store import MOST_DEATHS, StudyStore

NAMES = {"one": "a.pt", "two": "b.pt", "three": "c.pt"}


def report(value: float, **changes) -> Report:
    found = measurement("hessian-trace", value, **changes)
    return Report({"hessian-trace": found}, provenance())


def values(store: StudyStore) -> dict[str, float | None]:
    return {key: one["hessian-trace"].value for key, one in store.reports().items()}


def other_process(folder: Path, code: str) -> subprocess.Popen[str]:
    """A process that is present in the folder, and says its name after `code`."""
    program = f"""
import sys, time
from pathlib import Path
from flatgauge.studies.presence import present
from flatgauge.studies.store import StudyStore
folder = Path(sys.argv[1])
with present(folder / "workers") as owner:
    {code}
    print(owner, flush=True)
    time.sleep(60)
"""
    command = [sys.executable, "-c", program, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_networks_are_claimed_in_order_and_once(tmp_path):
    first, second = StudyStore(tmp_path, NAMES), StudyStore(tmp_path, NAMES)
    with present(first.workers) as one, present(first.workers) as other:
        assert first.claim(one) == "one"
        assert second.claim(other) == "two"
        assert first.claim(one) == "three"
        assert second.claim(other) is None
        assert second.left() == 3
        first.keep("one", report(1.0))
        second.fail("two", "broken")
        assert (second.left(), first.left()) == (1, 1)
        assert values(second) == {"one": 1.0}
        assert first.failures() == {"two": "broken"}
        # What is there stays.
        second.keep("one", report(2.0))
        assert values(first) == {"one": 1.0}
        assert second.claim(other) is None


def test_only_what_is_asked_for_is_seen(tmp_path):
    whole = StudyStore(tmp_path, NAMES)
    whole.keep("one", report(1.0))
    fewer = StudyStore(tmp_path, {"two": "b.pt", "new": "d.pt"})
    assert fewer.left() == 2
    assert not fewer.reports()
    with present(fewer.workers) as owner:
        assert [fewer.claim(owner) for _ in range(3)] == ["two", "new", None]


def test_the_claim_of_a_killed_process_is_free_at_once(tmp_path):
    store = StudyStore(tmp_path, NAMES)
    claim = 'StudyStore(folder, {"one": "a.pt"}).claim(owner)'
    process = other_process(tmp_path, claim)
    name = process.stdout.readline().strip()
    with present(store.workers) as owner:
        assert is_present(store.workers, name)
        assert store.claim(owner) == "two"
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert store.claim(owner) == "one"
        assert is_present(store.workers, owner)
    process.stdout.close()
    assert not is_present(store.workers, name)
    assert not list(store.workers.iterdir())


def test_who_is_at_work_is_written_down(tmp_path):
    with present(tmp_path / "workers") as owner:
        assert str(os.getpid()) in (tmp_path / "workers" / owner).read_text()
    assert not is_present(tmp_path / "workers", owner)


def test_a_network_that_kills_its_processes_is_given_up(tmp_path):
    store = StudyStore(tmp_path, {"one": "a.pt"})
    for _ in range(MOST_DEATHS):
        with present(store.workers) as owner:
            assert store.claim(owner) == "one"
    with present(store.workers) as owner:
        assert store.claim(owner) is None
        assert store.left() == 0
        assert f"died {MOST_DEATHS} times" in store.failures()["one"]
        # The next run tries again.
        store.begin()
        assert store.claim(owner) == "one"


def test_what_failed_is_tried_again_by_the_next_run(tmp_path):
    store = StudyStore(tmp_path, NAMES)
    store.keep("one", report(1.0))
    store.keep("two", report(2.0, status=Status.FAILED))
    store.fail("three", "broken")
    before = store.times()
    store.begin()
    assert values(store) == {"one": 1.0}
    assert store.times() == {"one": before["one"]}
    assert store.left() == 2


def test_a_change_that_breaks_off_leaves_nothing(tmp_path, monkeypatch):
    store = StudyStore(tmp_path, NAMES)

    def broken(*_):
        raise KeyboardInterrupt

    with present(store.workers) as owner:
        store.claim(owner)
        with monkeypatch.context() as patch:
            patch.setattr(stores, "is_present", broken)
            with pytest.raises(KeyboardInterrupt):
                store.claim(owner)
        assert store.claim(owner) == "two"


def test_another_file_is_not_overwritten(tmp_path):
    (tmp_path / stores.FILE).write_text(
        "my notes, which are long enough for a page\n" * 9
    )
    with pytest.raises(FlatgaugeError, match="is no store of a study"):
        StudyStore(tmp_path, NAMES)
    assert (tmp_path / stores.FILE).read_text().startswith("my notes")
