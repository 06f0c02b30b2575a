"""Torch's own losses, recognised with their settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from flatgauge.errors import LossError
from flatgauge.losses.counting import BY_SAMPLES, BY_TARGETS, Counting, count_samples
from flatgauge.losses.cross_entropy import CrossEntropy
from flatgauge.losses.custom import CallableLoss
from flatgauge.losses.loss import IGNORED, RowLoss
from flatgauge.losses.mean_squared_error import MeanSquaredError
from flatgauge.losses.weighted_cross_entropy import WeightedCrossEntropy

CROSS_ENTROPY = {
    "weight": None,
    "ignore_index": IGNORED,
    "reduction": "mean",
    "label_smoothing": 0.0,
}
LOG_LIKELIHOOD = {"weight": None, "ignore_index": IGNORED, "reduction": "mean"}
SQUARED_ERROR = {"weight": None, "reduction": "mean"}


def standard_loss(function: Any) -> CallableLoss | None:
    """`F.cross_entropy`, `F.nll_loss`, `F.mse_loss`, and the modules of the same losses.

    Functions with settings are recognised as `functools.partial`. With class weights,
    label smoothing and an ignored label they are the loss of ours that gives the same
    number row by row. On other targets, such as class probabilities, the function is
    kept, with what its mean is a mean of.

    Raises:
        LossError: for reduction="sum".
    """
    settings = _classification(function)
    if settings is not None:
        _check_reduction(settings)
        plain = _row_by_row(settings)
        if settings["reduction"] == "none" or settings == CROSS_ENTROPY:
            return CallableLoss(function, plain=plain)
        weighted = _class_weights(settings["weight"], settings["ignore_index"])
        # Class probabilities as targets are averaged over the samples.
        return CallableLoss(function, (weighted, BY_TARGETS, BY_SAMPLES), plain)
    settings = _settings(function, F.mse_loss, nn.MSELoss, SQUARED_ERROR)
    if settings is None:
        return None
    _check_reduction(settings)
    if settings["weight"] is not None:
        return CallableLoss(function, (BY_SAMPLES,))
    # One value for each output has the same mean.
    return CallableLoss(F.mse_loss, (BY_SAMPLES,), MeanSquaredError())


def _classification(function: Any) -> dict[str, Any] | None:
    """The settings of a cross-entropy, also of one of log-probabilities.

    Those are scores whose softmax they are the logarithm of, so that both losses and all of
    their derivatives are the same. Whether a model gives them is seen on the data.
    """
    found = _settings(function, F.cross_entropy, nn.CrossEntropyLoss, CROSS_ENTROPY)
    if found is None:
        found = _settings(function, F.nll_loss, nn.NLLLoss, LOG_LIKELIHOOD)
    return None if found is None else {**CROSS_ENTROPY, **found}


def _check_reduction(settings: Mapping[str, Any]) -> None:
    if settings["reduction"] == "sum":
        raise LossError(
            "the loss adds up its samples, so that its value depends on the size of the "
            "batches: use reduction='mean'."
        )


def _row_by_row(settings: Mapping[str, Any]) -> RowLoss | None:
    """The same loss for targets that are classes; None where it is not convex."""
    if settings == {**CROSS_ENTROPY, "reduction": settings["reduction"]}:
        return CrossEntropy()
    weight, ignored = settings["weight"], settings["ignore_index"]
    weights = None if weight is None else tuple(weight.detach().double().tolist())
    if weights is not None and min(weights) < 0:
        return None
    return WeightedCrossEntropy(weights, settings["label_smoothing"], ignored)


def _settings(
    function: Any, original: Any, module: type[nn.Module], known: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The settings of a standard loss; None if it is another, or set in another way."""
    if function is original:
        return dict(known)
    if isinstance(function, partial) and function.func is original:
        own = {k: v for k, v in function.keywords.items() if v is not None}
        settings = {**known, **own}
        return None if function.args or settings.keys() - known.keys() else settings
    if type(function) is module:
        return {name: getattr(function, name, known[name]) for name in known}
    return None


def _class_weights(weight: Tensor | None, ignored: int) -> Counting:
    """Σ w[y] over the targets y that are not ignored."""

    def rows(outputs: Any, targets: Tensor) -> int:
        if not isinstance(targets, Tensor) or targets.is_floating_point():
            return count_samples(outputs, targets)
        return int((targets != ignored).sum())

    def weights(outputs: Any, targets: Tensor) -> float:
        if targets.is_floating_point():
            return float(targets.shape[0])
        valid = targets[targets != ignored]
        assert weight is not None
        return float(weight.detach().to(targets.device).double()[valid].sum())

    return Counting(rows, None if weight is None else weights)
