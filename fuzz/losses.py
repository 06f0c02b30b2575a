"""Random losses: what flatgauge is given, and the mean over rows that is meant.

A row is a sample, or a token where outputs are by token. The truth of an objective is
Σ w ℓ / Σ w over all rows of all data, with the weights w of its loss, whatever the
batches; where a loss couples the samples of a batch, it is the mean over the batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuzz.draw import Draw

IGNORED = -100


@dataclass
class Loss:
    """A loss with its own plain definition.

    Attributes:
        name: in words.
        given: what the objective gets.
        rows: per-row losses of outputs [M, K] and targets [M, ...], all valid.
        targets: draws targets for outputs of a leading shape.
        weights: the weight of each row, from its target; equal ones if None.
        classes: whether targets are classes, so that surrogates are of classes too.
        entropy: whether it is the plain cross-entropy of classes.
        mean: whether what is given is a mean over rows (or values a row) as it stands.
        coupled: the loss of a batch, where it is no mean over rows.
    """

    name: str
    given: Any
    rows: Callable[[Tensor, Tensor], Tensor]
    targets: Callable[[Draw, tuple[int, ...], int], Tensor]
    weights: Callable[[Tensor], Tensor] | None = None
    classes: bool = False
    entropy: bool = False
    mean: bool = True
    coupled: Callable[[Tensor, Tensor], Tensor] | None = None


def entropies(f: Tensor, y: Tensor) -> Tensor:
    """−ln softmax(f)_y, without cancellation where a row is almost certain."""
    top = f.argmax(1)
    f = f - f.gather(1, top[:, None])
    others = f.scatter(1, top[:, None], -torch.inf).exp().sum(1)
    behind = f.gather(1, y[:, None])[:, 0]
    return others.log1p() - torch.where(top == y, 0.0, behind)


def normalized_entropies(f: Tensor, y: Tensor) -> Tensor:
    """The same of f divided by its standard deviation over the classes."""
    centred = f - f.mean(1, keepdim=True)
    return entropies(centred / centred.square().mean(1, keepdim=True).sqrt(), y)


def squares(f: Tensor, y: Tensor) -> Tensor:
    return (f - y).square().mean(1)


def class_targets(draw: Draw, shape: tuple[int, ...], outputs: int) -> Tensor:
    return draw.integers(outputs, *shape)


def real_targets(draw: Draw, shape: tuple[int, ...], outputs: int) -> Tensor:
    return draw.normal(*shape, outputs)


def binary_targets(draw: Draw, shape: tuple[int, ...], outputs: int) -> Tensor:
    return draw.integers(2, *shape, outputs).double()


def ignoring(draw: Draw, shape: tuple[int, ...], outputs: int) -> Tensor:
    labels = draw.integers(outputs, *shape)
    ignored = draw.normal(*shape) > 0.7
    ignored.view(-1)[0] = False
    return labels.masked_fill(ignored, IGNORED)


def _smoothed(f: Tensor, y: Tensor) -> Tensor:
    logs = f - f.logsumexp(1, keepdim=True)
    return -0.9 * logs.gather(1, y[:, None])[:, 0] - 0.1 * logs.mean(1)


def _hinge(f: Tensor, y: Tensor) -> Tensor:
    own = f.gather(1, y[:, None])
    margins = (1 - own + f).clamp_min(0)
    return (margins.sum(1) - 1) / f.shape[1]


def _huber(f: Tensor, y: Tensor) -> Tensor:
    error = (f - y).abs()
    return torch.where(error < 1, 0.5 * error.square(), error - 0.5).mean(1)


def _logistic(f: Tensor, y: Tensor) -> Tensor:
    return (F.softplus(f, threshold=700) - y * f).mean(1)


def _contrast(f: Tensor, y: Tensor) -> Tensor:
    """Every sample against the others of its batch."""
    similar = f @ f.T / (1 + f.square().mean())
    own = torch.arange(len(f), device=f.device)
    return entropies(similar, own).mean()


def _squared_entropy(f: Tensor, y: Tensor) -> Tensor:
    return entropies(f, y).square()


def _per_row(rows: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda f, y: rows(f, y)


def _mean_of(rows: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda f, y: rows(f, y).mean()


def by_token(draw: Draw) -> Loss:
    """Losses for outputs [B, T, K]."""
    if draw.chance(0.6):
        targets = draw.one_of((class_targets, ignoring))
        return Loss("cross-entropy", "cross-entropy", entropies, targets,
                    classes=True, entropy=True)  # fmt: skip
    return Loss("mse", "mse", squares, real_targets)


def losses(outputs: int) -> list[tuple[float, Callable[[], Loss]]]:
    """Losses for outputs [B, K], each with how often it is drawn."""
    class_weights = torch.linspace(0.5, 2.0, outputs, dtype=torch.float64)

    def weighted(f: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(f, y, weight=class_weights.to(f))

    def ce(name: str, given: Any, **more: Any) -> Callable[[], Loss]:
        facts = {"classes": True, "entropy": True, "targets": class_targets, **more}
        return lambda: Loss(name, given, entropies, **facts)

    found: list[tuple[float, Callable[[], Loss]]] = [
        (6, ce("cross-entropy", "cross-entropy")),
        (1, ce("F.cross_entropy", F.cross_entropy)),
        (0.7, ce("nn.CrossEntropyLoss", nn.CrossEntropyLoss())),
        (0.5, ce("entropies a sample", lambda f, y: F.cross_entropy(f, y, reduction="none"))),
        (0.5, ce("summed entropies", lambda f, y: F.cross_entropy(f, y, reduction="sum"),
                 mean=False)),
        (0.5, ce("summed module", nn.CrossEntropyLoss(reduction="sum"), mean=False)),
        (0.5, ce("class weights", weighted, weights=lambda y: class_weights[y],
                 mean=False)),
        (0.5, ce("ignored targets", F.cross_entropy, targets=ignoring, mean=False)),
        (0.3, ce("named, ignored targets", "cross-entropy", targets=ignoring)),
        (4, lambda: Loss("mse", "mse", squares, real_targets)),
        (0.5, lambda: Loss("nn.MSELoss", nn.MSELoss(), squares, real_targets)),
        (0.5, lambda: Loss("summed squares", nn.MSELoss(reduction="sum"),
                           lambda f, y: (f - y).square().sum(1), real_targets, mean=False)),
        (0.7, lambda: Loss("label smoothing",
                           lambda f, y: F.cross_entropy(f, y, label_smoothing=0.1),
                           _smoothed, class_targets, classes=True)),
        (0.7, lambda: Loss("hinge", F.multi_margin_loss, _hinge, class_targets)),
        (0.5, lambda: Loss("huber", F.smooth_l1_loss, _huber, real_targets)),
        (0.7, lambda: Loss("logistic", F.binary_cross_entropy_with_logits, _logistic,
                           binary_targets)),
        (0.4, lambda: Loss("squared entropies", _mean_of(_squared_entropy),
                           _squared_entropy, class_targets)),
        (0.4, lambda: Loss("squared entropies a sample", _per_row(_squared_entropy),
                           _squared_entropy, class_targets)),
        (0.7, lambda: Loss("contrastive", _contrast, entropies, real_targets,
                           mean=False, coupled=_contrast)),
    ]  # fmt: skip
    if outputs >= 3:
        name = "normalized-cross-entropy"
        found.append((1, lambda: Loss(name, name, normalized_entropies, class_targets,
                                      classes=True)))  # fmt: skip
    return found
