"""Normalized cross-entropy (Tsuzuku et al. 2019, section 5.4)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flatgauge.errors import LossError
from flatgauge.losses.classes import (
    class_rows,
    flatten_classes,
    sample_classes,
    softmax_covariance,
    softmax_matrix,
    softmax_probes,
)
from flatgauge.losses.loss import IGNORED, RowLoss, Rows, random_signs
from flatgauge.shapes import Float


@dataclass(frozen=True)
class NormalizedCrossEntropy(RowLoss):
    """Cross-entropy of z = (f − mean f) / std f, which no rescaling of f can change.

    The standard deviation has the factor 1/K (Tsuzuku et al. 2019, equations 20 to 22).
    With p = softmax(z), a = p − e_y, s = std f and P = I − 11ᵀ/K − zzᵀ/K (a projector),
    g = ∇_f ℓ = P a / s and
    ∇²_f ℓ = [P (diag p − ppᵀ) P − (z·a/K) P] / s² − (g zᵀ + z gᵀ) / (K s).
    """

    ignored: int = IGNORED

    name = "normalized-cross-entropy"
    classification = True
    convex = False

    def rows(self, outputs: Any, targets: Any) -> Rows:
        """Class scores and integer targets; K ≥ 3 and no row with equal scores."""
        rows = class_rows(outputs, targets, self.ignored)
        if rows.outputs.shape[1] < 3:
            raise LossError(
                f"the normalized cross-entropy is piecewise constant for "
                f"{rows.outputs.shape[1]} classes, so its curvature says nothing: use "
                "loss='cross-entropy'."
            )
        spread = rows.outputs.detach()
        equal = (spread == spread[:, :1]).all(dim=1)
        if bool(equal.any()):
            raise LossError(
                f"the normalized cross-entropy is not defined where all class scores are "
                f"equal, as in {int(equal.sum())} of {equal.numel()} rows of a batch (a "
                "dead last layer?): leave these samples out or use loss='cross-entropy'."
            )
        return rows

    def values(self, rows: Rows) -> Float[Tensor, " M"]:
        """−ln softmax(f / std f)_y."""
        return F.cross_entropy(
            _normalized(rows.outputs), rows.targets, reduction="none"
        )

    def sum(self, outputs: Any, targets: Any) -> Tensor:
        """The sum over the targets that are not ignored."""
        scores, labels = flatten_classes(outputs, targets, self.ignored)
        # An ignored row may have equal scores, whose normalization has no derivative.
        spread = torch.arange(
            scores.shape[-1], dtype=scores.dtype, device=scores.device
        )
        z = _normalized(torch.where((labels == IGNORED)[:, None], spread, scores))
        return F.cross_entropy(z, labels, ignore_index=IGNORED, reduction="sum")

    def _parts(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """z, p, s and a for each row."""
        f = rows.outputs.detach()
        centred = f - f.mean(-1, keepdim=True)
        s = centred.square().mean(-1, keepdim=True).sqrt()
        z = centred / s
        p = z.softmax(-1)
        a = p - F.one_hot(rows.targets, p.shape[-1]).to(p.dtype)
        return z, p, s, a

    def hessian_columns(
        self, rows: Rows
    ) -> tuple[Float[Tensor, "M K R"], Float[Tensor, "M R"]]:
        """Eigenvectors times √|eigenvalue| of the closed form (it is indefinite)."""
        z, p, s, a = self._parts(rows)
        classes = p.shape[-1]
        identity = torch.eye(classes, dtype=p.dtype, device=p.device)
        projector = identity - 1 / classes - z[:, :, None] * z[:, None, :] / classes
        covariance = softmax_matrix(p)
        gradient = _project(z, a) / s
        lean = (z * a).sum(-1)[:, None, None] / classes
        cross = gradient[:, :, None] * z[:, None, :]
        deviation = s[:, :, None]
        hessian = (projector @ covariance @ projector - lean * projector) / deviation**2
        hessian = hessian - (cross + cross.mT) / (classes * deviation)
        eigenvalues, eigenvectors = torch.linalg.eigh(hessian)
        columns = eigenvectors * eigenvalues.abs().sqrt()[:, None, :]
        return columns, torch.where(eigenvalues < 0, -1.0, 1.0).to(p.dtype)

    def hessian_probes(
        self, rows: Rows, random: torch.Generator
    ) -> Iterator[tuple[Float[Tensor, "M K"], Float[Tensor, "M K"] | None]]:
        """Independent signs on the positive and on the negative eigenspace.

        Above 256 classes the closed form's own terms are used, which needs no
        eigenvectors: P S / s, ± P and the two directions of g zᵀ + z gᵀ.
        """
        if rows.outputs.shape[-1] > 256:
            yield from self._probes_of_terms(rows, random)
        columns, signs = self.hessian_columns(rows)
        while True:
            u = random_signs(signs, random)
            plus = (columns * (u * (signs > 0))[:, None, :]).sum(-1)
            minus = (columns * (u * (signs < 0))[:, None, :]).sum(-1)
            yield plus, minus

    def _probes_of_terms(
        self, rows: Rows, random: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        z, p, s, a = self._parts(rows)
        classes = p.shape[-1]
        lean = -(z * a).sum(-1, keepdim=True) / classes
        above, below = lean.clamp_min(0).sqrt(), (-lean).clamp_min(0).sqrt() / s
        gradient = _project(z, a) / s
        del a
        length = gradient.norm(dim=-1, keepdim=True)
        unit = gradient / length.clamp_min(torch.finfo(p.dtype).tiny)
        weight = (length / (math.sqrt(classes) * s)).sqrt() / math.sqrt(2)
        axis = z / math.sqrt(classes)
        ahead, behind = weight * (unit - axis), weight * (unit + axis)
        del gradient, unit, axis
        for root in softmax_probes(p, random):
            flat = random_signs(p, random)
            plus = _project(z, root.addcmul_(above, flat)).div_(s)
            plus.addcmul_(ahead, random_signs(length, random))
            minus = _project(z, flat).mul_(below)
            minus.addcmul_(behind, random_signs(length, random))
            yield plus, minus

    def fisher_product(
        self, rows: Rows, vectors: Float[Tensor, "M K"]
    ) -> Float[Tensor, "M K"]:
        """P (diag p − ppᵀ) P v / s²."""
        z, p, s, _ = self._parts(rows)
        return _project(z, softmax_covariance(p, _project(z, vectors))) / s**2

    def sample_targets(self, rows: Rows, random: torch.Generator) -> Rows:
        """Classes drawn from softmax(z)."""
        return sample_classes(rows, self._parts(rows)[1], random)


def _normalized(f: Tensor) -> Tensor:
    """The scores z = (f − mean f) / std f."""
    # As a layer norm its graph keeps fewer tensors of this size. On a CPU that loses digits
    # to what all scores have in common.
    return F.layer_norm(f - f.mean(-1, keepdim=True), f.shape[-1:], eps=0.0)


def _project(z: Tensor, v: Tensor) -> Tensor:
    """P v with P = I − 11ᵀ/K − zzᵀ/K."""
    along = (z * v).mean(-1, keepdim=True)
    return (v - v.mean(-1, keepdim=True)).addcmul_(z, along, value=-1)
