"""Squared per-sample gradients of single operations, from their inputs and slopes.

With δ the derivative of some scalar of each sample with respect to an operation's
output, a `Tap` gives Σ_n s_n (∂/∂W)², entry by entry, without a gradient for each
sample where the operation allows it (a linear layer with one position per sample), and
in bounded chunks of samples elsewhere.

To support another operation, write a function that turns its arguments into a `Tap` and
add it to `TAPPED`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flatgauge.diagonals.taps.convolution import convolution, transposed_convolution
from flatgauge.diagonals.taps.embedding import embedding
from flatgauge.diagonals.taps.gains import batch_norm, group_norm, layer_norm, rms_norm
from flatgauge.diagonals.taps.linear import addmm, linear
from flatgauge.diagonals.taps.stretched import (
    added,
    expanded,
    expanded_as,
    multiplied,
)
from flatgauge.diagonals.taps.tap import Tap

TAPPED: dict[Any, Callable[..., Tap | None]] = {
    F.linear: linear,
    torch.addmm: addmm,
    F.conv1d: convolution,
    F.conv2d: convolution,
    F.conv_transpose1d: transposed_convolution,
    F.conv_transpose2d: transposed_convolution,
    F.embedding: embedding,
    F.batch_norm: batch_norm,
    F.layer_norm: layer_norm,
    F.group_norm: group_norm,
    F.rms_norm: rms_norm,
    torch.rms_norm: rms_norm,
    torch.add: added,
    torch.sub: added,
    Tensor.add: added,
    Tensor.sub: added,
    Tensor.add_: added,
    Tensor.sub_: added,
    torch.mul: multiplied,
    Tensor.mul: multiplied,
    Tensor.expand: expanded,
    Tensor.expand_as: expanded_as,
}
"""How an operation becomes a tap by its arguments, or None where it cannot."""
