"""Convolutions whose second derivatives are made of the kernels of the first.

torch writes the derivative of a weight's gradient as a convolution with a kernel as large
as the image, which is slower than the kernel that computes the gradient itself. With y =
x * w, the gradients g̃x = g *ᵀ w and g̃w = x ⋆ g, and slopes a and b of them, ⟨g̃x, a⟩ +
⟨g̃w, b⟩ = ⟨g, a * w + x * b⟩, so that its derivatives are those of two convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import Function
from torch.overrides import TorchFunctionMode

CONVOLUTIONS = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}
# Stride, padding, dilation, transposed, output padding and groups, as ATen takes them.
Layout = tuple[list[int], list[int], list[int], bool, list[int], int]
_aten: Any = torch.ops.aten
_core: Any = torch._C


class OwnConvolutions(TorchFunctionMode):
    """Takes our convolutions in place of torch's while it is open."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in CONVOLUTIONS:
            return _convolve(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _convolve(
    func: Any,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    dimension = CONVOLUTIONS[func]
    plain = input.ndim == dimension + 2 and input.is_floating_point()
    if not plain or isinstance(padding, str) or is_transformed(input, weight):
        return func(input, weight, bias, stride, padding, dilation, groups)
    sizes = [each_way(one, dimension) for one in (stride, padding, dilation)]
    layout = (*sizes, False, [0] * dimension, groups)
    output = _Convolution.apply(input, weight, layout)
    return output if bias is None else output + bias.view(-1, *[1] * dimension)


def is_transformed(*tensors: Tensor) -> bool:
    """Whether the model itself differentiates forward, or is inside of torch.func."""
    return forward_ad._current_level >= 0 or any(
        map(_core._functorch.is_functorch_wrapped_tensor, tensors)
    )


def each_way(value: int | Sequence[int], dimension: int) -> list[int]:
    """What is given for all axes of an image, or for each of them, for each."""
    values = [value] if isinstance(value, int) else list(value)
    return values * dimension if len(values) == 1 else values


class _Convolution(Function):
    """y = x * w."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, layout: Layout) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.layout = layout
        return _aten.convolution(x, w, None, *layout)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (g,), wanted = grad_outputs, ctx.needs_input_grad[:2]
        return *_Gradients.apply(g, *ctx.saved_tensors, ctx.layout, wanted), None


class _Gradients(Function):
    """The derivatives of ⟨x * w, g⟩ in x and w, as far as they are wanted."""

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, w: Tensor, layout: Layout, wanted: Any
    ) -> Any:
        ctx.save_for_backward(g, x, w)
        ctx.layout = layout
        ctx.set_materialize_grads(False)
        return _backward(g, x, w, layout, *wanted)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The derivatives of ⟨g, a * w + x * b⟩; a and b are None where they are 0."""
        a, b = grad_outputs
        g, x, w = ctx.saved_tensors
        for_g, for_x, for_w, *_ = ctx.needs_input_grad
        terms = [
            _aten.convolution(left, right, None, *ctx.layout)
            for left, right in ((a, w), (x, b))
            if for_g and left is not None and right is not None
        ]
        slope_g = sum(terms[1:], terms[0]) if terms else None
        slope_x = slope_w = None
        if for_x and b is not None:
            slope_x, _ = _backward(g, x, b, ctx.layout, True, False)
        if for_w and a is not None:
            _, slope_w = _backward(g, a, w, ctx.layout, False, True)
        return slope_g, slope_x, slope_w, None, None


def _backward(
    g: Tensor, x: Tensor, w: Tensor, layout: Layout, for_x: bool, for_w: bool
) -> tuple[Tensor | None, Tensor | None]:
    masks = [for_x, for_w, False]
    return _aten.convolution_backward(g, x, w, None, *layout, masks)[:2]
