"""Class scores as rows, and the algebra of the softmax that both losses share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flatgauge.errors import LossError
from flatgauge.losses.loss import IGNORED, Rows, random_signs
from flatgauge.noise import standard_normal


def class_rows(outputs: Any, targets: Any, ignored: int = IGNORED) -> Rows:
    """Class scores [..., K] or [B, K, ...] with integer targets, as rows.

    Those with the label `ignored` are left out.
    """
    if not isinstance(outputs, Tensor) or outputs.ndim < 2:
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs)
        raise LossError(
            f"a classification loss needs outputs of shape [batch, classes], but the "
            f"model returned {shape}: pass forward= to pick the class scores."
        )
    if not isinstance(targets, Tensor) or targets.is_floating_point():
        raise LossError(
            "a classification loss needs integer class targets: convert them, or pass "
            "a callable loss for soft labels or regression."
        )
    last = outputs.shape[:-1] == targets.shape
    second = outputs.shape[:1] + outputs.shape[2:] == targets.shape
    if last and second and outputs.ndim > 2 and outputs.shape[1] != 1:
        raise LossError(
            f"outputs of shape {tuple(outputs.shape)} could have their classes in "
            "dimension 1 or in the last one: pass forward= that returns [rows, classes]."
        )
    if not (last or second):
        raise LossError(
            f"outputs of shape {tuple(outputs.shape)} do not fit targets of shape "
            f"{tuple(targets.shape)}: one target is needed for each row of class scores."
        )
    flat, labels = flatten_classes(outputs, targets, ignored)
    classes = flat.shape[-1]
    per_sample = labels.numel() // max(targets.shape[0], 1)
    samples = torch.arange(labels.numel(), device=labels.device) // max(per_sample, 1)
    valid = labels != IGNORED
    unknown = valid & ((labels < 0) | (labels >= classes))
    # One wait for the device.
    all_valid, any_unknown = torch.stack([valid.all(), unknown.any()]).tolist()
    if any_unknown:
        wrong = labels[unknown][0]
        raise LossError(
            f"a target is {int(wrong)}, but the model has {classes} outputs, so classes "
            f"run from 0 to {classes - 1}: check the labels (-100 marks ignored ones)."
        )
    if not all_valid:
        flat, labels, samples = flat[valid], labels[valid], samples[valid]
    return Rows(flat, labels, samples)


def flatten_classes(
    outputs: Tensor, targets: Tensor, ignored: int = IGNORED
) -> tuple[Tensor, Tensor]:
    """Scores [rows, K] and labels [rows], ignored ones included as -100."""
    if outputs.shape[:-1] != targets.shape:
        outputs = outputs.movedim(1, -1)
    labels = targets.reshape(-1).long()
    if ignored != IGNORED:
        labels = torch.where(labels == ignored, IGNORED, labels)
    return outputs.reshape(-1, outputs.shape[-1]), labels


def complements(p: Tensor) -> Tensor:
    """1 − p, as the sum of the others where a class is almost certain: nothing cancels."""
    top = p.argmax(-1, keepdim=True)
    return (1 - p).scatter(-1, top, p.scatter(-1, top, 0.0).sum(-1, keepdim=True))


def softmax_probes(p: Tensor, random: torch.Generator) -> Iterator[Tensor]:
    """S u for S = diag(√p) − p √pᵀ, whose diagonal is √p (1 − p), and signs u = ±1."""
    top, root = p.argmax(-1, keepdim=True), p.sqrt()
    own, left = p.gather(-1, top), complements(p).gather(-1, top)
    while True:
        # In place: there may be as many scores as a model has activations.
        parts = random_signs(p, random).mul_(root)
        first = parts.gather(-1, top)
        others = parts.scatter_(-1, top, 0.0).sum(-1, keepdim=True)
        parts.addcmul_(p, first + others, value=-1)
        yield parts.scatter_(-1, top, first * left - own * others)


def softmax_columns(p: Tensor) -> Tensor:
    """S = diag(√p) − p √pᵀ, [..., K, K], for which S Sᵀ = diag(p) − p pᵀ."""
    return _with_diagonal(-p[..., :, None] * p.sqrt()[..., None, :], p.sqrt(), p)


def softmax_matrix(p: Tensor) -> Tensor:
    """diag(p) − p pᵀ, [..., K, K]."""
    return _with_diagonal(-p[..., :, None] * p[..., None, :], p, p)


def _with_diagonal(matrix: Tensor, factor: Tensor, p: Tensor) -> Tensor:
    """The matrix, with factor · (1 − p) on its diagonal."""
    return matrix.diagonal_scatter(factor * complements(p), dim1=-2, dim2=-1)


def softmax_covariance(p: Tensor, v: Tensor) -> Tensor:
    """(diag p − ppᵀ) v, which does not change when a constant is added to v.

    With v = 0 at the likeliest class, nothing cancels where that class is almost certain.
    """
    v = v - v.gather(-1, p.argmax(-1, keepdim=True))
    return p * (v - (p * v).sum(-1, keepdim=True))


def cross_entropies(scores: Tensor, labels: Tensor) -> Tensor:
    """−ln softmax(f)_y of each row, and 0 where the label is ignored.

    It is ln(1 + Σ_{k≠c} e^{f_k − f_c}) + f_c − f_y with c the likeliest class, whose
    derivatives keep their relative precision where a sample is almost certain: with
    log-softmax, p (1 − p) for p near 1 is the difference of two numbers near each other,
    lost in float32 at losses of about 1e-7.
    """
    if scores.shape[1] == 1:
        return 0.0 * scores[:, 0]
    valid = labels != IGNORED
    top = scores.detach().argmax(1, keepdim=True)
    others = scores.scatter(1, top, -torch.inf).logsumexp(1)
    best = scores.gather(1, top)[:, 0]
    own = scores.gather(1, labels.clamp_min(0)[:, None])[:, 0]
    # Not best − own where they are one: its slopes would round away those of the rest.
    behind = torch.where(top[:, 0] == labels, 0.0, best - own)
    return torch.where(valid, F.softplus(others - best) + behind, 0.0)


def sample_classes(rows: Rows, p: Tensor, random: torch.Generator) -> Rows:
    """The same rows with classes drawn from the probabilities p."""
    uniform = torch.special.ndtr(standard_normal(len(p), random, p))
    below = p.cumsum(-1) < uniform[:, None]
    return Rows(rows.outputs, below[:, :-1].sum(-1), rows.samples)
