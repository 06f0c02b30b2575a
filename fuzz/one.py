"""One network: build it, measure it, judge every number, and look at what was touched."""

from __future__ import annotations

import io
import random
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import flatgauge as fg
from fuzz.claims import judge_audit, judge_claims
from fuzz.draw import Draw
from fuzz.judge import (
    REFUSED,
    RELATIVE,
    ROUNDING,
    WRONG,
    Finding,
    again,
    answer_to,
    judge,
    near,
    spread_of,
    vectors_near,
)
from fuzz.kinks import derivatives_agree, jumps
from fuzz.problems import Problem, problem
from fuzz.reference import Reference
from fuzz.truth import NORMALIZED, Answer, Truth

AUDIT_EVERY = 50
MOST_ROWS = 40
# A change of θ by rounding, in the unit of the curvatures' own, and how much of a
# difference may come from it.
DIGITS = 0.1
UNDECIDED = 30
# Measures that need no derivative.
PLAIN = ("spectral-norm-product",)
# And those that need no second one.
FIRST = ("fisher-rao-norm",)
NAMED = ("cross-entropy", "mse", NORMALIZED)


@dataclass
class Result:
    """All findings on one network; `seconds` of the processor."""

    seed: int
    index: int
    words: str
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def failures(self) -> list[Finding]:
        return [one for one in self.findings if one.failed]

    def to_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "index": self.index,
            "seconds": round(self.seconds, 3),
            "failed": bool(self.failures),
            "network": self.words,
            "findings": [one.to_dict() for one in self.findings],
        }


def check(seed: int, index: int, device: str = "cpu") -> Result:
    """Judge the network of this seed and index."""
    started = time.process_time()
    task = problem(seed, index)
    result = Result(seed, index, task.words)
    before = _state(task.network.model)
    draw = Draw(seed, -1 - index)
    # Where it fails, torch.export prints the graph on stderr.
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            result.findings = _judged(task, draw, index % AUDIT_EVERY == 0, device)
        except Exception as error:
            note = f"{type(error).__name__}: {str(error)[:300]} ({_place(error)})"
            result.findings.append(Finding("foreign error", WRONG, note=note))
    after = _state(task.network.model)
    touched = [key for key in before if before[key] != after.get(key)]
    if touched:
        result.findings.append(Finding("touched", WRONG, note=", ".join(touched)))
    result.seconds = time.process_time() - started
    return result


def _place(error: Exception) -> str:
    """The last line of ours that an error came through."""
    ours = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "/flatgauge/" in frame.filename or "/fuzz/" in frame.filename
    ]
    return f"{'/'.join(ours[-1].filename.split('/')[-3:])}:{ours[-1].lineno}"


def _judged(task: Problem, draw: Draw, audited: bool, device: str) -> list[Finding]:
    reference = Reference(task)
    try:
        objective = fg.Objective(
            task.network.model, _data(draw, task), task.loss.given, mode=task.mode,
            device=device,
        )  # fmt: skip
    except fg.FlatgaugeError as error:
        return [Finding("objective", REFUSED, note=str(error))]
    if not task.network.sound:
        return _unsound(draw, objective, reference)
    rounded = task.network.rounded or task.dtype == torch.float32
    precision = torch.float32 if rounded else torch.float64
    relative = RELATIVE[precision]
    truth = Truth(reference, ROUNDING[precision])
    found = _products(task, draw, objective, truth, relative)
    report = fg.measure(objective)
    for request, one in report.measurements.items():
        found += _judged_again(task, objective, truth, request, one, relative)
    slacks = {one.what: one.slack for one in found}
    found += judge_claims(draw, task, reference, objective, report, slacks, relative)
    if audited:
        found.append(judge_audit(objective))
    if any(one.failed for one in found):
        _pardon(task, draw, report, truth, found)
    return found


def _judged_again(
    task: Problem,
    objective: fg.Objective,
    truth: Truth,
    request: str,
    measured: fg.Measurement,
    relative: float,
) -> list[Finding]:
    """The verdicts on one measurement; other random starts are tried where it fails."""

    def verdicts(one: fg.Measurement) -> list[Finding]:
        return judge(request, one, truth, task.loss, task.network.uses, relative)

    def retry(seed: int, place: int) -> Finding:
        other = fg.measure(objective, request, seed=seed)[request]
        found = verdicts(other)
        return found[min(place, len(found) - 1)]

    found = verdicts(measured)
    return [
        again(one, lambda seed, place=place: retry(seed, place))
        if one.failed and spread_of(measured) and one.want is not None
        else one
        for place, one in enumerate(found)
    ]


