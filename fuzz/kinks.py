"""Points where a derivative says nothing: kinks near θ, and backwards that are none."""

from __future__ import annotations

import torch

from fuzz.draw import Draw
from fuzz.reference import Reference

STEP = 1e-7
# A smooth Hessian changes by about STEP; one beside a kink by its own size.
JUMP = 1e-3
STEPS = (1e-3, 1e-4, 1e-5)
AGREES = 1e-2


def jumps(reference: Reference, draw: Draw) -> bool:
    """Whether the gradient or the Hessian jumps within a tiny step from θ."""
    here, slope = reference.hessian(), reference.gradient()
    size = reference.theta.abs().mean()
    for _ in range(2):
        there = reference.moved(STEP * size * draw.normal(len(reference.theta)))
        if float((there.hessian() - here).norm()) > JUMP * float(here.norm()):
            return True
        if float((there.gradient() - slope).norm()) > JUMP * float(slope.norm()):
            return True
    return False


def derivatives_agree(reference: Reference, draw: Draw) -> tuple[bool, bool]:
    """Whether differences confirm the gradient, and the Hessian, in a random direction."""
    count = len(reference.theta)
    start = reference.moved(0.03 * draw.normal(count))
    v = draw.normal(count)
    gradient = start.gradient()
    try:
        curved = start.hessian() @ v
    except RuntimeError:
        # A backward without one of its own: no number can rest on it.
        curved = torch.full_like(v, torch.nan)
    slope = float(gradient @ v)

    def errors(step: float) -> tuple[float, float]:
        up, down = start.moved(step * v), start.moved(-step * v)
        rise = float(up.value().detach() - down.value().detach()) / (2 * step)
        turn = (up.gradient() - down.gradient()) / (2 * step)
        size = abs(rise) + abs(slope) + 1e-6 * float(gradient.norm() * v.norm())
        bend = float(turn.norm() + curved.norm()) + 1e-9
        return abs(rise - slope) / size, float((turn - curved).norm()) / bend

    found = [errors(step) for step in STEPS]
    first, second = (
        any(one < AGREES for one in row) for row in zip(*found, strict=True)
    )
    return first, second
