"""Metrics G = S⁻² on parameter space, each given by its S.

We never divide by a norm: lengths are measured in whitened coordinates η, with
ξ = S η, in which a curvature A reads S A S. A tensor that is zero has S = 0 and simply
drops out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from flatgauge.curvature.operator import Scaled, SymmetricOperator
from flatgauge.errors import OptionError
from flatgauge.vectors import Params, map_tensors


class Metric(ABC):
    """A diagonal metric that depends on the point θ."""

    name: str

    @abstractmethod
    def scales(self, point: Params) -> Params:
        """S(θ), entry by entry."""

    def whiten(self, operator: SymmetricOperator, point: Params) -> SymmetricOperator:
        """S A S: the operator A in whitened coordinates."""
        return Scaled(operator, self.scales(point))


class Euclidean(Metric):
    """S = 1: the metric of plain sharpness, which no rescaling leaves alone."""

    name = "euclidean"

    def scales(self, point: Params) -> Params:
        """Ones."""
        return map_tensors(torch.ones_like, point)

    def whiten(self, operator: SymmetricOperator, point: Params) -> SymmetricOperator:
        """A itself."""
        return operator


class LayerMetric(Metric):
    """g(ξ, ξ) = Σ_l |ξ_l|² / |W_l|² over tensors l (Rangamani et al. 2019, section 2)."""

    name = "layer"

    def scales(self, point: Params) -> Params:
        """The norm of each tensor, at each of its entries."""
        return map_tensors(lambda tensor: tensor.norm().expand_as(tensor), point)


class NodeMetric(Metric):
    """g(ξ, ξ) = Σ_i ξ_i² / w_i² over entries i (section 6 of the same paper)."""

    name = "node"

    def scales(self, point: Params) -> Params:
        """|w|."""
        return map_tensors(torch.abs, point)


METRICS: dict[str, type[Metric]] = {
    metric.name: metric for metric in (Euclidean, LayerMetric, NodeMetric)
}


def resolve_metric(name: str) -> Metric:
    """A metric from its name: "euclidean", "layer" or "node".

    >>> import torch
    >>> resolve_metric("layer").scales({"w": torch.tensor([3.0, 4.0])})["w"]
    tensor([5., 5.])
    """
    if name not in METRICS:
        known = ", ".join(f"'{metric}'" for metric in METRICS)
        raise OptionError(f"the metric '{name}' is not known: use {known}.")
    return METRICS[name]()
