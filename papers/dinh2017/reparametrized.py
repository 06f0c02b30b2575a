"""A network in the coordinates that a radial map makes."""

from __future__ import annotations

import copy

from torch import Tensor, nn
from torch.func import functional_call

from papers.dinh2017.radial_map import RadialMap


class Reparametrized(nn.Module):
    """η ↦ f(g⁻¹(η), x), the ball around the model's own parameters.

    Args:
        model: f, at the centre θ̂ of the ball.
        rhat: r̂, inside which the map is linear.
        delta: δ, outside which it is the identity.
        rho: ρ, the radius that `rhat` is moved to.
    """

    def __init__(self, model: nn.Module, rhat: float, delta: float, rho: float):
        super().__init__()
        self.network = copy.deepcopy(model)
        center = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.radial = RadialMap(center, rhat, delta, rho)

    def forward(self, inputs: Tensor) -> Tensor:
        params = self.radial(dict(self.network.named_parameters()))
        return functional_call(self.network, params, (inputs,))
