"""Everything that is tried on one network, step by step; what is found is plain data."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from support.untouched import global_state, model_state
from torch import nn

import flatgauge as fg
from flatgauge.adversary import sharpened
from flatgauge.progress import Observer
from flatgauge.vocabulary import RESCALINGS, Verdict
from fuzz.judge import RELATIVE, ROUNDING
from fuzz.truth import Truth
from zoo.comparisons import compared
from zoo.reference import Reference, chosen, outputs_of, precise
from zoo.registry import Network, Trial

# Parameters of the dense references, and of the networks whose default set is timed.
LEAST_DENSE, MOST_DENSE, MOST_TIMED = 40, 2000, 100_000
# Passes that the numerical dimension needs, and the seconds that they may take.
PASSES, COUNTED_SECONDS = 500, 10.0
# Seconds that a dense reference may take, and default sets whose audit is of all parameters.
DENSE_SECONDS, AUDITED_SECONDS = 4.0, 12.0
# Gradients and default sets that are timed; the median counts.
GRADIENTS, TIMES = 9, 3
# Measures that every twice differentiable loss has.
ALWAYS = (
    "hessian-trace",
    "hessian-spectral-norm",
    "riemannian-spectral-norm[metric=layer]",
)
# It moves along rescalings, and does not claim otherwise.
UNCLAIMED = "hessian-spectral-norm"
# What a rescaling may change the outputs by, by the precision that the network computes in.
PRESERVED = {"float64": 1e-9, "float32": 1e-4}
FACTOR = 1e3

Row = dict[str, Any]
Keep = Callable[[Row], None]


class Plan(Observer):
    """Hears what the default set says that it will take."""

    def __init__(self):
        self.expected: dict[str, float | None] = {}

    def planned(self, expected: Mapping[str, float | None], budget: float) -> None:
        self.expected = dict(expected)


class Steps:
    """A row that grows; `keep` gets it after every step, so that none is lost."""

    def __init__(self, network: Network, keep: Keep):
        self.row: Row = {"name": network.name, "refused": {}, "crashed": {}}
        self.keep = keep

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """One step: an error of ours is a refusal, any other one a crash."""
        started = time.process_time()
        self.row["step"] = name
        self.keep(self.row)
        try:
            yield
        except fg.FlatgaugeError as error:
            self.row["refused"][name] = f"{type(error).__name__}: {error}"
        except Exception as error:
            self.row["crashed"][name] = f"{type(error).__name__}: {str(error)[:400]}"
        seconds = self.row.setdefault("seconds", {})
        seconds[name] = round(time.process_time() - started, 3)
        self.keep(self.row)


def objective_of(trial: Trial, names: list[str] | None = None) -> fg.Objective:
    """In float64, on all parameters or on those of these names."""
    return fg.Objective(
        trial.model, [trial.batch], trial.loss, dtype=torch.float64, mode=trial.mode,
        forward=trial.forward, params=None if names is None else names.__contains__,
        derivatives=trial.derivatives,
    )  # fmt: skip


def check(network: Network, keep: Keep = lambda row: None) -> Row:
    """Try everything."""
    steps = Steps(network, keep)
    row = steps.row
    trial = network.trial()
    row["parameters"] = sum(p.numel() for p in trial.model.parameters())
    before = _state(trial.model)
    with steps.step("objective"):
        objective = objective_of(trial)
        row["parameters"] = sum(p.numel() for p in objective.parameters.values())
        row["derivatives"] = objective.derivatives
        row["gradient_seconds"] = _gradient_seconds(objective)
    if "gradient_seconds" in row:
        report = _default_set(steps, trial, objective)
        _symmetries(steps, network, objective)
        some, report = _dense(steps, network, trial, objective, report)
        _audit(steps, objective, some)
        _sharpen(steps, network, objective)
        _dimension(steps, objective)
    after = _state(trial.model)
    row["touched"] = [
        str(key)
        for old, new in zip(before, after, strict=True)
        for key in old
        if old[key] != new.get(key)
    ]
    row["step"] = "done"
    keep(row)
    return row


def timed(network: Network, keep: Keep = lambda row: None) -> Row:
    """The times of the default set alone."""
    steps = Steps(network, keep)
    trial = network.trial()
    steps.row["parameters"] = sum(p.numel() for p in trial.model.parameters())
    with steps.step("objective"):
        objective = objective_of(trial)
        steps.row["gradient_seconds"] = _gradient_seconds(objective)
        _default_set(steps, trial, objective)
    steps.row["step"] = "done"
    keep(steps.row)
    return steps.row


def _state(model: nn.Module) -> tuple[dict, dict]:
    try:
        return model_state(model), global_state()
    except AttributeError:
        # Quantized modules keep more than tensors in their states.
        return {}, global_state()


def _gradient_seconds(objective: fg.Objective) -> float:
    """Of the processor, so that other processes do not count.

    A thread's clock, since that of a process ticks too slowly where its time is limited.
    """
    objective.gradient()
    found = []
    for _ in range(GRADIENTS):
        started = time.thread_time()
        objective.gradient()
        found.append(time.thread_time() - started)
    return statistics.median(found)


def _default_set(
    steps: Steps, trial: Trial, objective: fg.Objective
) -> fg.Report | None:
    """What it says, and what it takes: the median of several, each from the beginning."""
    row, report, plan = steps.row, None, Plan()
    if row["parameters"] >= MOST_TIMED:
        return None
    with steps.step("default set"):
        report, first = _timed_report(objective, row["gradient_seconds"], plan)
        taken = [first]
        for _ in range(1, TIMES):
            again = objective_of(trial)
            taken.append(_timed_report(again, _gradient_seconds(again), Plan())[1])
        row["gradients"] = statistics.median(taken)
        if all(seconds is not None for seconds in plan.expected.values()):
            row["predicted"] = (
                sum(s or 0.0 for s in plan.expected.values()) / row["gradient_seconds"]
            )
        _statuses(row, report)
    return report


def _timed_report(
    objective: fg.Objective, gradient: float, plan: Plan
) -> tuple[fg.Report, float]:
    """The default set, and the gradients that it took."""
    gc.collect()
    started = time.thread_time()
    report = fg.measure(objective, progress=plan)
    return report, (time.thread_time() - started) / gradient


def _statuses(row: Row, report: fg.Report) -> None:
    """A measure that broke off names its reason, or is a crash."""
    row["statuses"] = {
        one: found.status.name for one, found in report.measurements.items()
    }
    for request, found in report.measurements.items():
        if found.status is fg.Status.FAILED:
            foreign = "please report it" in found.message
            row["crashed" if foreign else "refused"][request] = found.message
        elif found.status is fg.Status.NOT_APPLICABLE and request in ALWAYS:
            row["refused"][request] = found.message


def _symmetries(steps: Steps, network: Network, objective: fg.Objective) -> None:
    row, group = steps.row, None
    with steps.step("symmetries"):
        group = fg.symmetries(objective)
        row["exact"], row["up_to_eps"] = group.dimension, group.approximate_dimension
        row["rounded"] = group.rounded
        row["unsupported"] = sorted({operator for operator, _ in group.unsupported})
    if group is None:
        return
    with steps.step("finite test"):
        trial = network.trial()
        trial.model.double()
        twin = group.act(trial.model, group.random_element(seed=7))
        base = outputs_of(trial, precise(trial)).detach()
        trial.model = twin
        moved = outputs_of(trial, precise(trial)).detach()
        row["preserved"] = float((moved - base).norm() / base.norm())


def _dimension(steps: Steps, objective: fg.Objective) -> None:
    """What a count by linear algebra alone says about the group."""
    row = steps.row
    affordable = PASSES * row["gradient_seconds"] <= COUNTED_SECONDS
    if "exact" not in row or not affordable:
        return
    with steps.step("numerical dimension"):
        found = fg.symmetries(objective, verify="dimension").numerical
        row["numerical"], row["missed"] = found.counted, found.missed
        row["counted"] = str(found)


def _dense(
    steps: Steps,
    network: Network,
    trial: Trial,
    objective: fg.Objective,
    report: fg.Report | None,
) -> tuple[fg.Objective, fg.Report | None]:
    """The default set of some parameters against dense references."""
    row, some = steps.row, objective
    with steps.step("dense references"):
        again = network.trial()
        model = precise(again)
        known = {n.removeprefix("_orig_mod."): n for n in objective.parameters}
        affordable = int(DENSE_SECONDS / (2 * row["gradient_seconds"]))
        most = min(MOST_DENSE, max(affordable, LEAST_DENSE))
        names = chosen(model, known, most)
        row["dense_parameters"] = sum(
            p.numel() for n, p in model.named_parameters() if n in names
        )
        if len(names) < len(known) or report is None:
            some = objective_of(trial, [known[name] for name in names])
            report = fg.measure(some)
            _statuses(row, report)
        rounded = report.provenance.computed_in != ""
        row["rounded"] = row.get("rounded", False) or rounded
        precision = torch.float32 if row["rounded"] else torch.float64
        reference = Reference(again, names)
        truth: Any = Truth(reference, ROUNDING[precision])  # type: ignore[arg-type]
        row["dense"] = {
            request: compared(request, found, truth, reference, RELATIVE[precision])
            for request, found in report.measurements.items()
        }
    return some, report


def _audit(steps: Steps, objective: fg.Objective, some: fg.Objective) -> None:
    """Of all parameters where that is cheap, else of those of the dense references."""
    row = steps.row
    whole = row.get("seconds", {}).get("default set", 1e9) <= AUDITED_SECONDS
    with steps.step("audit"):
        found = fg.audit(objective if whole else some, elements=1, sharpen_by=FACTOR)
        row["audited"] = "all" if whole else "some"
        row["violations"] = [
            f"{one.measure} under {one.label}: {one.text}" for one in found.violations
        ]
        verdicts = [one.verdict for one in found.audit_rows]
        row["verdicts"] = {str(v): verdicts.count(v) for v in sorted(set(verdicts))}
        row["left_out"] = found.left_out
        # What moves would be a violation if somebody claimed that it stays.
        rescaled = [
            one.verdict == Verdict.MOVES
            for one in found.audit_rows
            if one.measure == UNCLAIMED and one.kind in RESCALINGS and one.exact
        ]
        if rescaled:
            row["wrong_claim_caught"] = any(rescaled)


def _sharpen(steps: Steps, network: Network, objective: fg.Objective) -> None:
    """The same outputs, and the Hessian as much larger as was asked for."""
    row = steps.row
    with steps.step("sharpen"):
        try:
            found = sharpened(objective, FACTOR)
        except fg.errors.SymmetryError as error:
            if "no rescaling" not in str(error) and "no curvature" not in str(error):
                raise
            row["sharpened"] = str(error)
            return
        row["sharpened_by"] = found.ratio
        trial = network.trial()
        base = outputs_of(trial, precise(trial)).detach()
        trial.model = found.objective.model()
        moved = outputs_of(trial, precise(trial)).detach()
        row["sharpened_outputs"] = float((moved - base).norm() / base.norm())


def same_outputs(row: Row) -> float:
    """How far outputs may move where the function stays."""
    return PRESERVED["float32" if row.get("rounded") else "float64"]
