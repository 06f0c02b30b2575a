"""The power method of Rangamani et al., with a stopping rule that can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.curvature.operator import SymmetricOperator, rounding_of
from flatgauge.deadline import OutOfTime
from flatgauge.errors import OptionError
from flatgauge.results import Status
from flatgauge.solvers.krylov import random_start, require_finite
from flatgauge.vectors import Params, generator, unravel


@dataclass(frozen=True)
class PowerIteration:
    """What the power method found.

    Attributes:
        value: the largest algebraic eigenvalue if the status is CONVERGED, else the
            last Rayleigh quotient.
        vector: the unit vector of that Rayleigh quotient.
        residual: ||A v - value v||.
        dominant: the eigenvalue of largest magnitude, NaN if it was not settled.
        shift: what was added to the diagonal to reach the largest eigenvalue.
        status: whether both the change and the residual met the tolerance.
        message: what happened, and what to raise if they did not.
        products: the number of products with the operator.
        quotients: the Rayleigh quotients v^T A v, step by step.
        changes: min(||v' - v||, ||v' + v||), step by step.
    """

    value: float
    vector: Params
    residual: float
    dominant: float
    shift: float
    status: Status
    message: str
    products: int
    quotients: list[float]
    changes: list[float]


@dataclass
class _Phase:
    """The iteration with one shift, until it settles or the products are used up."""

    vector: Tensor
    shift: float
    outcome: str = "unsettled"
    stopped: OutOfTime | None = None
    residual: float = math.inf
    magnitude: float = 0.0
    quotients: list[float] = field(default_factory=list)
    changes: list[float] = field(default_factory=list)


def power_method(
    operator: SymmetricOperator,
    tol: float = 1e-3,
    max_steps: int = 1000,
    seed: int = 0,
    shift: bool = True,
) -> PowerIteration:
    """The largest algebraic eigenvalue by v <- A v / ||A v||.

    This is Algorithm 1 of Rangamani et al. 2019 in the whitened space, where their
    metric is the Euclidean one. As printed it converges to the eigenvalue of largest
    *magnitude*, and where that is negative its iterates alternate in sign, so that
    ||v' - v|| never falls. Here the change is min(||v' - v||, ||v' + v||), and the
    residual ||A v - theta v|| must meet tol |theta| too. If the dominant eigenvalue is
    negative, or if two of opposite sign share the largest magnitude (A A v is parallel
    to v, but A v is not), the method starts again with A + c, c being that magnitude.

    Args:
        operator: the symmetric operator A.
        tol: on the change and on the relative residual.
        max_steps: the most products to use, in both phases together.
        seed: of the Gaussian start vectors.
        shift: whether to shift; without it negative dominant curvature is reported as
            not converged.

    Returns:
        A `PowerIteration`.

    Raises:
        OptionError: if tol or max_steps is not positive.
        NonFiniteError: if a product is NaN or infinite.

    >>> import torch
    >>> from flatgauge.curvature.operator import DenseOperator
    >>> A = DenseOperator(torch.diag(torch.tensor([-5.0, 1.0, 3.0]).double()))
    >>> found = power_method(A)
    >>> round(found.value, 4), round(found.dominant, 4)
    (3.0, -5.0)
    """
    if not tol > 0 or max_steps < 1:
        raise OptionError(
            f"tol={tol:g} and max_steps={max_steps} were given: both must be positive."
        )
    random = generator(seed)
    plain = _Phase(_unit(random_start(operator, random)), shift=0.0)
    _iterate(operator, plain, tol, max_steps)
    value = plain.quotients[-1]
    negative = plain.outcome == "settled" and value < 0
    dominant = value if plain.outcome == "settled" else math.nan
    last, used = plain, len(plain.quotients)
    quotients, changes = plain.quotients, plain.changes
    if shift and (negative or plain.outcome == "tied") and used < max_steps:
        last = _Phase(_unit(random_start(operator, random)), plain.magnitude)
        _iterate(operator, last, tol, max_steps - used)
        quotients, changes = quotients + last.quotients, changes + last.changes
    status, message = _verdict(last, negative, tol, max_steps, operator.rounding)
    return PowerIteration(
        value=last.quotients[-1],
        vector=unravel(last.vector, operator.space),
        residual=last.residual,
        dominant=dominant,
        shift=last.shift,
        status=status,
        message=message,
        products=len(quotients),
        quotients=quotients,
        changes=changes,
    )


def _iterate(
    operator: SymmetricOperator, phase: _Phase, tol: float, max_steps: int
) -> None:
    vector, before = phase.vector, phase.vector
    rounding = rounding_of(vector.dtype)
    for step in range(max_steps):
        try:
            image = operator.multiply_flat(vector[:, None])[:, 0]
        except OutOfTime as stop:
            if not step:
                raise
            phase.stopped = stop
            return
        quotient = torch.dot(vector.double(), image.double())
        residual = (image.double() - quotient * vector.double()).norm()
        shifted = image + phase.shift * vector
        size = shifted.double().norm()
        following = shifted / size.clamp(min=torch.finfo(vector.dtype).tiny)
        moved, moved_twice = _change(following, vector), _change(following, before)
        numbers = torch.stack([quotient, residual, size, moved, moved_twice]).tolist()
        require_finite(numbers)
        theta, left, magnitude, change, change_of_two = numbers
        phase.vector, phase.residual, phase.magnitude = vector, left, magnitude
        phase.quotients.append(theta)
        phase.changes.append(change)
        deadline.usable()
        # Rounding in a shifted iteration is relative to the shift, not to theta.
        allowed = max(tol * abs(theta), rounding * phase.shift)
        if magnitude == 0.0 or (change <= tol and left <= allowed):
            phase.outcome = "settled"
            return
        if step and change > tol and change_of_two <= tol * change:
            phase.outcome = "tied"
            return
        before, vector = vector, following


def _change(following: Tensor, vector: Tensor) -> Tensor:
    new, old = following.double(), vector.double()
    return torch.minimum((new - old).norm(), (new + old).norm())


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.double().norm()


def _verdict(
    phase: _Phase, negative: bool, tol: float, max_steps: int, rounding: float
) -> tuple[Status, str]:
    theta = phase.quotients[-1]
    floor = rounding * max(abs(theta), phase.shift)
    allowed, zero = tol * abs(theta), abs(theta) <= floor
    settled = phase.outcome == "settled" and (phase.shift > 0 or not negative)
    if settled and not zero and max(phase.residual, floor) > allowed:
        return Status.NOT_CONVERGED, (
            f"The tolerance {tol:g} is below the rounding error of the products, "
            f"{floor:.3g}: use float64 or precision='ieee', or raise tol."
        )
    if settled:
        return Status.CONVERGED, f"Change and residual met the tolerance {tol:g}."
    if phase.outcome == "settled":
        return Status.NOT_CONVERGED, (
            f"The dominant curvature is negative, {theta:.6g}, so the power method "
            "cannot reach the largest eigenvalue: use shift=True with enough "
            "max_steps, or Lanczos."
        )
    if phase.outcome == "tied":
        return Status.NOT_CONVERGED, (
            f"Two eigenvalues near {phase.magnitude:.6g} and {-phase.magnitude:.6g} "
            "share the largest magnitude: use shift=True with enough max_steps, or "
            "Lanczos."
        )
    if phase.stopped is not None:
        message = phase.stopped.after_products(len(phase.quotients))
        return Status.NOT_CONVERGED, message
    return Status.NOT_CONVERGED, (
        f"A change of {phase.changes[-1]:.3g} was left after max_steps={max_steps} "
        f"products where {tol:g} was asked for: raise max_steps or tol, or use Lanczos."
    )
