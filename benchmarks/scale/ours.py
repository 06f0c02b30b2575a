"""Our own rows: gradients, products and measures, as users call them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import flatgauge as fg
from benchmarks.scale.case import Case, Found, Note
from benchmarks.timing import once

_ = fg.measure  # What is imported late is not part of a row.
SPECTRAL_NORM = "hessian-spectral-norm"
TRACE = "hessian-trace"
SHARPNESS = "normalized-sharpness"
LONG = f"{SPECTRAL_NORM}[tol=1e-6,max_steps=100]"
# Products until nothing is prepared any more, and those that are timed.
SETTLING, TIMED = 3, 5
PLAIN_PROBES = 64


def gradient(case: Case, note: Note) -> Found:
    """One gradient of all the data: the first, and the median of the next."""
    objective, set_up = case.objective()
    seconds = [once(objective.gradient, case.device) for _ in range(1 + TIMED)]
    return {
        "parameters": sum(one.numel() for one in objective.parameters.values()),
        "samples": objective.sample_count,
        "set-up": set_up,
        "first": seconds[0],
        "seconds": statistics.median(seconds[1:]),
    }


def product(case: Case, note: Note, **options: Any) -> Found:
    """One Hessian product: the first, and the median of those that follow."""
    objective, set_up = case.objective(**options)
    hessian = fg.Hessian(objective)
    vector = next(signs(objective.parameters, 0))
    count = 1 + SETTLING + TIMED
    seconds = [once(lambda: hessian @ vector, case.device) for _ in range(count)]
    return {
        "set-up": set_up,
        "first": seconds[0],
        "seconds": statistics.median(seconds[-TIMED:]),
        "all": seconds,
    }


def eigenvalue(
    case: Case, note: Note, request: str = SPECTRAL_NORM, seed: int = 0, **options: Any
) -> Found:
    """The call for one number, such as the largest eigenvalue."""
    report, found = called(case, request, seed=seed, **options)
    return found | number(report[request])


def long_run(case: Case, note: Note) -> Found:
    """The largest eigenvalue as well as it can be had, from another start."""
    return eigenvalue(case, note, LONG, seed=1)


def trace(case: Case, note: Note) -> Found:
    """The trace as it is asked for by default."""
    return eigenvalue(case, note, TRACE)


def default_set(case: Case, note: Note, **options: Any) -> Found:
    """All of the default set in one call, with the peak of memory before each measure.

    The times of those that ended are noted.
    """
    begun: dict[str, float] = {}
    before: dict[str, int] = {}

    def progress(request: Any, *_: Any) -> None:
        if str(request) not in begun:
            begun[str(request)] = time.perf_counter()
            if case.device == "cuda":
                before[str(request)] = torch.cuda.max_memory_allocated()
            note({"begun at": {k: v - start for k, v in begun.items()}})

    start = time.perf_counter()
    report, found = called(case, progress=progress, **options)
    numbers = {name: number(one) for name, one in report.measurements.items()}
    return found | {"measures": numbers, "peaks before": before}


def sharpness(case: Case, note: Note, option: str = "") -> Found:
    """Normalized sharpness, and how much of it is balancing.

    Asked again with another λ in the same call, all but the balancing is known already.
    """
    request = f"{SHARPNESS}[{option}]" if option else SHARPNESS
    again = f"{SHARPNESS}[{option},lam=0.25]" if option else f"{SHARPNESS}[lam=0.25]"
    report, found = called(case, request, again)
    balancing = report[again].cost.seconds
    found["seconds"] -= balancing
    return found | number(report[request]) | {"balancing": balancing}


def plain_probes(case: Case, note: Note) -> Found:
    """vᵀHv of random signs v, whose mean over all v is the trace."""
    objective, _ = case.objective()
    hessian = fg.Hessian(objective)
    values: list[float] = []
    probes = signs(objective.parameters, 1)
    for _ in range(PLAIN_PROBES):
        vector = next(probes)
        image = hessian @ vector
        values.append(
            sum(float((vector[n] * image[n]).sum(dtype=torch.float64)) for n in vector)
        )
        if len(values) % 16 == 0:
            note({"values": values})
    return {"values": values}


def called(
    case: Case, *requests: str, progress: Any = None, seed: int = 0, **options: Any
) -> tuple[fg.Report, Found]:
    """The report, the seconds of the call, and those of the objective before it."""
    objective, set_up = case.objective(**options)
    reports: list[fg.Report] = []

    def call() -> None:
        reports.append(fg.measure(objective, *requests, seed=seed, progress=progress))

    seconds = once(call, case.device)
    return reports[0], {"set-up": set_up, "seconds": seconds}


def number(one: fg.Measurement) -> Found:
    """What a measurement says, without what is as long as the network is deep."""
    details = {
        key: value
        for key, value in one.details.items()
        if isinstance(value, str | int | float | bool) or key == "interval_95"
    }
    return {
        "result": one.value,
        "uncertainty": one.uncertainty,
        "status": one.status.name,
        "message": one.message,
        "products": one.cost.products,
        "own seconds": one.cost.seconds,
        "details": details,
        "notes": one.cost.notes,
    }


def signs(space: dict[str, Tensor], seed: int) -> Iterator[dict[str, Tensor]]:
    """Vectors of independent random signs, drawn where the parameters live."""
    first = next(iter(space.values()))
    random = torch.Generator(first.device).manual_seed(seed)
    while True:
        yield {
            name: torch.randint(
                0, 2, one.shape, generator=random, device=one.device, dtype=one.dtype
            )
            .mul_(2)
            .sub_(1)
            for name, one in space.items()
        }
