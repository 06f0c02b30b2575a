"""Sums of products: linear maps, convolutions, matrix products, einsum.

From A[m, k] + B[k, n] = C[m, n] for all k it follows that A[m, k] = α[m] + κ[k] and
B[k, n] = β[n] - κ[k] + t. `contract` writes down just this, for any index letters.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from flatgauge.symmetry.graph import Node
from flatgauge.symmetry.labels import Scale
from flatgauge.symmetry.rules.registry import scale_rule
from flatgauge.symmetry.site import Site

CONVOLUTIONS = {
    "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution",
    "aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d",
}  # fmt: skip
PRODUCTS = {
    "aten::matmul", "aten::mm", "aten::bmm", "aten::mv", "aten::dot", "aten::vdot"
}  # fmt: skip
PRODUCTS_WITH_BIAS = {"aten::addmm", "aten::baddbmm", "aten::addmv"}
CONTRACTIONS = {
    *CONVOLUTIONS, *PRODUCTS, *PRODUCTS_WITH_BIAS, "aten::linear", "aten::einsum"
}  # fmt: skip


def contract(site: Site, equation: str, left: Scale, right: Scale) -> Scale:
    """The scale of `einsum(equation, left, right)`.

    Letters in both operands but not in the result are summed. Letters of one operand
    alone that the result lacks must have been reduced before.
    """
    operands, result = equation.split("->")
    a, b = operands.split(",")
    summed = [letter for letter in a if letter in b and letter not in result]
    left_free, left_inner = _split(site, left, a, summed, [x for x in a if x not in b])
    right_free, right_inner = _split(
        site, right, b, summed, [x for x in b if x not in a]
    )
    shared = [letter for letter in a if letter in b and letter in result]
    inner_letters = "".join([*shared, *summed])
    inner = arrange(left_inner, a, inner_letters) + arrange(
        right_inner, b, inner_letters
    )
    gauge = _usable_gauge(site, left.gauges | right.gauges, inner, len(shared))
    if gauge is not None:
        del site.system.open_gauges[gauge]
        site.system.vanish(inner)
        inner = Scale(inner.shape).first(range(len(shared), len(inner_letters)))
    else:
        inner = site.uniform(inner, range(len(shared), len(inner_letters)))
    outer = (
        arrange(left_free, a, result)
        + arrange(right_free, b, result)
        + arrange(inner, inner_letters, result)
    )
    zeros = left.zeros or right.zeros
    return Scale(outer.shape, outer.terms, zeros, outer.gauges)


def _split(
    site: Site, scale: Scale, letters: str, summed: list[str], own: list[str]
) -> tuple[Scale, Scale]:
    """The scale as a part that is constant along `summed` and one along `own`."""
    inner_dims = [letters.index(letter) for letter in summed]
    own_dims = [letters.index(letter) for letter in own]
    free, inner, mixed = [], [], []
    for term in scale.terms:
        single = Scale(scale.shape, (term,))
        along_inner = any(single.varies(dim) for dim in inner_dims)
        along_own = any(single.varies(dim) for dim in own_dims)
        elsewhere = any(single.varies(dim) for dim in range(len(letters)))
        if along_inner and along_own:
            mixed.append(term)
        elif along_inner or not elsewhere:
            inner.append(term)
        else:
            free.append(term)
    free_part = Scale(scale.shape, tuple(free), scale.zeros)
    inner_part = Scale(scale.shape, tuple(inner), scale.zeros)
    if mixed:
        both = Scale(scale.shape, tuple(mixed), scale.zeros)
        if scale.zeros:
            # The entries at index 0 may be zeros, which tell nothing.
            alpha = site.system.constant_along(both, inner_dims)
            kappa = site.system.constant_along(both, own_dims)
        else:
            alpha = both.first(inner_dims).expand(scale.shape)
            corner = both.first([*inner_dims, *own_dims]).expand(scale.shape)
            kappa = both.first(own_dims).expand(scale.shape) - corner
        site.system.vanish(both - alpha - kappa)
        free_part = free_part + alpha
        inner_part = inner_part + kappa
    return free_part.first(inner_dims), inner_part.first(own_dims)


def _usable_gauge(
    site: Site, names: frozenset[str], inner: Scale, shared: int
) -> str | None:
    """A parameter whose row-column freedom makes the offset t vanish."""
    offsets = 1
    for dim in range(shared):
        offsets *= inner.shape[dim] if inner.varies(dim) else 1
    for name in sorted(names):
        gauge = site.system.open_gauges.get(name)
        if gauge and gauge.frees(inner, shared, offsets):
            return name
    return None


def arrange(scale: Scale, letters: str, target: str) -> Scale:
    """Bring dimensions into the order of `target`; missing letters get size 1.

    Letters that `target` lacks must have size 1.
    """
    kept = [letter for letter in letters if letter in target]
    sizes = [scale.shape[letters.index(letter)] for letter in kept]
    order = [kept.index(letter) for letter in target if letter in kept]
    ordered = scale.reshape(sizes).map(lambda label: label.permute(order))
    present = iter(ordered.shape)
    return ordered.reshape(
        [next(present) if letter in kept else 1 for letter in target]
    )


def add_bias(site: Site, result: Scale, bias: Scale | None) -> Scale:
    """A bias has the scale of what it is added to."""
    return result if bias is None else site.equal(result, bias).expand(result.shape)


def _tag(site: Site, left: Scale, right: Scale, part: str) -> None:
    if right.gauges or left.gauges:
        site.tag(Scale(right.shape, right.terms), part)
    else:
        site.tag(left, "attention")
        site.tag(right, "attention")


@scale_rule("aten::linear")
def linear(site: Site, x: Scale, weight: Scale, bias: Scale | None = None) -> Scale:
    """The linear map W x + b."""
    lead = string.ascii_lowercase[: len(x.shape) - 1]
    _tag(site, x, weight, "neuron")
    result = contract(site, f"{lead}Z,YZ->{lead}Y", x, weight)
    return add_bias(site, result.expand(site.shape), bias)


@scale_rule(*PRODUCTS)
def matmul(site: Site, left: Scale, right: Scale, **_: Any) -> Scale:
    """Matrix products with broadcast batch dimensions."""
    left, right = site.scale(left), site.scale(right)
    _tag(site, left, right, "neuron")
    if len(right.shape) == 1:
        lead = string.ascii_lowercase[: len(left.shape) - 1]
        return contract(site, f"{lead}Z,Z->{lead}", left, right).expand(site.shape)
    if len(left.shape) == 1:
        left = left.reshape([1, *left.shape])
    batch = site.shape[: max(len(left.shape), len(right.shape)) - 2]
    left = left.expand([*batch, *left.shape[-2:]])
    right = right.expand([*batch, *right.shape[-2:]])
    lead = string.ascii_lowercase[: len(batch)]
    result = contract(site, f"{lead}XZ,{lead}ZY->{lead}XY", left, right)
    return result.expand([*batch, left.shape[-2], right.shape[-1]]).reshape(site.shape)


@scale_rule(*PRODUCTS_WITH_BIAS)
def add_matmul(site: Site, bias: Scale, left: Scale, right: Scale, **_: Any) -> Scale:
    """A matrix product plus a bias."""
    return add_bias(site, matmul(site, left, right), site.scale(bias))


@scale_rule("aten::einsum")
def einsum(site: Site, equation: str, operands: list[Scale], **_: Any) -> Scale:
    """Operand by operand; a repeated letter or an ellipsis fixes all scales."""
    inputs, _arrow, result = equation.replace(" ", "").partition("->")
    letters = inputs.split(",")
    scales = [site.scale(operand) for operand in operands]
    if (
        "." in equation
        or "->" not in equation
        or any(len(set(x)) < len(x) for x in letters)
    ):
        for scale in scales:
            site.pin(scale, "an einsum with repeated, implicit or elided indices")
        return Scale(site.shape)
    current, scale = letters[0], scales[0]
    for number, (other, operand) in enumerate(
        zip(letters[1:], scales[1:], strict=True)
    ):
        later = set("".join([*letters[number + 2 :], result]))
        current, scale = _reduced(site, current, scale, later | set(other))
        other, operand = _reduced(site, other, operand, later | set(current))
        _tag(site, scale, operand, "neuron")
        target = "".join(dict.fromkeys(x for x in current + other if x in later))
        scale = contract(site, f"{current},{other}->{target}", scale, operand)
        current = target
    current, scale = _reduced(site, current, scale, set(result))
    return arrange(scale, current, result).expand(site.shape)


def _reduced(
    site: Site, letters: str, scale: Scale, needed: set[str]
) -> tuple[str, Scale]:
    gone = [dim for dim, letter in enumerate(letters) if letter not in needed]
    kept = "".join(letter for letter in letters if letter in needed)
    if gone:
        sizes = [scale.shape[letters.index(letter)] for letter in kept]
        scale = site.uniform(scale, gone).reshape(sizes)
    return kept, scale


@scale_rule(*CONVOLUTIONS)
def convolution(
    site: Site, x: Scale, weight: Scale, bias: Scale | None = None, *_: Any, **__: Any
) -> Scale:
    """A contraction over the input channels of each group; taps and positions mix.

    Positions along a dimension in which the kernel has one tap, and does not skip or pad
    any, keep scales of their own.
    """
    groups, transposed = _convolution_layout(site.node)
    spatial = len(weight.shape) - 2
    site.tag(Scale(weight.shape, weight.terms), "channel")
    channel = len(x.shape) - spatial - 1
    kept = [dim for dim in range(spatial) if _goes_along(site.node, weight, dim)]
    apart = {channel, *(channel + 1 + dim for dim in kept)}
    entries = site.uniform(x, [d for d in range(len(x.shape)) if d not in apart])
    places = [x.shape[channel + 1 + dim] for dim in kept]
    entries = entries.reshape([groups, x.shape[channel] // groups, *places])
    kernel = site.uniform(weight, range(2, len(weight.shape)))
    kernel = kernel.reshape([groups, weight.shape[0] // groups, weight.shape[1]])
    letters = "xyz"[: len(kept)]
    form = f"gk{letters},{'gkn' if transposed else 'gnk'}->gn{letters}"
    result = contract(site, form, entries, kernel)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    result = result.expand([groups, channels // groups, *places])
    outputs = result.reshape([channels, *places])
    if bias is not None:
        bias = bias.reshape([channels] + [1] * len(places))
    outputs = add_bias(site, outputs, bias)
    sizes = [x.shape[channel + 1 + dim] if dim in kept else 1 for dim in range(spatial)]
    return outputs.reshape([channels, *sizes]).expand(site.shape)


def _goes_along(node: Node, weight: Scale, dim: int) -> bool:
    """Whether each position of a spatial dimension gives one of the result, alone."""
    if weight.shape[2 + dim] != 1:
        return False
    stride, padding = (
        node.args[place] if len(node.args) > place else node.kwargs.get(name, default)
        for place, name, default in ((3, "stride", 1), (4, "padding", 0))
    )
    if isinstance(padding, str):
        padding = 0
    return _entry(stride, dim) == 1 and _entry(padding, dim) == 0


def _entry(option: int | Sequence[int], dim: int) -> int:
    """What an option says of a dimension, given for all of them or for each."""
    if isinstance(option, int):
        return option
    return option[dim] if len(option) > 1 else option[0]


def _convolution_layout(node: Node) -> tuple[int, bool]:
    """The number of groups of a convolution, and whether it is transposed."""
    if node.name == "aten::convolution":
        return node.args[8], node.args[6]
    given = node.args[6] if len(node.args) > 6 else node.kwargs.get("groups", 1)
    return given, "transpose" in node.name
