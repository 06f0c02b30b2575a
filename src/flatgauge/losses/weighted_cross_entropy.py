"""Cross-entropy with class weights, label smoothing or another ignored label."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from flatgauge.losses.classes import (
    class_rows,
    cross_entropies,
    flatten_classes,
    sample_classes,
    softmax_columns,
    softmax_probes,
)
from flatgauge.losses.loss import IGNORED, RowLoss, Rows
from flatgauge.shapes import Float

# Class weights that a name spells out.
SPELLED = 6


@dataclass(frozen=True)
class WeightedCrossEntropy(RowLoss):
    """Torch's cross-entropy with its settings, row by row.

    With w the class weights (1 if there are none) and ε the smoothing, the target of a
    row of class y is q = (1 − ε) w_y e_y + (ε / K) w, and with s = Σ_c q_c

        ℓ = −c Σ_k q_k ln softmax(f)_k,  ∇_f ℓ = c (s p − q),  ∇²_f ℓ = c s (diag p − ppᵀ).

    Torch's mean divides by Σ w_y over the rows, ours by their number: `share`, the number
    of rows over Σ w_y on all the data, is the factor c that makes both the same, and
    `function` is what was recognised, for other data.
    """

    weights: tuple[float, ...] | None = None
    label_smoothing: float = 0.0
    ignored: int = IGNORED
    share: float = 1.0
    function: Callable[..., Tensor] | None = field(
        default=None, compare=False, repr=False
    )

    classification = True
    convex = True

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The loss with what was set, so that other settings are another loss."""
        said = []
        if self.weights is not None:
            said.append(f"class weights {_spelled(self.weights)}")
        if self.label_smoothing:
            said.append(f"label smoothing {self.label_smoothing:g}")
        if self.ignored != IGNORED:
            said.append(f"label {self.ignored} ignored")
        return f"cross-entropy ({', '.join(said)})" if said else "cross-entropy"

    def rows(self, outputs: Any, targets: Any) -> Rows:
        """Class scores and integer targets, ignored ones left out."""
        return class_rows(outputs, targets, self.ignored)

    def values(self, rows: Rows) -> Float[Tensor, " M"]:
        """−c Σ_k q_k ln softmax(f)_k."""
        return self._values(rows.outputs, rows.targets)

    def sum(self, outputs: Any, targets: Any) -> Tensor:
        """The sum over the targets that are not ignored."""
        return self._values(*flatten_classes(outputs, targets, self.ignored)).sum()

    def hessian_columns(
        self, rows: Rows
    ) -> tuple[Float[Tensor, "M K R"], Float[Tensor, "M R"]]:
        """√(c s) times the columns of diag(√p) − p √pᵀ."""
        p = rows.outputs.detach().softmax(-1)
        return softmax_columns(p) * self._root(rows)[..., None], torch.ones_like(p)

    def hessian_probes(
        self, rows: Rows, random: torch.Generator
    ) -> Iterator[tuple[Float[Tensor, "M K"], Float[Tensor, "M K"] | None]]:
        """√(c s) S u with u = ±1."""
        root = self._root(rows)
        for probe in softmax_probes(rows.outputs.detach().softmax(-1), random):
            yield probe * root, None

    def fisher_product(
        self, rows: Rows, vectors: Float[Tensor, "M K"]
    ) -> Float[Tensor, "M K"]:
        """Σ_y p_y g_y ⟨g_y, v⟩ with g_y = c (s_y p − q_y)."""
        p = rows.outputs.detach().softmax(-1)
        own, every, sizes = self._targets(p)
        slopes = sizes * (p * vectors).sum(-1, keepdim=True)
        slopes = p * (slopes - own * vectors - (every * vectors).sum(-1, keepdim=True))
        found = p * (slopes * sizes).sum(-1, keepdim=True) - own * slopes
        found = found - every * slopes.sum(-1, keepdim=True)
        return self.share**2 * found

    def sample_targets(self, rows: Rows, random: torch.Generator) -> Rows:
        """Classes drawn from softmax(f)."""
        return sample_classes(rows, rows.outputs.detach().softmax(-1), random)

    def _values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """In the form s (−ln p_y) + Σ_k q_k (f_y − f_k), which is precise for sure samples."""
        _, every, sizes = self._targets(scores)
        safe = labels.clamp_min(0)
        own = scores.gather(1, safe[:, None])
        behind = torch.where(labels != IGNORED, (every * (own - scores)).sum(1), 0.0)
        return self.share * (sizes[safe] * cross_entropies(scores, labels) + behind)

    def _root(self, rows: Rows) -> Tensor:
        _, _, sizes = self._targets(rows.outputs)
        return (self.share * sizes[rows.targets]).sqrt()[:, None]

    def _targets(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(1 − ε) w, (ε / K) w, and s for each class."""
        classes, smooth = like.shape[-1], self.label_smoothing
        weights = _on_device(self.weights or (1.0,) * classes, like.dtype, like.device)
        own, every = (1 - smooth) * weights, smooth / classes * weights
        return own, every, own + every.sum()


@cache
def _on_device(
    weights: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Copied once: a pass that is recorded copies nothing."""
    return torch.tensor(weights, dtype=dtype, device=device)


def _spelled(weights: tuple[float, ...]) -> str:
    if len(weights) <= SPELLED:
        return ", ".join(f"{one:g}" for one in weights)
    digest = hashlib.sha256(repr(weights).encode()).hexdigest()[:8]
    return f"of {len(weights)} classes, {digest}"
