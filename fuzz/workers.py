"""Networks judged in several processes; one that kills its process is a failure."""

from __future__ import annotations

import logging
import multiprocessing
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch

from fuzz.judge import WRONG, Finding
from fuzz.one import Result, check
from fuzz.problems import problem

# A network that takes more of the processor is a failure; most take about a second, an
# audit with a batch for every sample three quarters of a minute.
MOST_SECONDS = 180
# Compiled graphs pile up in a process: after so many networks for each, fresh ones follow.
# Not max_tasks_per_child, which can wait for ever where all of them end at once.
LIFETIME = 150


class TooSlow(BaseException):
    """Past every handler of ordinary errors."""


def quiet() -> None:
    """One thread a process, and no log of torch's own."""
    torch.set_num_threads(1)
    logging.getLogger("torch").setLevel(logging.CRITICAL + 1)


def judged(seed: int, index: int, device: str) -> dict[str, Any]:
    """The result of one network, within its time."""
    quiet()

    def stop(*_: Any) -> None:
        raise TooSlow

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        return check(seed, index, device).to_dict()
    except TooSlow:
        return _failed(seed, index, f"took more than {MOST_SECONDS} s")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def run(seed: int, indices: Iterable[int], jobs: int, device: str) -> Iterator[dict]:
    """Results as they come, in any order."""
    waiting = list(indices)
    if jobs == 1:
        for index in waiting:
            yield judged(seed, index, device)
        return
    while waiting:
        done: set[int] = set()
        broken = False
        now = waiting[: jobs * LIFETIME]
        with _pool(jobs) as pool:
            futures = {pool.submit(judged, seed, i, device): i for i in now}
            for future in as_completed(futures):
                result = _result(future)
                if result is None:
                    broken = True
                    continue
                done.add(futures[future])
                yield result
        waiting = [index for index in waiting if index not in done]
        if broken and waiting:
            # One of the first that are left broke it: try these one by one.
            suspects, waiting = waiting[: 2 * jobs], waiting[2 * jobs :]
            yield from (_alone(seed, index, device) for index in suspects)


def _pool(jobs: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, context, initializer=quiet)


def _alone(seed: int, index: int, device: str) -> dict[str, Any]:
    with _pool(1) as pool:
        found = _result(pool.submit(judged, seed, index, device))
    return found or _failed(seed, index, "its process died")


def _result(future: Future[dict[str, Any]]) -> dict[str, Any] | None:
    try:
        return future.result()
    except BrokenProcessPool:
        return None


def _failed(seed: int, index: int, note: str) -> dict[str, Any]:
    words = problem(seed, index).words
    result = Result(seed, index, words, [Finding("process", WRONG, note=note)])
    return result.to_dict()
