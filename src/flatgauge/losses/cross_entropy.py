"""Cross-entropy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flatgauge.losses.classes import (
    class_rows,
    cross_entropies,
    flatten_classes,
    sample_classes,
    softmax_columns,
    softmax_covariance,
    softmax_probes,
)
from flatgauge.losses.loss import RowLoss, Rows
from flatgauge.shapes import Float


@dataclass(frozen=True)
class CrossEntropy(RowLoss):
    """ℓ = −ln softmax(f)_y, with ∇²_f ℓ = diag(p) − p pᵀ."""

    name = "cross-entropy"
    classification = True
    convex = True

    def rows(self, outputs: Any, targets: Any) -> Rows:
        """Class scores and integer targets, -100 left out."""
        return class_rows(outputs, targets)

    def values(self, rows: Rows) -> Float[Tensor, " M"]:
        """−ln softmax(f)_y."""
        return cross_entropies(rows.outputs, rows.targets)

    def sum(self, outputs: Any, targets: Any) -> Tensor:
        """The sum over the targets that are not ignored."""
        return cross_entropies(*flatten_classes(outputs, targets)).sum()

    def hessian_columns(
        self, rows: Rows
    ) -> tuple[Float[Tensor, "M K R"], Float[Tensor, "M R"]]:
        """The columns of S = diag(√p) − p √pᵀ, for which S Sᵀ = diag(p) − p pᵀ."""
        p = rows.outputs.detach().softmax(-1)
        return softmax_columns(p), torch.ones_like(p)

    def hessian_probes(
        self, rows: Rows, random: torch.Generator
    ) -> Iterator[tuple[Float[Tensor, "M K"], Float[Tensor, "M K"] | None]]:
        """S u with u = ±1, without forming S."""
        for probe in softmax_probes(rows.outputs.detach().softmax(-1), random):
            yield probe, None

    def fisher_product(
        self, rows: Rows, vectors: Float[Tensor, "M K"]
    ) -> Float[Tensor, "M K"]:
        """(diag(p) − p pᵀ) v: for this loss the Fisher matrix is the Hessian."""
        return softmax_covariance(rows.outputs.detach().softmax(-1), vectors)

    def sample_targets(self, rows: Rows, random: torch.Generator) -> Rows:
        """Classes drawn from softmax(f)."""
        return sample_classes(rows, rows.outputs.detach().softmax(-1), random)
