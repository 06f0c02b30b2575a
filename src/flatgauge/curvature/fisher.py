"""The Fisher information matrix, empirical and true."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce

from flatgauge.curvature.curvature_operator import CurvatureOperator
from flatgauge.curvature.jacobian import sandwich
from flatgauge.curvature.operator import Product
from flatgauge.curvature.routes import Route
from flatgauge.curvature.samples import batch_generator
from flatgauge.data import Batch
from flatgauge.errors import ModelError, OptionError
from flatgauge.losses import RowLoss, row_loss
from flatgauge.objective import Objective
from flatgauge.vectors import add, zeros_like


class Fisher(CurvatureOperator):
    """F = (1/N) Σ_rows E_y[∇ℓ ∇ℓᵀ], with y the data's targets or the model's own.

    Args:
        objective: model, data, loss and the point; the loss is a named one.
        kind: "empirical" takes the targets of the data; "true" takes the expectation
            over y ~ p(y|f), exactly in the space of the outputs.
        samples: for "true": draw this many targets per row instead of the expectation.
        seed: for `samples`.
        memory_budget: bytes of the device that may be in use; the objective's `memory`
            if None.
    """

    name = "Fisher"

    def __init__(
        self,
        objective: Objective,
        kind: str = "empirical",
        *,
        samples: int | None = None,
        seed: int = 0,
        memory_budget: int | None = None,
    ):
        if kind not in ("empirical", "true"):
            raise OptionError(f"kind= is '{kind}': use 'empirical' or 'true'.")
        if samples is not None and (kind == "empirical" or samples < 1):
            raise OptionError(
                "samples= draws targets for kind='true', and must be at least 1."
            )
        loss = row_loss(objective.loss, "the Fisher matrix needs")
        if objective.coupled:
            raise ModelError(
                "the samples of a batch influence each other, so that they have no "
                "gradients of their own: use mode='eval', and a network and loss that "
                "take each sample by itself."
            )
        # Pieces of a batch would draw other targets.
        route = _Rows(loss, kind, samples, seed, cuts=samples is None)
        super().__init__(objective, route, memory_budget=memory_budget)


@dataclass(frozen=True)
class _Rows(Route):
    """F_b v = Σ_rows E_y[∇ℓ ∇ℓᵀ] v, from graphs that serve many vectors."""

    loss: RowLoss
    kind: str
    samples: int | None
    seed: int
    cuts: bool

    name = "rows"
    matrix = "Fisher"
    keeps = True

    def prepare(self, objective: Objective, batch: Batch) -> Product:
        """Differentiate once and keep the graph."""
        point, loss = objective.leaves(), self.loss
        rows = loss.rows(*objective.evaluate(point, batch))
        if self.kind == "empirical":
            return sandwich(loss.values(rows), point, lambda change: change)
        if self.samples is None:
            mean = partial(loss.fisher_product, rows)
            return sandwich(rows.outputs, point, mean)
        share = 1 / self.samples
        random = batch_generator(self.seed, batch)
        targets = [loss.sample_targets(rows, random) for _ in range(self.samples)]
        drawn = [
            sandwich(loss.values(one), point, lambda change: change * share)
            for one in targets
        ]
        nothing = zeros_like(point)
        return lambda vector: reduce(add, (one(vector) for one in drawn), nothing)
