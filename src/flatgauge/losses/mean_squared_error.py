"""Mean squared error."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flatgauge.errors import LossError
from flatgauge.losses.loss import RowLoss, Rows, random_signs
from flatgauge.noise import standard_normal
from flatgauge.shapes import Float


@dataclass(frozen=True)
class MeanSquaredError(RowLoss):
    """ℓ = mean_k (f_k − y_k)², with ∇²_f ℓ = 2/K · I.

    As a likelihood this is a Gaussian of variance K/2, which the true Fisher uses.
    """

    name = "mse"
    classification = False
    convex = True

    def rows(self, outputs: Any, targets: Any) -> Rows:
        """Outputs and targets of equal shape ([B, 1] and [B] count as equal)."""
        fits = isinstance(outputs, Tensor) and isinstance(targets, Tensor)
        if fits and outputs.shape == (*targets.shape, 1):
            targets = targets[..., None]
        if not fits or outputs.shape != targets.shape or outputs.ndim == 0:
            shapes = [
                tuple(value.shape)
                if isinstance(value, Tensor)
                else type(value).__name__
                for value in (outputs, targets)
            ]
            raise LossError(
                f"the squared error needs targets of the outputs' shape, but outputs are "
                f"{shapes[0]} and targets {shapes[1]}: reshape one of them."
            )
        if outputs.is_complex() or targets.is_complex():
            raise LossError(
                "the squared error is of real numbers, but outputs or targets are complex: "
                "use torch.view_as_real, or pass a callable loss."
            )
        count = outputs.shape[0]
        return Rows(
            outputs.reshape(count, -1),
            targets.reshape(count, -1).to(outputs.dtype),
            torch.arange(count, device=outputs.device),
        )

    def values(self, rows: Rows) -> Float[Tensor, " M"]:
        """mean_k (f_k − y_k)²."""
        return (rows.outputs - rows.targets).square().mean(-1)

    def sum(self, outputs: Any, targets: Any) -> Tensor:
        """The sum over the samples."""
        return self.values(self.rows(outputs, targets)).sum()

    def hessian_columns(
        self, rows: Rows
    ) -> tuple[Float[Tensor, "M K R"], Float[Tensor, "M R"]]:
        """√(2/K) times the unit vectors."""
        ones = torch.ones_like(rows.outputs.detach())
        return torch.diag_embed(ones * self._root(ones)), ones

    def hessian_probes(
        self, rows: Rows, random: torch.Generator
    ) -> Iterator[tuple[Float[Tensor, "M K"], Float[Tensor, "M K"] | None]]:
        """√(2/K) times random signs."""
        while True:
            signs = random_signs(rows.outputs.detach(), random)
            yield signs * self._root(signs), None

    def fisher_product(
        self, rows: Rows, vectors: Float[Tensor, "M K"]
    ) -> Float[Tensor, "M K"]:
        """2/K · v."""
        return vectors * self._root(vectors) ** 2

    def sample_targets(self, rows: Rows, random: torch.Generator) -> Rows:
        """The outputs f plus Gaussian noise of variance K/2."""
        f = rows.outputs.detach()
        noise = standard_normal(f.numel(), random, f).view(f.shape)
        return Rows(rows.outputs, f + noise / self._root(f), rows.samples)

    def _root(self, like: Tensor) -> float:
        return math.sqrt(2 / like.shape[-1])
