"""Losses per row, with their curvature in the space of the model's outputs.

A *row* is what the loss averages over: one sample, or one valid token of a token-level
output (targets of -100 are ignored). With f the outputs of one row (K numbers) and y
its target, a loss gives ℓ(f, y), and factors of its Hessian ∇²_f ℓ, which the
Gauss-Newton matrix and the exact diagonal are built from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flatgauge import noise
from flatgauge.errors import LossError
from flatgauge.shapes import Float, Int

IGNORED = -100


@dataclass(frozen=True)
class Rows:
    """The rows of one batch: outputs [M, K], targets, and the sample each belongs to."""

    outputs: Float[Tensor, "M K"]
    targets: Tensor
    samples: Int[Tensor, " M"]


class Loss(ABC):
    """A loss: what a batch adds to the total, and how many rows it counts for."""

    name: str
    classification: bool
    # The measured rounding of ∇²_f ℓ, as a share of its size; 0 says that of the dtype.
    rounding: float = 0.0
    # The label of rows that are left out, where targets are classes.
    ignored: int = IGNORED

    @abstractmethod
    def total(self, outputs: Any, targets: Any) -> tuple[Tensor, int]:
        """The sum of the rows' losses (differentiable), and the number of rows."""

    @abstractmethod
    def sum(self, outputs: Any, targets: Any) -> Tensor:
        """The same sum for a batch that `total` took before.

        Named losses check nothing here and never wait for the device, so that a pass
        can be recorded.
        """


class ValueLoss(Loss):
    """A loss whose value is known for each row."""

    @abstractmethod
    def rows(self, outputs: Any, targets: Any) -> Rows:
        """Outputs and targets laid out as rows, ignored ones left out."""

    @abstractmethod
    def values(self, rows: Rows) -> Float[Tensor, " M"]:
        """ℓ(f, y) for each row."""

    def total(self, outputs: Any, targets: Any) -> tuple[Tensor, int]:
        """The sum over the rows, and their number."""
        rows = self.rows(outputs, targets)
        return self.values(rows).sum(), rows.outputs.shape[0]


class RowLoss(ValueLoss):
    """A loss that is known row by row, with its curvature.

    `convex` says that ∇²_f ℓ is positive semi-definite, so that all signs are +1.
    """

    convex: bool

    @abstractmethod
    def hessian_columns(
        self, rows: Rows
    ) -> tuple[Float[Tensor, "M K R"], Float[Tensor, "M R"]]:
        """Columns c_r and signs s_r = ±1 with ∇²_f ℓ = Σ_r s_r c_r c_rᵀ, for each row."""

    @abstractmethod
    def hessian_probes(
        self, rows: Rows, random: torch.Generator
    ) -> Iterator[tuple[Float[Tensor, "M K"], Float[Tensor, "M K"] | None]]:
        """Random p and n with E[p pᵀ] − E[n nᵀ] = ∇²_f ℓ (n is None where it is 0).

        They have no end; what they have in common is computed once, before the first.
        """

    @abstractmethod
    def fisher_product(
        self, rows: Rows, vectors: Float[Tensor, "M K"]
    ) -> Float[Tensor, "M K"]:
        """E_{y ~ p(y|f)}[∇_f ℓ ∇_f ℓᵀ] times one vector per row."""

    @abstractmethod
    def sample_targets(self, rows: Rows, random: torch.Generator) -> Rows:
        """The same rows with targets drawn from the model's own p(y|f)."""


def row_loss(loss: Loss, what_needs: str) -> RowLoss:
    """The loss, if it is known row by row; else it is said what needs that."""
    if not isinstance(loss, RowLoss):
        raise LossError(
            f"{what_needs} a loss per row, which '{loss.name}' does not give: use a named "
            "loss."
        )
    return loss


def random_signs(like: Tensor, random: torch.Generator) -> Tensor:
    """Independent ±1 with the shape, dtype and device of `like`."""
    return noise.random_signs(like.numel(), random, like).view(like.shape)
