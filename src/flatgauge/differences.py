"""Whether the derivatives that autograd gives are those of the function it is given.

A custom backward, a hook, a straight-through estimator or `x * x.detach()` makes
autograd compute something else than the derivative. Difference quotients of the function
itself show it: with v a random direction, g the gradient and H the Hessian product that
autograd gives at a point x,

    (f(x + h v) − f(x − h v)) / 2h   against   gᵀv,
    (g(x + h v) − g(x − h v)) / 2h   against   Hv,
    ⟨u, Hv⟩                          against   ⟨v, Hu⟩.

Each tensor of x is changed in units of its own root mean square, so that g, Hv and f have
one unit and no scale of the parameters matters. The point is never the given one: exact
zeros are kinks at every step, and a head of zeros hides what is behind it.

No tolerance suits all networks: some compute parts in float32 whatever their parameters
are, others cross the kinks of a million ReLUs. So the coarsest type of all operations is
looked up first, and gives steps and tolerance. A claim *agrees* if the quotient of some
step is near it. It *differs* only on evidence: quotients of three neighbouring steps that
are ten times nearer to one another, which is the function's own precision, than to the
claim. Rounding and kinks inside the steps grow as 1/h, the curvature left out as h², so
that none of them makes three quotients agree. Otherwise nothing is decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import combinations

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flatgauge.vectors import (
    Params,
    add,
    check_twice_differentiable,
    dot,
    gaussian,
    generator,
    gradient_of,
)

# In the order in which they are tried; most networks agree at the first.
FINE = (1e-5, 1e-6, 1e-7, 1e-8, 1e-4, 1e-3, 1e-2)
COARSE = (1e-3, 3e-3, 3e-4, 1e-2, 1e-4, 3e-5, 3e-2)
# How far from the given point, in units of each tensor's root mean square.
CHANGE = 1e-2
# The scale of a tensor of zeros, in units of the other tensors' median.
FROM_ZERO = 0.1
NEAR_FINE, NEAR_COARSE = 1e-5, 1e-3
# The share of that at which no more steps are tried: what is larger may be a small mistake.
STRICT = 1e-2
EVIDENCE = 10.0
# The same where only the quotients themselves tell how well they are known.
BEYOND_DOUBT = 1e4
# The share of an error that smaller steps must still have.
PERSISTS = 0.8
# The share of the gradient in the unit of Hessian products: there may be no curvature.
FLAT = 1e-4
# What the two sides of the Hessian may differ by, for functions as smooth as CLOSE.
ASYMMETRY, CLOSE = 1e-3, 1e-6
WORDS = {
    "the loss": "the gradient is not the derivative of the loss",
    "the gradient": "Hessian products are not the derivative of the gradient",
}


class Verdict(Enum):
    """What difference quotients say about autograd's derivatives."""

    AGREES = "agrees"
    DIFFERS = "differs"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Finding:
    """The verdict, and for DIFFERS what differs, in words."""

    verdict: Verdict
    words: str = ""


Function = Callable[[Params], tuple[Tensor, float]]


