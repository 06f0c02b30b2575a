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

`quotients` says when a claim agrees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flatgauge.quotients import STRICT, Quotients, Verdict
from flatgauge.vectors import (
    Params,
    add,
    check_twice_differentiable,
    dot,
    gaussian,
    generator,
    gradient_of,
    multiply,
    root_mean_squares,
)

# In the order in which they are tried; most networks agree at the first.
FINE = (1e-5, 1e-6, 1e-7, 1e-8, 1e-4, 1e-3, 1e-2)
COARSE = (1e-3, 3e-3, 3e-4, 1e-2, 1e-4, 3e-5, 3e-2)
# The steps along a second direction, for functions with coarse parts.
ALONG = (1e-3, 3e-3, 3e-4, 1e-4)
# Where none of them agrees: between the jumps of a function there may be room for these.
SMALLEST = (1e-5, 3e-6)
# How far from the given point, in units of each tensor's root mean square.
CHANGE = 1e-2
# The scale of a tensor of zeros, in units of the other tensors' median.
FROM_ZERO = 0.1
NEAR_FINE, NEAR_COARSE = 1e-5, 1e-3
# The share of the gradient in the unit of Hessian products: there may be no curvature.
FLAT = 1e-4
# Those that a gradient with its graph and a product from it cost.
GRADIENTS = 3
# What the two sides of the Hessian may differ by, for functions as smooth as CLOSE.
ASYMMETRY, CLOSE = 1e-3, 1e-6
WORDS = {
    "the loss": "the gradient is not the derivative of the loss",
    "the gradient": "Hessian products are not the derivative of the gradient",
}


@dataclass(frozen=True)
class Finding:
    """The verdict, the gradients that it took, and for DIFFERS what differs, in words."""

    verdict: Verdict
    gradients: int
    words: str = ""


Function = Callable[[Params], tuple[Tensor, float]]


def scales_of(point: Params) -> dict[str, float]:
    """The root mean square of each tensor; a share of their median where it is 0."""
    return _not_zero(root_mean_squares(point))


