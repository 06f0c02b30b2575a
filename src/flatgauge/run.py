"""The one path from a request to a report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from flatgauge.deadline import OutOfTime
from flatgauge.durations import budget_seconds
from flatgauge.errors import (
    FlatgaugeError,
    NotConvergedError,
    OptionError,
    OutOfMemoryError,
    ProcessGroupError,
)
from flatgauge.measures.registry import MeasureInfo, Outcome, catalogue
from flatgauge.measures.workbench import NotApplicable, Workbench
from flatgauge.memory import memory_ended
from flatgauge.objective import Objective
from flatgauge.own_precision import own_precision
from flatgauge.progress import Progress
from flatgauge.provenance import provenance_of
from flatgauge.requests import PlannedMeasure, asked_for, check_names, planned
from flatgauge.resampling import Splits, check_resamples, data_uncertainty
from flatgauge.results import Cost, Measurement, Provenance, Report, Status, plain
from flatgauge.schedule import Schedule

# The share of an exact number that rounding may change.
ROUGH = 0.1
# The share of the loss below which a number is as good as 0.
NOTHING = 1e-3
REPORT_IT = "if it is not your model that raises this, please report it"


def measure(
    objective: Objective,
    *requests: str | Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    strict: bool = False,
    progress: Progress | bool | None = None,
    budget: float | int | str | None = None,
    resamples: int = 0,
    so_far: Callable[[Report], None] | None = None,
) -> Report:
    """Measure an objective.

    Where several processes measure together, all of them call this alike, and all get
    the same report.

    Args:
        objective: model, data, loss and the point.
        requests: names of measures, or "name[option=value,...]", one by one or in
            lists; the default set if none is given. Each result is keyed by the string
            that asked for it.
        options: options by measure name.
        seed: for every random draw.
        strict: raise where a number did not converge, does not apply or failed.
        progress: called with (request, index, count) before each measure; a
            `flatgauge.progress.Observer` also hears what each is expected to take, and
            how far it is; True writes that to stderr.
        budget: how long all of it may take, such as "5min", "1h30min" or a number of
            seconds. Cheap measures then come first, and what time does not allow is
            NOT_CONVERGED, with the best estimate and its error where there is one. The
            first Ctrl-C does the same, the second one raises; an infinite budget
            (`math.inf`) is for that alone. Without a budget Ctrl-C raises.
        resamples: how many times to split the data at random into halves, and measure
            both, which takes about as long again each time. `data_uncertainty` then is
            the standard error over samples of the data: see `flatgauge.resampling`.
        so_far: called with a report of what is done after every measure, for example
            to write it: a crash then loses the measure at work only.

    Returns:
        A `Report`, in the order of the requests. An error inside one measure makes it
        FAILED, with the error in its message, and leaves the others as they are.

    Raises:
        OptionError: for unknown measures and options, and for values of another type or
            out of their range, before anything is computed.
        NotConvergedError: under `strict`.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> report = measure(Objective(model, data, loss="mse"), "hessian-trace")
    >>> round(report["hessian-trace"].value, 9)
    10.0
    """
    plans = {one: planned(one, options or {}) for one in asked_for(requests)}
    check_names(options or {}, plans)
    check_resamples(resamples)
    limit = None if budget is None else budget_seconds(budget)
    if objective.ranks.count > 1:
        asked = list(plans), repr(options), seed, strict, limit, resamples
        objective.ranks.check_same(asked, "what is asked of measure()")
    work = Workbench(objective, seed)
    schedule = Schedule(work, plans, limit, progress)
    provenance = provenance_of(objective, seed)
    done: dict[str, Measurement] = {}
    with schedule.opened():
        for index, request in enumerate(schedule.turns()):
            done[request] = _measure_one(
                work, plans[request], provenance, partial(schedule.turn, request, index)
            )
            if strict and not done[request].status.trusted:
                raise NotConvergedError(f"{request}: {done[request].message}")
            known = {one: done[one] for one in plans if one in done}
            objective.ranks.together(partial(_tell, so_far, known, provenance))
        found = {request: done[request] for request in plans}
        if resamples:
            found = _resampled(objective, plans, found, schedule, resamples, seed)
    extras: dict[str, Any] = {"measures": catalogue(found)}
    unfinished = sum(one.status is Status.NOT_CONVERGED for one in found.values())
    if (kept := schedule.to_dict(unfinished)) is not None:
        extras["budget"] = plain(kept)
    return objective.ranks.agreed(Report(found, provenance, extras))


def _tell(
    so_far: Callable[[Report], None] | None,
    known: dict[str, Measurement],
    provenance: Provenance,
) -> None:
    if so_far is not None:
        so_far(Report(known, provenance, {"measures": catalogue(known)}))


def _resampled(
    objective: Objective,
    plans: Mapping[str, PlannedMeasure],
    found: Mapping[str, Measurement],
    schedule: Schedule,
    resamples: int,
    seed: int,
) -> dict[str, Measurement]:
    """The same measurements, with their uncertainties over halves of the data."""
    squares: dict[str, list[float]] = {request: [] for request in plans}
    note: dict[str, Any] = {}
    try:
        splits = Splits(objective, resamples, seed)
        note["of"] = splits.of
        for split in splits:
            values = [
                schedule.values(Workbench(half, seed), _outcome)
                for half in split.halves
            ]
            for request, one in values[0].items():
                if request in values[1]:
                    square = (one - values[1][request]) ** 2
                    squares[request].append(split.weight * square)
    except FlatgaugeError as reason:
        note["reason"] = str(reason)
    except OutOfTime as stop:
        note["reason"] = stop.after("among the halves of the data")
    return {
        request: replace(
            one,
            data_uncertainty=data_uncertainty(squares[request]),
            details={
                **one.details,
                "resamples": {"splits": len(squares[request]), **note},
            },
        )
        for request, one in found.items()
    }


def _measure_one(
    work: Workbench,
    plan: PlannedMeasure,
    provenance: Provenance,
    turn: Callable[[Callable[[], Outcome]], Outcome],
) -> Measurement:
    info, options = plan
    started, before = time.perf_counter(), work.counts()
    outcome = turn(lambda: _outcome(work, info, options))
    cost = Cost(
        time.perf_counter() - started,
        work.products - sum(before),
        plain(work.routes_since(before)),
    )
    return Measurement(
        measure=info.name,
        value=outcome.value,
        status=outcome.status,
        message=f"{outcome.message} {_own_rounding(outcome, work.objective)}".strip(),
        uncertainty=outcome.uncertainty,
        details=plain(outcome.details),
        options=plain(options),
        loss=outcome.loss or provenance.loss,
        cost=cost,
        provenance=provenance,
    )


def _own_rounding(outcome: Outcome, objective: Objective) -> str:
    """What an exact number says of a network that rounds by itself."""
    coarsest = own_precision(objective)
    if outcome.status is not Status.EXACT or coarsest == objective.dtype:
        return ""
    name, eps = str(coarsest).removeprefix("torch."), torch.finfo(coarsest).eps
    return f"Exact up to the network's own rounding of {eps:.0e}: it computes parts in {name}."


def _outcome(work: Workbench, info: MeasureInfo, options: dict[str, Any]) -> Outcome:
    """What the measure says; what breaks inside it is its own affair."""
    try:
        bench = work if info.on_shards else work.whole()
        found = info.function(bench, **options)
    except ProcessGroupError:
        # There is no one left to go on with.
        raise
    except (OptionError, OutOfMemoryError) as error:
        return Outcome(None, Status.FAILED, str(error))
    except (NotApplicable, FlatgaugeError) as reason:
        return Outcome(None, Status.NOT_APPLICABLE, str(reason))
    except Exception as error:
        return Outcome(None, Status.FAILED, _in_words(error))
    if found.value is not None and not math.isfinite(found.value):
        message = f"It came out as {found.value}, which is no result: {REPORT_IT}."
        return Outcome(None, Status.FAILED, message, None, found.details, found.loss)
    if found.status is Status.EXACT and _is_hidden(found, info, work.objective):
        advice = (
            "take the coarser types out of the model's forward"
            if work.objective.dtype == torch.float64
            else "use dtype=torch.float64"
        )
        message = (
            f"{found.message} Rounding may change it by {found.uncertainty:.1g}, too much "
            f"for a result: {advice}."
        )
        return replace(found, status=Status.NOT_CONVERGED, message=message)
    return found


def _is_hidden(found: Outcome, info: MeasureInfo, objective: Objective) -> bool:
    """Whether rounding hides what the number is; far below the loss it is nothing."""
    if found.value is None or not found.uncertainty:
        return False
    size = max(abs(found.value), NOTHING * abs(objective.value()))
    return found.uncertainty > ROUGH * (1.0 if info.logarithmic else size)


def _in_words(error: Exception) -> str:
    """The first line of an error from elsewhere, and what to do about it."""
    first = next(iter(str(error).strip().splitlines()), "")
    said = f"{type(error).__name__}: {first}".rstrip(": ")
    if memory_ended(error):
        return f"{said} - use smaller batches, or fewer parameters with params=."
    return f"{said} - {REPORT_IT}."
