"""The largest rise of the loss within a ball of a metric that scales with the point."""

from __future__ import annotations

from typing import Annotated

from flatgauge.measures import effort
from flatgauge.measures.epsilon_sharpness import ball_outcome
from flatgauge.measures.options import Count, Positive, Scaling, Share, at_least
from flatgauge.measures.registry import Outcome, measure
from flatgauge.measures.riemannian_spectral_norm import riemannian_claims
from flatgauge.measures.workbench import Workbench


@measure(
    name="riemannian-sharpness",
    title="Riemannian ε-sharpness",
    formula="max over ‖η‖ ≤ ε of (L(θ+Sη) − L(θ)) / (1 + L(θ)), S = ‖W_l‖ or |w|",
    reference="Rangamani et al. 2019, section 2 (ε-sharpness on the manifold)",
    invariant_to=riemannian_claims,
    flatter="smaller",
    cost="about a hundred gradients",
    effort=effort.of_ball,
)
def riemannian_sharpness(
    work: Workbench,
    *,
    metric: Scaling = "layer",
    epsilon: Positive = 1e-3,
    center_output: bool = False,
    restarts: Annotated[int, at_least(0)] = 2,
    tol: Share = 1e-6,
    steps: Count = 500,
) -> Outcome:
    """The best of several climbs; details: λmax(S H S) ε²/(2(1+L)) as "quadratic".

    A lower bound of the maximum, whose uncertainty is rounding: see epsilon-sharpness.

    Args:
        work: what the measures share.
        metric: "layer" (the norm of each tensor) or "node" (each entry's magnitude).
        epsilon: the radius of the retraction ball, relative to the parameters' sizes.
        center_output: take the mean over classes out of the output layer first.
        restarts: random starts, besides ± the top eigenvector and the gradient.
        tol: the relative projected gradient at which a climb ends, and the relative
            residual of the eigenvalue.
        steps: the most steps of one climb.
    """
    point = work.point(center_output)
    return ball_outcome(work, metric, point, epsilon, restarts, tol, steps)
