"""Difference quotients of several steps, and what they say about a claimed derivative.

No tolerance suits all networks: some compute parts in float32 whatever their parameters
are, others cross the kinks of a million ReLUs. So the coarsest type of all operations is
looked up first, and gives steps and tolerance. A claim *agrees* if the quotient of some
step is near it. It *differs* only on evidence: quotients of three neighbouring steps that
are ten times nearer to one another, which is the function's own precision, than to the
claim. Rounding and kinks inside the steps grow as 1/h, the curvature left out as h², so
that none of them makes three quotients agree. Otherwise nothing is decided.
"""

from __future__ import annotations

from enum import Enum
from itertools import combinations

import torch
from torch import Tensor

# The share of `near` at which no more steps are tried: what is larger may be a mistake.
STRICT = 1e-2
EVIDENCE = 10.0
# The same where only the quotients themselves tell how well they are known.
BEYOND_DOUBT = 1e4
# The share of an error that smaller steps must still have.
PERSISTS = 0.8


class Verdict(Enum):
    """What difference quotients say about autograd's derivatives."""

    AGREES = "agrees"
    DIFFERS = "differs"
    UNDECIDED = "undecided"


class Quotients:
    """The quotients of one claim, step by step.

    Args:
        claim: the derivative, as autograd gives it.
        unit: what errors are shares of.
        plain: whether the quotients are of values; slopes of a loss may have lost parts of
            theirs to rounding, the same at every step.

    Attributes:
        near: the share of the unit that an error may be.
        rounding: of the function's values.
        fine: whether no part is coarser than float64: others may lose small changes.
    """

    def __init__(self, claim: Tensor, unit: float, plain: bool):
        self.claim = claim
        self.unit = unit
        self.plain = plain
        self.near = 0.0
        self.rounding = 0.0
        self.fine = False
        self.quotients: dict[float, Tensor] = {}

    def add(self, step: float, quotient: Tensor) -> None:
        """Take note of the quotient of a step; one that is not finite says nothing."""
        if bool(torch.isfinite(quotient).all()):
            self.quotients[step] = quotient

    def error(self, step: float) -> float:
        """How far the quotient of a step is from the claim."""
        return float((self.quotients[step] - self.claim).norm())

    def agrees(self, near: float | None = None) -> bool:
        """Whether the quotient of some step is near the claim."""
        allowed = (self.near if near is None else near) * self.unit
        return any(self.error(step) <= allowed for step in self.quotients)

    def verdict(self) -> Verdict:
        """What all steps say."""
        if self.agrees(STRICT * self.near):
            return Verdict.AGREES
        steps = sorted(self.quotients)
        for three in zip(steps, steps[1:], steps[2:], strict=False):
            spread = max(
                float((self.quotients[a] - self.quotients[b]).norm())
                for a, b in combinations(three, 2)
            )
            error = min(map(self.error, three))
            finer = [self.error(step) for step in steps if step < three[0]]
            if finer and min(finer) < PERSISTS * error:
                # Steps too large for the function agree with one another, too.
                continue
            # What rounding cannot do at the largest of three is no jump there, either:
            # the smaller would miss by more. Slopes can lose the same at all of them.
            allowed = self.rounding / three[-1 if self.plain else 0]
            if error > max(EVIDENCE * spread, allowed):
                return Verdict.DIFFERS
            # Far below the outputs' rounding, where the loss is as good as 0: changes that
            # got lost would be none, or others for every step.
            rise = min(float(self.quotients[step].norm()) for step in three)
            wider = [self.error(step) for step in steps if step > three[-1]]
            if wider and EVIDENCE * min(wider) < error:
                # What a larger step does not see was rounded to one multiple by all three.
                continue
            if self.plain and self.fine and min(error, rise) > BEYOND_DOUBT * spread:
                return Verdict.DIFFERS
        return Verdict.AGREES if self.agrees() else Verdict.UNDECIDED
