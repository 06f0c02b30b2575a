"""Records, while a model runs, which operations use which parameters.

To support another operation, write a function that turns its arguments and its output
into a `Tap` and register it in `RECORDED`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from flatgauge.curvature.taps import (
    ConvolutionTap,
    EmbeddingTap,
    GainTap,
    LinearTap,
    Tap,
)
from flatgauge.nested import tensors_in
from flatgauge.vectors import Params


class Recorder(TorchFunctionMode):
    """A context in which a model runs at the tensors of `point`.

    `taps` holds the operations that were understood; `others` the names of parameters
    that were used in any other way, or more than once; `entries` counts the numbers in
    all that depends on the parameters.
    """

    def __init__(self, point: Params):
        super().__init__()
        self._names = {id(tensor): name for name, tensor in point.items()}
        self._used: set[str] = set()
        self.taps: list[Tap] = []
        self.entries = 0
        self.others: set[str] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Run the operation, and note the parameters among its arguments."""
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        used = [
            self._names[id(tensor)]
            for tensor in tensors_in([list(args), kwargs])
            if id(tensor) in self._names
        ]
        made = tensors_in([output])
        self.entries += sum(tensor.numel() for tensor in made if tensor.requires_grad)
        if used and made:
            self._note(func, args, kwargs, output, used)
        return output

    def _note(
        self, func: Any, args: Any, kwargs: Any, output: Any, used: list[str]
    ) -> None:
        again = self._used.intersection(used)
        self._used.update(used)
        tap = None
        if func in RECORDED and not again and len(set(used)) == len(used):
            tap = self._tap(RECORDED[func], args, kwargs, output)
        if tap is None:
            self.others.update(used)
        else:
            self.taps.append(tap)

    def _tap(
        self, record: Record, args: Any, kwargs: Any, output: Tensor
    ) -> Tap | None:
        if not output.requires_grad:
            return None
        # Not the output itself: an in-place operation would move it on in the graph.
        edge = get_gradient_edge(output)
        try:
            bound = inspect.signature(record).bind({}, edge, *args, **kwargs)
        except TypeError:
            return None
        names = {
            role: self._names[id(value)]
            for role, value in bound.arguments.items()
            if id(value) in self._names
        }
        if not set(names) <= {"weight", "bias"}:
            return None
        return record(names, edge, *args, **kwargs)


Names = dict[str, str]
Record = Callable[..., Tap | None]
RECORDED: dict[Any, Record] = {}


def _recorded(*functions: Any) -> Callable[[Record], Record]:
    """Register how an operation becomes a tap, or None where it cannot.

    The record takes the names of the parameters by their role ("weight", "bias"), the
    output, and then the arguments of the operation itself.
    """

    def register(record: Record) -> Record:
        RECORDED.update(dict.fromkeys(functions, record))
        return record

    return register


@_recorded(F.linear)
def _linear(names: Names, output: GradientEdge, input, weight, bias=None):
    if input.ndim < 2:
        return None
    return LinearTap(output, names, input.detach())


@_recorded(torch.addmm)
def _addmm(names: Names, output: GradientEdge, bias, input, weight):
    if bias.ndim != 1:
        return None
    return LinearTap(output, names, input.detach(), transposed=True)


@_recorded(F.conv1d, F.conv2d)
def _convolution(
    names: Names,
    output: GradientEdge,
    input,
    weight,
    bias=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
):
    if input.ndim != weight.ndim:
        return None
    space = weight.ndim - 2
    input = input.detach()
    spread = _pair(dilation, space, 1)
    if padding == "same":
        kernel = weight.shape[2:]
        reach = [spread[-space:][i] * (kernel[i] - 1) for i in reversed(range(space))]
        input = F.pad(input, [side for r in reach for side in (r // 2, r - r // 2)])
    border = 0 if isinstance(padding, str) else padding
    return ConvolutionTap(
        output,
        names,
        input,
        weight.detach(),
        _pair(stride, space, 1),
        _pair(border, space, 0),
        spread,
        groups,
        transposed=False,
    )


@_recorded(F.conv_transpose1d, F.conv_transpose2d)
def _transposed_convolution(
    names: Names,
    output: GradientEdge,
    input,
    weight,
    bias=None,
    stride=1,
    padding=0,
    output_padding=0,
    groups=1,
    dilation=1,
):
    if input.ndim != weight.ndim:
        return None
    space = weight.ndim - 2
    return ConvolutionTap(
        output,
        names,
        input.detach(),
        weight.detach(),
        _pair(stride, space, 1),
        _pair(padding, space, 0),
        _pair(dilation, space, 1),
        groups,
        transposed=True,
    )


@_recorded(F.embedding)
def _embedding(
    names: Names,
    output: GradientEdge,
    input,
    weight,
    padding_idx=None,
    max_norm=None,
    norm_type=2.0,
    scale_grad_by_freq=False,
    sparse=False,
):
    if padding_idx is not None or max_norm is not None or scale_grad_by_freq:
        return None
    return EmbeddingTap(output, names, input, weight.detach())


@_recorded(F.batch_norm)
def _batch_norm(
    names: Names,
    output: GradientEdge,
    input,
    running_mean,
    running_var,
    weight=None,
    bias=None,
    training=False,
    momentum=0.1,
    eps=1e-5,
):
    if training:
        return None
    normalized = F.batch_norm(input.detach(), running_mean, running_var, eps=eps)
    return GainTap(output, names, normalized, trailing=None)


@_recorded(F.layer_norm)
def _layer_norm(
    names: Names,
    output: GradientEdge,
    input,
    normalized_shape,
    weight=None,
    bias=None,
    eps=1e-5,
):
    normalized = F.layer_norm(input.detach(), normalized_shape, eps=eps)
    return GainTap(output, names, normalized, trailing=len(normalized_shape))


@_recorded(F.group_norm)
def _group_norm(
    names: Names,
    output: GradientEdge,
    input,
    num_groups,
    weight=None,
    bias=None,
    eps=1e-5,
):
    normalized = F.group_norm(input.detach(), num_groups, eps=eps)
    return GainTap(output, names, normalized, trailing=None)


def _pair(value: int | Iterable[int], space: int, fill: int) -> tuple[int, int]:
    """Two numbers for a convolution of one or two space dimensions."""
    values = [value] if isinstance(value, int) else list(value)
    return (fill, values[0]) if space == 1 else (values[0], values[-1])
