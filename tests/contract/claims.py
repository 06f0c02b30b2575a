"""Claims of the contract suite: what was found, what is true, and what may differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import flatgauge as fg
from contract.subjects import Subject

# Standard errors by which a random estimate may be off.
STANDARD_ERRORS = 6
BROKEN = (fg.Status.FAILED,)


@dataclass(frozen=True)
class Claim:
    """`found` is `truth` up to `allowance`, and up to rounding in units of `scale`."""

    what: str
    found: Any
    truth: Any
    allowance: float = 0.0
    scale: float | None = None

    def share(self, tolerance: float) -> float:
        """How much of what it may be off by it is off: at most 1."""
        found, truth = (
            torch.as_tensor(v, dtype=torch.float64).cpu()
            for v in (self.found, self.truth)
        )
        assert found.shape == truth.shape, f"{self.what}: {found.shape}, {truth.shape}"
        assert bool(found.isfinite().all()), f"{self.what} is not finite"
        scale = float(truth.norm()) if self.scale is None else self.scale
        allowed = self.allowance + tolerance * scale
        off = float((found - truth).norm())
        return off / allowed if off else 0.0


Claims = Iterator[Claim]
Call = Callable[[Subject], Claims]


def probe(subject: Subject, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(len(subject.truth.point), generator=random).double()


def flat(vector: dict[str, Tensor], subject: Subject) -> Tensor:
    """A named vector in the order of the truth's entries."""
    return torch.cat(
        [vector[name].double().cpu().reshape(-1) for name in subject.truth.names]
    )


def named(
    vector: Tensor, objective: fg.Objective, subject: Subject
) -> dict[str, Tensor]:
    """The inverse of `flat`, in the objective's space."""
    space = objective.parameters
    sizes = [space[name].numel() for name in subject.truth.names]
    parts = dict(zip(subject.truth.names, vector.split(sizes), strict=True))
    return {name: parts[name].view(t.shape).to(t) for name, t in space.items()}


def refusal(run: Callable[[], Any]) -> tuple[Any, type | None]:
    """The result, or the kind of error of our own that it was refused with."""
    try:
        return run(), None
    except fg.FlatgaugeError as error:
        return None, type(error)


def same_refusal(
    run: Callable[[fg.Objective], Any], subject: Subject
) -> tuple[Any, Any] | None:
    """The results here and of the reference; None where both refuse alike."""
    found, error = refusal(lambda: run(subject.objective))
    right, expected = refusal(lambda: run(subject.reference))
    assert error is expected, f"refused with {error}, and the reference with {expected}"
    return None if error else (found, right)


def same_report(found: fg.Report, right: fg.Report) -> Claims:
    """Every number of a report against the reference's, within both uncertainties."""
    assert list(found) == list(right)
    for request, one in found.measurements.items():
        other = right[request]
        assert one.status not in BROKEN, f"{request}: {one.message}"
        assert (one.value is None) == (other.value is None), f"{request}: {one.message}"
        if one.value is not None and other.value is not None:
            bars = math.hypot(one.uncertainty or 0.0, other.uncertainty or 0.0)
            allowed = bars if _bounded(one, other) else STANDARD_ERRORS * bars
            scale = max(abs(other.value), _smallest_scale(other))
            yield Claim(request, one.value, other.value, allowed, scale)


def _bounded(*found: fg.Measurement) -> bool:
    good = (fg.Status.EXACT, fg.Status.CONVERGED)
    return all(one.status in good for one in found)


def _smallest_scale(found: fg.Measurement) -> float:
    """Logarithms have no unit but 1."""
    logarithmic = {one.name for one in fg.list_measures() if one.logarithmic}
    return 1.0 if found.measure in logarithmic else 0.0
