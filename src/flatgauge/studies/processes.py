"""The work on a study by several processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch

from flatgauge.errors import FlatgaugeError, OptionError
from flatgauge.progress import Progress
from flatgauge.studies.presence import present
from flatgauge.studies.store import StudyStore
from flatgauge.studies.working import PAUSE, Work, measure_next, told

MOST_IDLE_DEATHS = 3
"""So many processes in a row that end before they claim a network end the study."""


def measure_by_processes(
    store: StudyStore, work: Work, jobs: int, progress: Progress | None
) -> None:
    """Measure all networks in `jobs` processes; one that dies is replaced.

    Raises:
        OptionError: if model or data cannot be sent to another process.
        FlatgaugeError: if the processes cannot begin.
    """
    sent = _pickled(work)
    threads = max(1, _cores() // jobs)
    context = multiprocessing.get_context("spawn")
    running: list[SpawnProcess] = []
    claims, idle_deaths = store.claims(), 0
    try:
        while left := told(store, work, progress):
            for ended in [one for one in running if not one.is_alive()]:
                running.remove(ended)
                before, claims = claims, store.claims()
                idle = bool(ended.exitcode) and claims == before
                idle_deaths = idle_deaths + 1 if idle else 0
                if idle_deaths == MOST_IDLE_DEATHS:
                    raise FlatgaugeError(
                        f"{MOST_IDLE_DEATHS} processes ended before they could measure "
                        f"(exit code {ended.exitcode}): a script must call this below "
                        'if __name__ == "__main__":, and jobs=1 shows other reasons.'
                    )
            for _ in range(min(jobs, left) - len(running)):
                one = context.Process(
                    target=_work, args=(str(store.folder), sent, threads)
                )
                one.start()
                running.append(one)
            time.sleep(PAUSE)
    except BaseException:
        for one in running:
            one.terminate()
        raise
    finally:
        for one in running:
            one.join()


def _pickled(work: Work) -> bytes:
    try:
        return pickle.dumps(work)
    except Exception as error:
        raise OptionError(
            f"model and data cannot be sent to other processes ({error}): define their "
            "classes and functions at the top of a file, or use jobs=1."
        ) from error


def _cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _work(folder: str, sent: bytes, threads: int) -> None:
    """What a process does: it ends with its parent, and where nothing is left."""
    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()
    try:
        work: Work = pickle.loads(sent)
        store = StudyStore(Path(folder), work.names)
        with present(store.workers) as owner:
            while store.left() and (parent is None or parent.is_alive()):
                if not measure_next(store, work, owner):
                    time.sleep(PAUSE)
    except KeyboardInterrupt:
        # The parent has it, too, and says so.
        return