def _not_zero(sizes: dict[str, float]) -> dict[str, float]:
    nonzero = sorted(size for size in sizes.values() if size > 0)
    otherwise = FROM_ZERO * (nonzero[len(nonzero) // 2] if nonzero else 1.0)
    return {name: size or otherwise for name, size in sizes.items()}


def direction(point: Params, scales: dict[str, float], seed: int) -> Params:
    """A Gaussian direction, each tensor in units of its scale."""
    drawn = gaussian(point, generator(seed))
    return {name: scales[name] * tensor for name, tensor in drawn.items()}


def directions(point: Params) -> tuple[Params, Params]:
    """The two that a function is compared along."""
    scales = scales_of(point)
    return direction(point, scales, seed=1), direction(point, scales, seed=2)


def moved(point: Params, share: float = 1.0) -> Params:
    """A point nearby, at which no entry is what it was; zeros go the whole scale.

    Args:
        point: the given one.
        share: of the usual way.
    """
    sizes = root_mean_squares(point)
    steps = {
        name: share * scale * (CHANGE if sizes[name] else 1.0)
        for name, scale in _not_zero(sizes).items()
    }
    return add(point, direction(point, steps, seed=0))


def examine(
    function: Function,
    point: Params,
    most: int = 24,
    along: tuple[Params, Params] | None = None,
) -> Finding:
    """Compare autograd's derivatives of a function at `point` with its differences.

    A gradient with its graph and a Hessian product from it are three gradients, a step is
    two; values along a second direction, for functions with coarse parts, are eight passes
    and count as four, and the other side of the Hessian, in doubt only, is three again.

    Args:
        function: a point -> the value (0-dimensional), and the size of the numbers that
            it was computed from, which its rounding is a fraction of.
        point: the variables; choose one by `moved`.
        most: gradients that it may take, at least 5.
        along: the `directions` of the point, if they are known.
    """
    v, u = along or directions(point)
    leaves = _leaves(point)
    with _Precision() as precision:
        value, size = function(leaves)
    fine = precision.eps <= torch.finfo(torch.float64).eps
    slopes, product = _derivatives(value, leaves, v)
    del leaves, value
    checks = _claims(slopes, product, v, u)
    if checks is None:
        return Finding(Verdict.UNDECIDED, GRADIENTS)
    for check in checks.values():
        check.near = NEAR_FINE if fine else NEAR_COARSE
        check.fine = fine
        check.rounding = precision.eps * size
    spent = GRADIENTS
    for step in FINE if fine else _coarse(checks):
        if spent + 2 > most:
            break
        spent += 2
        ahead, behind = (
            _evaluated(function, add(point, v, sign * step), v, u) for sign in (1, -1)
        )
        for what, check in checks.items():
            check.add(step, (ahead[what] - behind[what]) / (2 * step))
        if all(check.agrees(STRICT * check.near) for check in checks.values()):
            break
    if not fine and spent + len(ALONG) <= most:
        # Within a coarse tolerance, one direction may hardly see what is wrong.
        spent += len(ALONG)
        if _differs_along(function, point, u, slopes, checks["the loss"]):
            return Finding(Verdict.DIFFERS, spent, WORDS["the loss"])
    for what, check in checks.items():
        if check.verdict() is Verdict.DIFFERS:
            return Finding(Verdict.DIFFERS, spent, WORDS[what])
    if all(check.agrees() for check in checks.values()):
        return Finding(Verdict.AGREES, spent)
    smooth = checks["the loss"].agrees(CLOSE) and spent + GRADIENTS <= most
    if product is not None and smooth:
        spent += GRADIENTS
        rounding = checks["the gradient"].rounding
        if _is_asymmetric(function, point, (v, product), u, rounding):
            return Finding(Verdict.DIFFERS, spent, "the Hessian is not symmetric")
    return Finding(Verdict.UNDECIDED, spent)


def _coarse(checks: dict[str, Quotients]) -> Iterator[float]:
    """The steps for functions with coarse parts, the smallest only in doubt."""
    yield from COARSE
    if not all(check.agrees() for check in checks.values()):
        yield from SMALLEST


def _claims(
    slopes: Params, product: Params | None, v: Params, u: Params
) -> dict[str, Quotients] | None:
    """What autograd says, to be compared; None where that is nothing, or not finite."""
    # Few numbers, which are looked at where that takes no launches.
    projected = _projections(slopes, v, u).cpu()
    claims = {"the loss": projected[:, 0].sum().reshape(1)}
    units = {
        "the loss": float(projected[:, 0].norm() + claims["the loss"].abs()),
        "the gradient": FLAT * float(projected.norm()),
    }
    if product is not None:
        claims["the gradient"] = _projections(product, v, u).cpu().flatten()
        units["the gradient"] += float(claims["the gradient"].norm())
    if not any(units.values()) or not all(map(math.isfinite, units.values())):
        return None
    return {
        what: Quotients(claim, units[what], plain=what == "the loss")
        for what, claim in claims.items()
    }


def _differs_along(
    function: Function, point: Params, u: Params, slopes: Params, like: Quotients
) -> bool:
    """Whether the values along another direction show a claim for it to be wrong.

    It is no doubt where they do not agree: the first direction has more steps for that.
    """
    projected = _projections(slopes, u, u).cpu()[:, 0]
    claim = projected.sum().reshape(1)
    check = Quotients(claim, float(projected.norm() + claim.abs()), plain=True)
    check.near, check.rounding, check.fine = like.near, like.rounding, like.fine
    for steps in (ALONG, SMALLEST):
        for step in steps:
            ahead, behind = (
                function(_leaves(add(point, u, sign * step)))[0].detach().double()
                for sign in (1, -1)
            )
            check.add(step, (ahead - behind).cpu().reshape(1) / (2 * step))
        if check.verdict() is not Verdict.DIFFERS:
            return False
    return True


def _is_asymmetric(
    function: Function,
    point: Params,
    given: tuple[Params, Params],
    u: Params,
    rounding: float,
) -> bool:
    """Whether ⟨u, Hv⟩ is not ⟨v, Hu⟩, with (v, Hv) given."""
    v, product = given
    leaves = _leaves(point)
    _, other = _derivatives(function(leaves)[0], leaves, u)
    if other is None:
        return False
    unit = math.hypot(_size(product, u), _size(other, v))
    difference = abs(float(dot(u, product)) - float(dot(v, other)))
    return difference > ASYMMETRY * unit + rounding


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


def _leaves(point: Params) -> Params:
    return {name: tensor.detach().requires_grad_() for name, tensor in point.items()}


def _evaluated(function: Function, point: Params, v: Params, u: Params) -> Params:
    """The value and the gradient's projections, which are all that is kept of it."""
    leaves = _leaves(point)
    value, _ = function(leaves)
    slopes = gradient_of(value, leaves)
    return {
        "the loss": value.detach().double().reshape(1).cpu(),
        "the gradient": _projections(slopes, v, u).cpu().flatten(),
    }


def _derivatives(
    value: Tensor, leaves: Params, v: Params
) -> tuple[Params, Params | None]:
    """The gradient and Hv; None where there are no second derivatives, which others report."""
    try:
        slopes = gradient_of(value, leaves, create_graph=True)
        check_twice_differentiable(slopes.values())
        product = gradient_of(_inner(slopes, v), leaves, keep_graph=True)
        return {name: slope.detach() for name, slope in slopes.items()}, product
    except torch.OutOfMemoryError:
        raise
    # A user's own backward may raise anything where it is to be differentiated.
    except Exception:
        return gradient_of(value, leaves), None


def _inner(slopes: Params, vector: Params) -> Tensor:
    return torch.stack([(slopes[name] * vector[name]).sum() for name in slopes]).sum()


def _projections(vector: Params, v: Params, u: Params) -> Tensor:
    """⟨v, ·⟩ and ⟨u, ·⟩ of each tensor, [tensors, 2]."""
    given = {name: tensor.detach() for name, tensor in vector.items()}
    columns = [[one.sum() for one in multiply(given, w).values()] for w in (v, u)]
    return torch.stack([torch.stack(column) for column in columns], dim=1).double()


def _size(vector: Params, unit: Params) -> float:
    """The norm of the products of entries, which rounding of their sum is measured by."""
    return math.sqrt(sum(float((vector[n] * unit[n]).square().sum()) for n in vector))
