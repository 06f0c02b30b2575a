"""The diagonal by differences of gradients: Tsuzuku et al. 2019, Algorithm 1."""

from __future__ import annotations

from torch import Tensor

from flatgauge.data import Batch
from flatgauge.diagonals.moments import Estimate, Moments
from flatgauge.objective import Objective
from flatgauge.vectors import gaussian, generator, gradient_of


def finite_difference_diagonal(
    objective: Objective, probes: int, seed: int, relative_step: float
) -> Estimate:
    """ĥ_l = ε ∘ [∇_l L(θ + r_l ε) − ∇_l L(θ − r_l ε)] / (2 r_l), tensor by tensor.

    Tsuzuku et al. 2019, equations 60 and 61, with Gaussian ε on one tensor l at a time
    and r_l = `relative_step` times its root mean square, which makes the estimate
    equivariant under rescaled layers. On networks with kinks it is the diagonal of the
    Hessian of a smoothed loss, not of L.
    """
    space = objective.parameters
    random = generator(seed)

    def slope(name: str, moved: Tensor) -> Tensor:
        def term(batch: Batch) -> Tensor:
            leaf = {name: moved.detach().requires_grad_()}
            value = objective.batch_total({**space, **leaf}, batch)
            return gradient_of(value, leaf)[name]

        return objective.sum(term) / objective.sample_count

    def entries(name: str, direction: Tensor) -> Tensor:
        tensor = space[name]
        step = relative_step * (float(tensor.square().mean().sqrt()) or 1.0)
        above = slope(name, tensor + step * direction)
        below = slope(name, tensor - step * direction)
        return direction * (above - below) / (2 * step)

    moments = Moments(space)
    for _ in range(probes):
        drawn = gaussian(space, random)
        moments.add({name: entries(name, drawn[name]) for name in space})
    return moments.estimate()
