"""The Riemannian Hessian under a metric's Levi-Civita connection, whitened.

Rangamani et al. use the flat connection, whose Hessian is G⁻¹∇²f; at a critical point
the two agree, elsewhere the gradient enters. In whitened coordinates neither form
divides by a norm.
"""

from __future__ import annotations

from flatgauge.curvature.operator import Composed, SymmetricOperator
from flatgauge.errors import OptionError
from flatgauge.geometry.metric import LayerMetric, Metric, NodeMetric
from flatgauge.vectors import Params


class LeviCivita(Composed):
    """S H S plus the connection's term, for a layer or a node metric.

    Layer: + Σ_l [W gᵀ + g Wᵀ − ⟨W, g⟩ I]_l, since the metric of one tensor is that of
    the cylinder R × S^{d−1}. Node: + diag(w ∘ g).
    """

    def __init__(
        self,
        hessian: SymmetricOperator,
        metric: Metric,
        point: Params,
        gradient: Params,
    ):
        if not isinstance(metric, LayerMetric | NodeMetric):
            raise OptionError(
                f"the metric '{metric.name}' is flat: use connection='flat' with it."
            )
        super().__init__(metric.whiten(hessian, point))
        self.metric = metric
        self.point = point
        self.gradient = gradient
        self._active = {
            n: bool((s != 0).any()) for n, s in metric.scales(point).items()
        }

    def _apply(self, vectors: list[Params]) -> list[Params]:
        images = self.operator.unchecked(vectors)
        return [
            {name: image[name] + self._bend(name, vector) for name in self.space}
            for image, vector in zip(images, vectors, strict=True)
        ]

    def _bend(self, name: str, vector: Params):
        eta, w, g = vector[name], self.point[name], self.gradient[name]
        if not self._active[name]:
            return eta.new_zeros(eta.shape)
        if isinstance(self.metric, NodeMetric):
            return w * g * eta
        return w * (g * eta).sum() + g * (w * eta).sum() - (w * g).sum() * eta
