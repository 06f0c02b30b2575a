"""Whether a user's loss is what it seems: a named one, or the same in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from flatgauge.errors import FlatgaugeError, LossError
from flatgauge.losses import CallableLoss
from flatgauge.losses.precision import output_rounding
from flatgauge.nested import map_nested, tensors_in
from flatgauge.units.samples import reach_of

# The relative difference of sums over the same samples that is rounding: of a batch as a
# whole and in parts, or by two formulas. About a thousand units in the last place of
# float32, which sums of many terms in another order may lose.
SUM_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}
# Units in the last place of the largest output that a loss near 0 may carry: a few
# operations on numbers of that size, each of which loses one or two.
SLACK = 64


def slack_of(outputs: Any, dtype: torch.dtype) -> float:
    """What rounding of the outputs can add to a loss near 0."""
    return SLACK * torch.finfo(dtype).eps * reach_of(outputs)


def is_plain(
    loss: CallableLoss, outputs: Any, targets: Any, dtype: torch.dtype
) -> bool:
    """Whether the named loss gives the same sum, of as many rows."""
    assert loss.plain is not None
    total, rows = loss.total(outputs, targets)
    try:
        named, count = loss.plain.total(outputs, targets)
    except LossError:
        return False
    return rows == count and math.isclose(
        float(total),
        float(named),
        rel_tol=SUM_TOLERANCE[dtype],
        abs_tol=slack_of(outputs, dtype) * rows,
    )


def is_wide(loss: CallableLoss, outputs: Any, targets: Any, dtype: torch.dtype) -> bool:
    """Whether the function does the same in float64: its value and its slopes."""
    found = []
    for wide in (False, True):
        leaves = map_nested(_leaf, outputs)
        inputs = [t for t in tensors_in(leaves) if t.requires_grad]
        try:
            value = replace(loss, wide=wide).value(leaves, targets)
            slopes = torch.autograd.grad(value.sum(), inputs, allow_unused=True)
        except (FlatgaugeError, RuntimeError):
            return False
        flat = [s.reshape(-1).double() for s in slopes if s is not None]
        found.append((value.detach(), torch.cat(flat) if flat else torch.zeros(1)))
    (narrow, slope), (value, other) = found
    if value.dtype != torch.float64 or slope.shape != other.shape:
        return False
    rounding = slack_of(outputs, dtype) + SLACK * torch.finfo(dtype).eps
    close = SUM_TOLERANCE[dtype] * narrow.double().abs() + rounding
    rows = max(loss.countings[0].rows(outputs, targets), 1)
    share = rounding / rows if value.ndim == 0 else rounding
    allowed = 10 * SUM_TOLERANCE[dtype] * slope.abs().max() + share
    same = ((value - narrow).abs() <= close).all()
    return bool(same) and bool(((slope - other).abs() <= allowed).all())


def rounding_of(
    loss: CallableLoss, outputs: Any, targets: Any, apart: bool
) -> tuple[float, float]:
    """Error and size of the second derivatives, squared; 0 where there are none.

    `apart` says that every sample has a loss of its own.
    """
    if not isinstance(outputs, Tensor):
        return 0.0, 0.0
    try:
        found = output_rounding(
            lambda free: loss.value(free, targets).sum(),
            outputs.double() if loss.wide else outputs,
            apart,
        )
    except (FlatgaugeError, RuntimeError):
        return 0.0, 0.0
    return float(found.bends.square().sum()), found.bend_size


def _leaf(tensor: Tensor) -> Tensor:
    floating = tensor.is_floating_point()
    return tensor.detach().requires_grad_() if floating else tensor
