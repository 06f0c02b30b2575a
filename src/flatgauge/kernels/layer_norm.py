"""Layer normalization whose second derivative takes few kernels and can be differentiated.

torch writes it with many more, which shows on a GPU in the products of transformers; and
with mean and r as constants, so that its derivatives in turn, which a model needs whose
forward differentiates, are wrong. With x̂ = (x − mean) r
and P(u) = r (u − mean u − x̂ mean(u x̂)), which is symmetric, y = x̂ w + c has the
gradients g̃x = P(g w), g̃w = Σ g x̂ and g̃c = Σ g. For slopes a, b, c of them,
S = ⟨g̃x, a⟩ + ⟨g̃w, b⟩ + ⟨g̃c, c⟩ has the derivatives

    ∂S/∂g = w P(a) + x̂ b + c,      ∂S/∂w = Σ g P(a),
    ∂S/∂x = P(g b) − r (x̂ mean(g w P(a)) + mean(a x̂) P(g w) + mean(g w x̂) P(a)),

since P is the derivative of x̂, and −r² x̂ / n that of r. Group normalization is that of
every group of channels with w = 1 and c = 0, and then a gain and an offset of each channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function
from torch.overrides import TorchFunctionMode

from flatgauge.kernels.convolution import is_transformed

_aten: Any = torch.ops.aten
Projection = Callable[[Tensor, Tensor | None], Tensor]


class OwnLayerNorms(TorchFunctionMode):
    """Takes our normalization of layers and groups in place of torch's while it is open."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (F.layer_norm, torch.layer_norm):
            return _normalize(*args, **(kwargs or {}))
        if func in (F.group_norm, torch.group_norm):
            return _normalize_groups(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _normalize(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    if not _is_plain(input, weight, bias):
        return torch.layer_norm(input, normalized_shape, weight, bias, eps)
    return _LayerNorm.apply(input, weight, bias, list(normalized_shape), eps)


def _normalize_groups(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    if not (_is_plain(input, weight, bias) and input.numel()):
        return torch.group_norm(input, num_groups, weight, bias, eps)
    groups = input.reshape(len(input), num_groups, -1)
    output = _LayerNorm.apply(groups, None, None, [groups.shape[2]], eps)
    output, channels = output.view(input.shape), (-1, *[1] * (input.ndim - 2))
    if weight is not None:
        output = output * weight.view(channels)
    return output if bias is None else output + bias.view(channels)


def _is_plain(*given: Tensor | None) -> bool:
    """Whether all are of one type, none is changed by autocast, and none a transform's."""
    known = [t for t in given if t is not None]
    mixed = len({t.dtype for t in known}) > 1
    autocast = torch.is_autocast_enabled(known[0].device.type)
    return not (mixed or autocast or is_transformed(*known))


class _LayerNorm(Function):
    """y = x̂ w + c."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Any, c: Any, shape: list[int], eps: float):
        y, mean, r = _aten.native_layer_norm(x, shape, w, c, eps)
        ctx.save_for_backward(x, w, c, mean, r)
        ctx.shape, ctx.eps = shape, eps
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (g,), wanted = grad_outputs, list(ctx.needs_input_grad[:3])
        settings = ctx.shape, ctx.eps, wanted
        return *_Gradients.apply(g, *ctx.saved_tensors, *settings), None, None


class _Gradients(Function):
    """g̃x, g̃w and g̃c, as far as they are wanted."""

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, w: Any, c: Any, mean: Tensor, r: Tensor,
        shape: list[int], eps: float, wanted: list[bool],
    ) -> Any:  # fmt: skip
        found = _aten.native_layer_norm_backward(g, x, shape, mean, r, w, c, wanted)
        # What no slope changes is computed here, once for all of them.
        normal = (x - mean) * r
        share = (_times(g, w) * normal).mean(_last(shape), True) if wanted[0] else None
        ctx.save_for_backward(g, x, w, mean, r, normal, found[0], share)
        ctx.shape, ctx.eps = shape, eps
        ctx.set_materialize_grads(False)
        return found

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The derivatives of S; a, b and c are None where they are 0."""
        a, b, c = grad_outputs
        g, x, w, mean, r, normal, pulled, share = ctx.saved_tensors
        shape, units = ctx.shape, _last(ctx.shape)

        def fused(u: Tensor, weight: Tensor | None) -> Tensor:
            only = [True, False, False]
            backward = _aten.native_layer_norm_backward
            return backward(u, x, shape, mean, r, weight, None, only)[0]

        project: Projection = fused
        if torch.is_grad_enabled():
            # To be differentiated again, in x through mean and r as well.
            normal, r, project = _composed(x, units, ctx.eps)
            if a is not None:
                pulled = project(g, w)
                share = (_times(g, w) * normal).mean(units, True)
        slope_g, slope_x, slope_w = c, None, None
        if b is not None:
            slope_g = normal * b if c is None else torch.addcmul(c, normal, b)
            slope_x = project(g, b)
        if a is not None:
            moved = project(a, None)
            weighted = _times(moved, w)
            slope_g = weighted if slope_g is None else slope_g + weighted
            slope_w = None if w is None else (g * moved).sum_to_size(shape)
            turned = normal * (g * weighted).mean(units, True)
            turned = torch.addcmul(turned, pulled, (a * normal).mean(units, True))
            turned = r * torch.addcmul(turned, moved, share)
            slope_x = -turned if slope_x is None else slope_x - turned
        if slope_g is not None:
            slope_g = slope_g.expand_as(g)
        return slope_g, slope_x, slope_w, *[None] * 6


def _composed(
    x: Tensor, units: tuple[int, ...], eps: float
) -> tuple[Tensor, Tensor, Projection]:
    """x̂, r and P of operations that can be differentiated."""
    centred = x - x.mean(units, True)
    r = (centred.square().mean(units, True) + eps).rsqrt()
    normal = centred * r

    def project(u: Tensor, weight: Tensor | None) -> Tensor:
        u = _times(u, weight)
        along = normal * (u * normal).mean(units, True)
        return r * (u - u.mean(units, True) - along)

    return normal, r, project


def _times(tensor: Tensor, weight: Tensor | None) -> Tensor:
    return tensor if weight is None else tensor * weight


def _last(shape: list[int]) -> tuple[int, ...]:
    return tuple(range(-len(shape), 0))