def scales_of(point: Params) -> dict[str, float]:
    """The root mean square of each tensor; a share of their median where it is 0."""
    sizes = {
        name: float(tensor.double().square().mean().sqrt()) if tensor.numel() else 0.0
        for name, tensor in point.items()
    }
    nonzero = sorted(size for size in sizes.values() if size > 0)
    otherwise = FROM_ZERO * (nonzero[len(nonzero) // 2] if nonzero else 1.0)
    return {name: size or otherwise for name, size in sizes.items()}


def direction(point: Params, scales: dict[str, float], seed: int) -> Params:
    """A Gaussian direction, each tensor in units of its scale."""
    drawn = gaussian(point, generator(seed))
    return {name: scales[name] * tensor for name, tensor in drawn.items()}


def moved(point: Params, share: float = 1.0) -> Params:
    """A point nearby, at which no entry is what it was; zeros go the whole scale.

    Args:
        point: the given one.
        share: of the usual way.
    """
    scales = scales_of(point)
    steps = {
        name: share * scales[name] * (CHANGE if bool(tensor.any()) else 1.0)
        for name, tensor in point.items()
    }
    return add(point, direction(point, steps, seed=0))


def examine(function: Function, point: Params) -> Finding:
    """Compare autograd's derivatives of a function at `point` with its differences.

    It takes one gradient, another one with its graph, two Hessian products from that (two
    gradients each) and two gradients a step: 8 where the first step agrees, 20 at most.

    Args:
        function: a point -> the value (0-dimensional), and the size of the numbers that
            it was computed from, which its rounding is a fraction of.
        point: the variables; choose one by `moved`.
    """
    scales = scales_of(point)
    v, u = (direction(point, scales, seed) for seed in (1, 2))
    leaves = _leaves(point)
    with _Precision() as precision:
        value, size = function(leaves)
    products = _products(value, leaves, v, u)
    slopes = gradient_of(value, leaves)
    projected = _projections(slopes, v, u)
    claims = {"the loss": projected[:, 0].sum().reshape(1)}
    if products is not None:
        claims["the gradient"] = _projections(products[0], v, u).flatten()
    if not all(bool(torch.isfinite(one).all()) for one in claims.values()):
        return Finding(Verdict.UNDECIDED)
    units = {
        "the loss": float(projected[:, 0].norm() + claims["the loss"].abs()),
        "the gradient": FLAT * float(projected.norm()),
    }
    if products is not None:
        units["the gradient"] += float(claims["the gradient"].norm())
    fine = precision.eps <= torch.finfo(torch.float64).eps
    near = NEAR_FINE if fine else NEAR_COARSE
    rounding = precision.eps * size
    del slopes, leaves, value
    checks = {
        what: _Check(claim, units[what], near, rounding)
        for what, claim in claims.items()
    }
    for step in FINE if fine else COARSE:
        ahead, behind = (
            _evaluated(function, add(point, v, sign * step), v, u) for sign in (1, -1)
        )
        for what, check in checks.items():
            check.add(step, (ahead[what] - behind[what]) / (2 * step))
        if all(check.agrees(STRICT * near) for check in checks.values()):
            break
    return _finding(checks, products, u, v)


def _finding(
    checks: dict[str, _Check],
    products: tuple[Params, Params] | None,
    u: Params,
    v: Params,
) -> Finding:
    for what, check in checks.items():
        if check.verdict() is Verdict.DIFFERS:
            return Finding(Verdict.DIFFERS, WORDS[what])
    if all(check.agrees() for check in checks.values()):
        return Finding(Verdict.AGREES)
    if products is not None and checks["the loss"].agrees(CLOSE):
        one, other = float(dot(u, products[0])), float(dot(v, products[1]))
        unit = math.hypot(_size(products[0], u), _size(products[1], v))
        if abs(one - other) > ASYMMETRY * unit + checks["the gradient"].rounding:
            return Finding(Verdict.DIFFERS, "the Hessian is not symmetric")
    return Finding(Verdict.UNDECIDED)


class _Precision(TorchDispatchMode):
    """The rounding of the coarsest floating type that an operation returned."""

    def __init__(self) -> None:
        super().__init__()
        self.eps = torch.finfo(torch.float64).eps

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                self.eps = max(self.eps, torch.finfo(tensor.dtype).eps)
        return found


class _Check:
    """The quotients of one claim, step by step."""

    def __init__(self, claim: Tensor, unit: float, near: float, rounding: float):
        self.claim = claim
        self.unit = unit
        self.near = near
        self.rounding = rounding
        self.quotients: dict[float, Tensor] = {}

    def add(self, step: float, quotient: Tensor) -> None:
        if bool(torch.isfinite(quotient).all()):
            self.quotients[step] = quotient

    def error(self, step: float) -> float:
        return float((self.quotients[step] - self.claim).norm())

    def agrees(self, near: float | None = None) -> bool:
        allowed = (self.near if near is None else near) * self.unit
        return any(self.error(step) <= allowed for step in self.quotients)

    def verdict(self) -> Verdict:
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
            if error > EVIDENCE * spread and error > self.rounding / three[0]:
                return Verdict.DIFFERS
            # Far below the outputs' rounding, where the loss is as good as 0: changes that
            # got lost would be none, or others for every step.
            rise = min(float(self.quotients[step].norm()) for step in three)
            if min(error, rise) > BEYOND_DOUBT * spread:
                return Verdict.DIFFERS
        return Verdict.AGREES if self.agrees() else Verdict.UNDECIDED


def _leaves(point: Params) -> Params:
    return {name: tensor.detach().requires_grad_() for name, tensor in point.items()}


def _evaluated(function: Function, point: Params, v: Params, u: Params) -> Params:
    """The value and the gradient's projections, which are all that is kept of it."""
    leaves = _leaves(point)
    value, _ = function(leaves)
    slopes = gradient_of(value, leaves)
    return {
        "the loss": value.detach().double().reshape(1),
        "the gradient": _projections(slopes, v, u).flatten(),
    }


def _products(
    value: Tensor, leaves: Params, v: Params, u: Params
) -> tuple[Params, Params] | None:
    """Hv and Hu; None where there are no second derivatives, which others report."""
    try:
        slopes = gradient_of(value, leaves, create_graph=True)
        check_twice_differentiable(slopes.values())
        first, second = (_inner(slopes, vector) for vector in (v, u))
        return (
            gradient_of(first, leaves, keep_graph=True),
            gradient_of(second, leaves, keep_graph=True),
        )
    except torch.OutOfMemoryError:
        raise
    # A user's own backward may raise anything where it is to be differentiated.
    except Exception:
        return None


def _inner(slopes: Params, vector: Params) -> Tensor:
    return torch.stack([(slopes[name] * vector[name]).sum() for name in slopes]).sum()


def _projections(vector: Params, v: Params, u: Params) -> Tensor:
    """⟨v, ·⟩ and ⟨u, ·⟩ of each tensor, [tensors, 2]."""
    rows = [
        torch.stack([(vector[n].detach() * w[n]).sum().double() for w in (v, u)])
        for n in vector
    ]
    return torch.stack(rows)


def _size(vector: Params, unit: Params) -> float:
    """The norm of the products of entries, which rounding of their sum is measured by."""
    return math.sqrt(sum(float((vector[n] * unit[n]).square().sum()) for n in vector))
