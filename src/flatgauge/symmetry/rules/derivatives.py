"""Operators of a backward pass, which a network runs that differentiates by its inputs."""

from __future__ import annotations

from typing import Any

import torch

from flatgauge.symmetry.labels import ANY, Scale, settle
from flatgauge.symmetry.rules.registry import scale_rule
from flatgauge.symmetry.site import Site


@scale_rule("aten::threshold_backward", "aten::leaky_relu_backward")
def piecewise_linear(site: Site, slope: Scale, x: Scale, bound: Any, *_: Any) -> Scale:
    """The slope is kept, cut or shrunk by the sign of what went in."""
    if site.node.name == "aten::threshold_backward" and bound != 0:
        site.pin(x, "compared with a constant")
    return slope.expand(site.shape)


@scale_rule(
    "aten::tanh_backward", "aten::sigmoid_backward", "aten::gelu_backward",
    "aten::silu_backward", "aten::softplus_backward", "aten::elu_backward",
    "aten::hardtanh_backward", "aten::hardswish_backward", "aten::hardsigmoid_backward",
    "aten::mish_backward", "aten::log_sigmoid_backward",
)  # fmt: skip
def own_scale(site: Site, slope: Scale, *others: Any, **_: Any) -> Scale:
    """The derivative of a nonlinearity whose input or output, given here, is fixed."""
    for other in others:
        if isinstance(other, Scale):
            site.pin(other, "enters a nonlinearity that has a scale of its own")
    return slope.expand(site.shape)


@scale_rule("aten::_softmax_backward_data")
def softmax(site: Site, slope: Scale, result: Scale, dim: int, *_: Any) -> Scale:
    """Slopes along one dimension are added up, with weights that are fixed."""
    site.pin(result, "comes out of a softmax")
    return site.uniform(slope, [dim]).expand(site.shape)


@scale_rule("aten::select_backward", "aten::slice_backward")
def placed(site: Site, slope: Scale, sizes: Any, *where: Any) -> Scale:
    """Slopes of a part of a tensor, among exact zeros."""
    part = site.system.collapse(slope).terms[0][1]
    label = torch.full(tuple(sizes), ANY)
    if site.node.name == "aten::select_backward":
        label = torch.select_scatter(label, part, *where)
    else:
        label = torch.slice_scatter(label, part, *where)
    return Scale(label.shape, ((1.0, settle(label)),), zeros=True)
