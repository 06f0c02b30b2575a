"""Interleaved timing: every contestant once a round, so that noise hits all alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping

import torch


def interleaved(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int,
    device: str,
    warm_up: bool = True,
) -> dict[str, list[float]]:
    """Seconds of each contestant in each round, after one warm-up round."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for index in range(rounds + warm_up):
        for name, run in contestants.items():
            taken = once(run, device)
            if index >= warm_up:
                seconds[name].append(taken)
    return seconds


def once(run: Callable[[], object], device: str) -> float:
    gc.collect()
    _wait(device)
    started = time.perf_counter()
    run()
    _wait(device)
    return time.perf_counter() - started


def ratios(seconds: dict[str, list[float]], unit: str) -> dict[str, float]:
    """The median over rounds of each time in units of `unit`'s in the same round."""
    return {
        name: statistics.median(
            a / b for a, b in zip(values, seconds[unit], strict=True)
        )
        for name, values in seconds.items()
    }


def free(device: str) -> None:
    """Give back what nothing refers to any more."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
