"""Dinh's radial transformations: a change of coordinates that re-ranks minima.

Dinh et al. (2017), supplement A. The map moves only the points of one ball, is linear
near its centre, and there multiplies the Hessian of any loss by a factor of one's
choice. No measure of flatness that uses Euclidean coordinates can survive it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from flatgauge.errors import OptionError
from flatgauge.shapes import Float
from flatgauge.vectors import Params, add, check_like, dot, ravel, scale, size

Value = TypeVar("Value")


def psi(
    radius: Float[Tensor, "*shape"], rhat: float, delta: float, rho: float
) -> Float[Tensor, "*shape"]:
    r"""The radial profile: piecewise linear through (0, 0), (r̂, ρ) and (δ, δ).

    $$ψ(r) = ρ r / r̂ \;(r \le r̂), \quad
      (ρ-δ)\frac{r-δ}{r̂-δ} + δ \;(r̂ < r \le δ), \quad r \;(r > δ)$$

    Its inverse is ψ with ρ and r̂ swapped.

    Args:
        radius: distances r from the centre.
        rhat: r̂, the radius that is moved to `rho`; between 0 and `delta`.
        delta: δ, the radius beyond which nothing moves.
        rho: ρ, between 0 and `delta`.

    Raises:
        OptionError: unless 0 < r̂ < δ and 0 < ρ < δ.
    """
    _check_radii(rhat, delta, rho)
    inner = rho * radius / rhat
    middle = (rho - delta) * (radius - delta) / (rhat - delta) + delta
    outside = torch.where(radius <= delta, middle, radius)
    return torch.where(radius <= rhat, inner, outside)


def psi_derivative(
    radius: Float[Tensor, "*shape"], rhat: float, delta: float, rho: float
) -> Float[Tensor, "*shape"]:
    """The slope ψ' of the radial profile, from the left at its two kinks.

    Raises:
        OptionError: unless 0 < r̂ < δ and 0 < ρ < δ.
    """
    _check_radii(rhat, delta, rho)
    one = torch.ones_like(radius)
    outside = torch.where(radius <= delta, one * (rho - delta) / (rhat - delta), one)
    return torch.where(radius <= rhat, one * rho / rhat, outside)


@dataclass(frozen=True)
class RadialMap:
    r"""The map g⁻¹(θ) = θ̂ + ψ(r)/r · (θ - θ̂), r = ‖θ - θ̂‖, on named vectors.

    In the coordinates η = g(θ) a loss L becomes L ∘ g⁻¹, whose Hessian at the centre is
    (ρ/r̂)² times that of L: sharper for ρ > r̂, flatter for ρ < r̂.

    Args:
        center: θ̂.
        rhat: r̂, the radius of the ball on which the map is linear.
        delta: δ, the radius beyond which it is the identity.
        rho: ρ, the radius that `rhat` is moved to.

    Raises:
        OptionError: unless 0 < r̂ < δ and 0 < ρ < δ.
    """

    center: Params
    rhat: float
    delta: float
    rho: float

    def __post_init__(self) -> None:
        _check_radii(self.rhat, self.delta, self.rho)

    def __call__(self, params: Params) -> Params:
        """g⁻¹ of `params`, differentiable everywhere but at r = r̂ and r = δ."""
        displacement = self._displacement(params)
        squared = dot(displacement, displacement)
        # The ratio ψ/r is constant inside r̂, so the square root is never taken at 0.
        inside = squared <= self.rhat**2
        radius = torch.where(inside, self.rhat**2, squared).sqrt()
        profile = psi(radius, self.rhat, self.delta, self.rho)
        factor = torch.where(inside, self.rho / self.rhat, profile / radius)
        return add(self.center, scale(displacement, factor))

    def inverse(self) -> RadialMap:
        """g: the same map with ρ and r̂ swapped."""
        return RadialMap(self.center, self.rho, self.delta, self.rhat)

    def compose(self, loss: Callable[[Params], Value]) -> Callable[[Params], Value]:
        """L ∘ g⁻¹ for a loss L of named vectors."""
        return lambda params: loss(self(params))

    def jacobian(self, params: Params) -> Float[Tensor, "n n"]:
        r"""The dense derivative of g⁻¹ at `params`, in the order of `ravel`.

        $$J = ψ'(r) I + \frac{b}{r} I - \frac{b}{r^3} v v^T, \qquad
          b = \frac{δ(r̂-ρ)}{r̂-δ},$$

        with v = θ - θ̂, the terms in b only for r̂ < r ≤ δ. (v vᵀ is the outer product:
        the paper writes vectors as rows.)
        """
        flat = ravel(self._displacement(params)).detach()
        radius = flat.norm()
        identity = torch.eye(flat.numel(), dtype=flat.dtype, device=flat.device)
        slope = psi_derivative(radius, self.rhat, self.delta, self.rho)
        if not self.rhat < float(radius) <= self.delta:
            return slope * identity
        offset = self.delta * (self.rhat - self.rho) / (self.rhat - self.delta)
        direction = flat / radius
        return slope * identity + (offset / radius) * (
            identity - torch.outer(direction, direction)
        )

    def log_determinant(self, params: Params) -> float:
        """The logarithm of det J = ψ'(r) (ψ(r)/r)ⁿ⁻¹."""
        radius = ravel(self._displacement(params)).detach().double().norm()
        slope = float(psi_derivative(radius, self.rhat, self.delta, self.rho))
        profile = psi(radius, self.rhat, self.delta, self.rho)
        inside = float(radius) <= self.rhat
        ratio = self.rho / self.rhat if inside else float(profile / radius)
        return math.log(slope) + (size(params) - 1) * math.log(ratio)

    def determinant(self, params: Params) -> float:
        """The determinant of J; infinite where only its logarithm fits into a float."""
        logarithm = self.log_determinant(params)
        return math.exp(logarithm) if logarithm < 709 else math.inf

    def _displacement(self, params: Params) -> Params:
        return add(check_like(params, self.center), self.center, -1.0)


def _check_radii(rhat: float, delta: float, rho: float) -> None:
    if not (0 < rhat < delta and 0 < rho < delta):
        raise OptionError(
            f"a radial map needs 0 < rhat < delta and 0 < rho < delta, but rhat={rhat}, "
            f"delta={delta} and rho={rho} were given."
        )
