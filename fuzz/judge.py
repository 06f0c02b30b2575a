"""Whether a number is right, refused, or wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

import flatgauge as fg
from flatgauge.results import Measurement
from fuzz.losses import Loss
from fuzz.parts import Use
from fuzz.truth import NORMALIZED, Answer, Truth

RIGHT, REFUSED, UNTRUSTED, WRONG = "right", "refused", "untrusted", "WRONG"
# A bound that holds with high probability, and failed from one random start alone.
UNLUCKY = "unlucky"
OTHER_STARTS = range(1, 11)
# What an exact number may be off, relative to itself, and its curvatures, relative to
# the largest: rounding alone.
RELATIVE = {torch.float64: 1e-7, torch.float32: 2e-3}
ROUNDING = {torch.float64: 1e-13, torch.float32: 1e-5}
STANDARD_ERRORS = 4


@dataclass
class Finding:
    """One judged number, claim or state."""

    what: str
    verdict: str
    got: Any = None
    want: Any = None
    note: str = ""
    slack: float = 0.0

    @property
    def failed(self) -> bool:
        return self.verdict == WRONG

    def to_dict(self) -> dict[str, Any]:
        every = asdict(self).items()
        return {k: v for k, v in every if k != "slack" and v not in (None, "")}


def near(
    what: str, got: float, answer: Answer, relative: float, spread: float = 0.0
) -> Finding:
    """Right if it is near one of the answers: within rounding and its own spread."""
    if math.isinf(answer.slack):
        return Finding(what, REFUSED, got, answer.values, "the reference overflows")
    if not math.isfinite(got):
        return Finding(what, WRONG, got, answer.values, "not finite")
    for value in answer.values:
        allowed = relative * abs(value) + answer.slack + spread + floor(relative)
        if abs(got - value) <= allowed:
            return Finding(what, RIGHT, got, value, slack=answer.slack)
    return Finding(
        what, WRONG, got, answer.values, f"allowed {spread + answer.slack:.1e}"
    )


def floor(relative: float) -> float:
    """What underflow may take: the root of the smallest number of the precision."""
    single = relative == RELATIVE[torch.float32]
    return torch.finfo(torch.float32 if single else torch.float64).tiny ** 0.5


def again(finding: Finding, retry: Callable[[int], Finding]) -> Finding:
    """A failure of a random bound counts if it is seen from another start, too."""
    if any(retry(seed).failed for seed in OTHER_STARTS):
        return finding
    note = f"{finding.note}; holds from {len(OTHER_STARTS)} other starts"
    return replace(finding, verdict=UNLUCKY, note=note)


def vectors_near(
    what: str, got: torch.Tensor, want: torch.Tensor, relative: float, size: float
) -> Finding:
    """Right if the difference is small against the vector, and against `size`."""
    off = float((got.double().cpu() - want).norm())
    allowed = relative * (float(want.norm()) + size) + floor(relative)
    verdict = RIGHT if off <= allowed else WRONG
    return Finding(what, verdict, off, None, f"norm {float(want.norm()):.3e}")


def spread_of(found: Measurement) -> float:
    """What a number says about its own error."""
    own = found.uncertainty or 0.0
    return STANDARD_ERRORS * own if found.status is fg.Status.ESTIMATED else own


def judge(
    request: str,
    found: Measurement,
    truth: Truth,
    loss: Loss,
    uses: dict[str, Use],
    relative: float,
) -> list[Finding]:
    """The verdicts on one measurement: its value, and the parts that say they are known."""
    if found.status is fg.Status.FAILED:
        return [Finding("foreign error", WRONG, note=f"{request}: {found.message}")]
    if found.value is None:
        return [Finding(request, REFUSED, note=found.message)]
    if not found.status.trusted:
        return [Finding(request, UNTRUSTED, found.value, note=found.status.name)]
    wrong = _structure(request, found, loss, uses)
    if wrong:
        return [wrong]
    answer = answer_to(found, truth, uses)
    verdicts = [near(request, found.value, answer, relative, spread_of(found))]
    smallest = answer.extra.get("smallest")
    bound = found.details.get("smallest_error_bound")
    if (
        smallest is not None
        and bound is not None
        and fg.Status[found.details["smallest_status"]].trusted
    ):
        verdicts.append(
            near(
                f"{request}: smallest",
                found.details["smallest"],
                Answer([smallest], answer.slack),
                relative,
                bound,
            )
        )
    return verdicts


def _structure(
    request: str, found: Measurement, loss: Loss, uses: dict[str, Use]
) -> Finding | None:
    """Layers that are none, layers left out without a word, losses that were not meant."""
    meant = loss.entropy or loss.given == NORMALIZED
    if found.loss == NORMALIZED and not meant:
        return Finding(request, WRONG, note=f"'{loss.name}' was taken for classes")
    if found.measure not in ("normalized-sharpness", "spectral-norm-product"):
        return None
    layers = layer_names(found)
    unknown = [name for name in layers if name not in uses]
    if unknown:
        return Finding(request, WRONG, note=f"{unknown[0]} is not used as a matrix")
    lost = [n for n, use in uses.items() if n not in layers and not use.optional]
    if lost:
        return Finding(request, WRONG, note=f"{lost[0]} is left out")
    said = found.details.get("left_out")
    silent = [n for n in uses if n not in layers and said is not None and n not in said]
    if silent:
        return Finding(request, WRONG, note=f"{silent[0]} is left out unsaid")
    return None


def layer_names(found: Measurement) -> list[str]:
    """The parameters among the layers; "name[0]" is the first of several matrices."""
    listed = found.details.get("layers", ())
    return list(dict.fromkeys(re.sub(r"\[\d+\]$", "", name) for name in listed))


def answer_to(found: Measurement, truth: Truth, uses: dict[str, Use]) -> Answer:
    """What a measurement should have been."""
    seen = NORMALIZED if found.loss == NORMALIZED else "own"
    layers = layer_names(found)
    if found.measure == "hessian-trace":
        return truth.trace()
    if found.measure == "hessian-spectral-norm":
        return truth.extremes("euclidean")
    if found.measure == "riemannian-spectral-norm":
        return truth.extremes(found.options["metric"])
    if found.measure == "matrix-normalized-sharpness":
        return truth.matrix_sharpness(seen)
    if found.measure == "normalized-sharpness":
        return truth.sharpness(seen, layers, uses)
    if found.measure == "fisher-rao-norm":
        return truth.fisher_rao(found.options["diagonal"])
    if found.measure == "spectral-norm-product":
        return truth.norm_product(layers, uses)
    raise ValueError(f"'{found.measure}' has no dense definition here.")
