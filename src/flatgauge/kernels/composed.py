"""Normalizations and convolutions of operations that torch can do for many vectors at once.

torch differentiates its own twice, but for one vector at a time: second derivatives of
normalizations cannot be batched, and those of convolutions become convolutions with one
group for each vector. What is here is slower for one vector and large images, and differs
from torch's by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from flatgauge.kernels.convolution import CONVOLUTIONS, each_way


class Composed(TorchFunctionMode):
    """Takes composed operations in place of torch's while it is open."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = COMPOSED.get(func)
        return (func if found is None else found)(*args, **(kwargs or {}))


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    if _mixed(input, weight, bias):
        return torch.layer_norm(input, normalized_shape, weight, bias, eps)
    units = tuple(range(-len(normalized_shape), 0))
    return _affine(_normalized(input, units, eps), weight, bias)


def _group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    if _mixed(input, weight, bias):
        return torch.group_norm(input, num_groups, weight, bias, eps)
    groups = input.reshape(len(input), num_groups, -1)
    normal = _normalized(groups, (-1,), eps).view(input.shape)
    return _affine(normal, *_of_channels(input, weight, bias))


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Running statistics are not updated: they are put back in any case."""
    if _mixed(input, weight, bias):
        settings = training, momentum, eps
        return F.batch_norm(input, running_mean, running_var, weight, bias, *settings)
    if training or running_mean is None or running_var is None:
        rest = tuple(axis for axis in range(input.ndim) if axis != 1)
        normal = _normalized(input, rest, eps)
    else:
        mean, variance = _of_channels(input, running_mean, running_var)
        normal = (input - mean) * (variance + eps).rsqrt()
    return _affine(normal, *_of_channels(input, weight, bias))


def _normalized(x: Tensor, units: tuple[int, ...], eps: float) -> Tensor:
    centred = x - x.mean(units, True)
    return centred * (centred.square().mean(units, True) + eps).rsqrt()


def _affine(normal: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    scaled = normal if weight is None else normal * weight
    return scaled if bias is None else scaled + bias


def _of_channels(x: Tensor, *given: Tensor | None) -> list[Any]:
    """Vectors with an entry for each channel, as they are multiplied with x."""
    shape = (-1, *[1] * (x.ndim - 2))
    return [None if one is None else one.view(shape) for one in given]


def _mixed(*given: Tensor | None) -> bool:
    """Whether torch's own chooses the precision."""
    types = {one.dtype for one in given if one is not None}
    return len(types) > 1 or torch.is_autocast_enabled("cpu")


def _convolution(func: Any) -> Callable[..., Tensor]:
    """Convolutions as products of matrices: windows, picked by their places, times w."""
    dimension = CONVOLUTIONS[func]

    def convolve(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        one_by_one = input.ndim != dimension + 2 or not input.is_floating_point()
        if one_by_one or isinstance(padding, str):
            return func(input, weight, bias, stride, padding, dilation, groups)
        steps, edges, gaps = (
            each_way(one, dimension) for one in (stride, padding, dilation)
        )
        padded = F.pad(input, [edge for edge in reversed(edges) for _ in (0, 1)])
        kernel = list(weight.shape[2:])
        places, sizes = _places(list(padded.shape[2:]), kernel, steps, gaps)
        windows = padded.flatten(2).index_select(-1, places.to(input.device))
        inputs = weight.shape[1] * math.prod(kernel)
        windows = windows.reshape(len(input), groups, inputs, math.prod(sizes))
        if inputs == math.prod(kernel) and groups == len(weight):
            products = (windows * weight.reshape(1, groups, inputs, 1)).sum(2)
        else:
            products = weight.reshape(groups, -1, inputs) @ windows
        output = products.reshape(len(input), len(weight), *sizes)
        return _affine(output, None, *_of_channels(output, bias))

    return convolve


def _places(
    image: list[int], kernel: list[int], steps: list[int], gaps: list[int]
) -> tuple[Tensor, list[int]]:
    """Where each window has its entries in a flat image, and how many windows there are."""
    sizes = [
        (length - gap * (width - 1) - 1) // step + 1
        for length, width, step, gap in zip(image, kernel, steps, gaps, strict=True)
    ]
    found = torch.zeros(1, 1, dtype=torch.long)
    for axis, (width, count) in enumerate(zip(kernel, sizes, strict=True)):
        inside, windows = torch.arange(width) * gaps[axis], torch.arange(count)
        own = inside[:, None] + windows * steps[axis]
        joint = found[:, None, :, None] * image[axis] + own[None, :, None, :]
        found = joint.reshape(found.shape[0] * width, found.shape[1] * count)
    return found.flatten(), sizes


COMPOSED: dict[Any, Callable[..., Tensor]] = {
    F.layer_norm: _layer_norm,
    torch.layer_norm: _layer_norm,
    F.group_norm: _group_norm,
    torch.group_norm: _group_norm,
    F.batch_norm: _batch_norm,
    **{func: _convolution(func) for func in CONVOLUTIONS},
}
"""What is taken in place of what."""