def _pardon(
    task: Problem, draw: Draw, report: fg.Report, truth: Truth, found: list[Finding]
) -> None:
    """Judge nothing at a kink, nor a number that the last digits of θ decide."""
    reference = truth.reference
    if jumps(reference, draw):
        for one in found:
            if one.failed and one.what != "rescalings":
                one.verdict, one.note = REFUSED, f"a kink here: {one.note}"
        return
    step = DIGITS * truth.rounding * reference.theta * draw.normal(len(reference.theta))
    beside = Truth(reference.moved(step), truth.rounding)
    for one in found:
        measured = report.measurements.get(one.what.removeprefix("twin: "))
        if not one.failed or measured is None or one.want is None:
            continue
        here, there = (
            torch.tensor(answer_to(measured, at, task.network.uses).values)
            for at in (truth, beside)
        )
        off = min(abs(one.got - want) for want in one.want)
        if off <= UNDECIDED * float((there - here).abs().max()):
            one.verdict, one.note = REFUSED, "rounding decides this number"


def _products(
    task: Problem, draw: Draw, objective: fg.Objective, truth: Truth, relative: float
) -> list[Finding]:
    """Value, gradient and products with one random vector."""
    found = [near("value", objective.value(), Answer([truth.value], 1e-14), relative)]
    gradient = truth.gradient
    size = truth.rounding / relative * float(truth.reference.theta.norm())
    got = _flat(objective.gradient())
    found.append(vectors_near("gradient", got, gradient, relative, size))
    v = draw.normal(len(gradient))
    named = {
        name: part.to(objective.parameters[name])
        for name, part in truth.reference.by_name(v).items()
    }

    def product(what: str, operator: Callable[[], Any], matrix: Callable[[], Tensor]):
        try:
            made = operator()
            got, own = _flat(made @ named), made.rounding
        except fg.FlatgaugeError as error:
            found.append(Finding(what, REFUSED, note=str(error)))
            return
        dense = matrix()
        reach = float(torch.linalg.matrix_norm(dense, 2)) + truth.reference.reach
        scale = reach * float(v.norm())
        rounding = (truth.rounding + own) / relative
        found.append(vectors_near(what, got, dense @ v, relative, rounding * scale))

    def fisher() -> Tensor:
        rows, weights = truth.row_gradients
        return rows.T @ (weights[:, None] * rows) / weights.sum()

    product("hessian product", lambda: fg.Hessian(objective), truth.hessian)
    rows = sum(y.shape[:2].numel() if y.ndim > 1 else len(y) for _, y in task.batches)
    few = rows * task.network.model.head.out_features <= MOST_ROWS
    if few and not task.coupled and task.loss.given in NAMED:
        gauss_newton = "gauss-newton product"
        product(
            gauss_newton, lambda: fg.GaussNewton(objective), lambda: truth.gauss_newton
        )
        product("fisher product", lambda: fg.Fisher(objective), fisher)
    return found


def _unsound(
    draw: Draw, objective: fg.Objective, reference: Reference
) -> list[Finding]:
    """Every number that rests on derivatives that are wrong must be refused."""
    first, second = derivatives_agree(reference, draw)
    if first and second:
        return [Finding("unsound", REFUSED, note="unsound without effect here")]
    right = (*PLAIN, *FIRST) if first else PLAIN
    report = fg.measure(objective)
    trusted = [
        request
        for request, one in report.measurements.items()
        if one.measure not in right and one.value is not None and one.status.trusted
    ]
    if trusted:
        return [Finding("unsound", WRONG, note=f"trusted: {', '.join(trusted)}")]
    return [Finding("unsound", REFUSED)]


def _data(draw: Draw, task: Problem) -> Any:
    """The batches as a list, or a loader where they are even."""
    sizes = [len(y) for _, y in task.batches]
    even = all(size == sizes[0] for size in sizes[:-1]) and sizes[-1] <= sizes[0]
    if not even or draw.chance(0.6):
        return task.batches
    inputs, targets = (torch.cat(part) for part in zip(*task.batches, strict=True))
    return DataLoader(TensorDataset(inputs, targets), batch_size=sizes[0])


def _flat(vector: dict[str, Tensor]) -> Tensor:
    return torch.cat([part.detach().flatten() for part in vector.values()])


def _state(model: nn.Module) -> dict[str, Any]:
    """Everything that a measurement must leave alone."""
    found: dict[str, Any] = {
        "torch's random state": torch.get_rng_state().tolist(),
        "numpy's random state": str(np.random.get_state()),  # noqa: NPY002
        "Python's random state": hash(random.getstate()),
        "default dtype": torch.get_default_dtype(),
        "gradients enabled": torch.is_grad_enabled(),
        "modes": [module.training for module in model.modules()],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
    }
    for name, tensor in model.state_dict(keep_vars=True).items():
        found[name] = (tensor.detach().tolist(), tensor.requires_grad)
        found[f"{name}.grad"] = tensor.grad
    return found
