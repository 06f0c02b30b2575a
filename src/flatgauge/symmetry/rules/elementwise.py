"""Operators that work entry by entry.

A rule receives the operator's arguments with a `Scale` for each floating tensor:
return it unchanged where f(c x) = c f(x) for c > 0, add scales where tensors are
multiplied, call `site.equal` where tensors are summed or compared, and `site.pin`
where the function has a scale of its own.
"""

from __future__ import annotations

from typing import Any

import torch

from flatgauge.symmetry.labels import Scale, nothing, unscaled
from flatgauge.symmetry.rules.registry import scale_rule
from flatgauge.symmetry.site import Integers, Site

EPSILON = 2e-3
"""Constants up to this size count as an eps where a root or a quotient follows."""

POWERS = {
    "aten::square": 2.0, "aten::sqrt": 0.5, "aten::rsqrt": -0.5, "aten::reciprocal": -1.0
}  # fmt: skip
READ = {"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero"}

Operand = Scale | Integers | int | float


@scale_rule(
    "aten::relu", "aten::leaky_relu", "aten::abs", "aten::neg", "aten::positive",
    "aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::clone",
    "aten::contiguous", "aten::alias", "aten::detach", "aten::lift_fresh_copy",
    "aten::lift_fresh", "aten::rrelu",
    "aten::rrelu_with_noise", "aten::conj", "aten::real", "aten::detach_copy",
    "aten::imag", "aten::_conj", "aten::resolve_conj", "aten::resolve_neg",
)  # fmt: skip
def positively_homogeneous(site: Site, x: Scale, *_: Any, **__: Any) -> Scale:
    """f(c x) = c f(x) for every c > 0: the scale passes through."""
    return x


@scale_rule("aten::to", "aten::_to_copy", "aten::type_as")
def cast(site: Site, x: Scale, *_: Any, **__: Any) -> Scale:
    """A cast to integers rounds, which fixes the scale; to a truth value it does not."""
    output = site.node.outputs[0]
    if output is not None and not output.floating and output.dtype != torch.bool:
        site.pin(x, "rounded to integers")
    return x


@scale_rule("aten::native_dropout")
def native_dropout(site: Site, x: Scale, *_: Any) -> tuple[Scale, None]:
    """Dropout that also returns its mask."""
    return x, None


@scale_rule(
    "aten::gelu", "aten::silu", "aten::mish", "aten::sigmoid", "aten::log_sigmoid",
    "aten::tanh", "aten::exp", "aten::exp2", "aten::expm1", "aten::log", "aten::log2",
    "aten::log10", "aten::log1p", "aten::sin", "aten::cos", "aten::tan", "aten::atan",
    "aten::sinh", "aten::cosh", "aten::erf", "aten::erfc", "aten::erfinv",
    "aten::softplus", "aten::elu", "aten::celu", "aten::selu", "aten::relu6",
    "aten::hardtanh", "aten::hardswish", "aten::hardsigmoid", "aten::hardshrink",
    "aten::softshrink", "aten::threshold", "aten::floor", "aten::ceil",
    "aten::round", "aten::trunc", "aten::frac", "aten::logit",
)  # fmt: skip
def own_scale(site: Site, x: Scale, *_: Any, **__: Any) -> Scale:
    """A nonlinearity with a scale of its own: input and output are fixed."""
    site.pin(x, "enters a nonlinearity that has a scale of its own")
    return unscaled(site.shape)


@scale_rule(
    "aten::sign", "aten::sgn", "aten::heaviside", "aten::isnan", "aten::isinf",
    "aten::isfinite", "aten::signbit", "aten::logical_not", "aten::logical_and",
    "aten::logical_or", "aten::ones_like", "aten::empty_like", "aten::rand_like",
    "aten::randn_like", "aten::new_ones", "aten::new_empty",
)  # fmt: skip
def scale_blind(site: Site, *_: Any, **__: Any) -> Scale:
    """The result does not depend on the scale of the input."""
    return unscaled(site.shape)


@scale_rule(
    "aten::zeros", "aten::zeros_like", "aten::new_zeros", "aten::zero", constant=True
)
def zeros(site: Site, *_: Any, **__: Any) -> Scale:
    """Exact zeros have every scale."""
    return nothing(site.shape)


@scale_rule("aten::full", "aten::full_like", "aten::new_full", constant=True)
def full(site: Site, *arguments: Any, **__: Any) -> Scale:
    """A constant: the last argument is its value."""
    return site.scale(arguments[-1]).expand(site.shape)


@scale_rule("aten::fill", "aten::copy")
def overwrite(site: Site, x: Scale, source: Operand, *_: Any, **__: Any) -> Scale:
    """A tensor overwritten by one value, or by another tensor."""
    return site.scale(source).expand(site.shape)


@scale_rule("aten::add", "aten::sub", "aten::rsub", "aten::__iadd__")
def add(site: Site, x: Operand, y: Operand, *, alpha: Any = 1, **_: Any) -> Scale:
    """A sum needs equal scales; a tiny constant under a root is an eps."""
    for tensor, constant in ((x, y), (y, x)):
        if isinstance(tensor, Scale) and _is_epsilon(site, constant):
            site.epsilon(tensor)
            return tensor
    left, right = site.scale(x), site.scale(y)
    if left.terms and right.terms and left.shape == right.shape == site.shape:
        site.tag(left, "residual stream")
    left, right = site.effective(left), site.effective(right)
    return site.equal(left, right).expand(site.shape)


def _is_epsilon(site: Site, operand: Operand) -> bool:
    return (
        isinstance(operand, float)
        and 0 < operand <= EPSILON
        and site.feeds("aten::rsqrt", "aten::sqrt", "aten::pow")
    )


@scale_rule(
    "aten::maximum", "aten::minimum", "aten::fmax", "aten::fmin", "aten::hypot",
    "aten::gt", "aten::lt", "aten::ge", "aten::le", "aten::eq", "aten::ne",
    "aten::copysign",
)  # fmt: skip
def same_scale(site: Site, x: Operand, y: Operand, *_: Any, **__: Any) -> Scale:
    """Comparisons and two-argument extrema: both sides must have one scale."""
    return site.equal(site.scale(x), site.scale(y)).expand(site.shape)


@scale_rule("aten::mul", "aten::__imul__")
def multiply(site: Site, x: Operand, y: Operand) -> Scale:
    """Scales of a product add up; what multiplies a normalized tensor is its gain."""
    left, right = site.scale(x), site.scale(y)
    for tensor, gain in ((left, right), (right, left)):
        if tensor.terms and sum(coefficient for coefficient, _ in tensor.terms) == 0:
            site.tag(gain, "norm")
    return (left + right).expand(site.shape)


@scale_rule("aten::div", "aten::true_divide")
def divide(
    site: Site, x: Operand, y: Operand, *, rounding_mode: str | None = None
) -> Scale:
    """Scales of a quotient subtract."""
    numerator, denominator = site.scale(x), site.scale(y)
    if rounding_mode is not None:
        return site.equal(numerator, denominator).expand(site.shape)
    return (numerator - denominator).expand(site.shape)


@scale_rule("aten::addcmul", "aten::addcdiv")
def add_product(site: Site, x: Scale, y: Scale, z: Scale, *, value: Any = 1) -> Scale:
    """The sum x + value y z, or x + value y / z."""
    term = y + z if site.node.name == "aten::addcmul" else y - z
    return site.equal(x, term).expand(site.shape)


@scale_rule("aten::pow")
def power(site: Site, x: Operand, exponent: Operand) -> Scale:
    """A constant power multiplies the scale; a tensor in the exponent fixes all."""
    if isinstance(x, Scale) and isinstance(exponent, int | float):
        return x * float(exponent)
    site.pin(site.scale(x), "raised to a power that is a tensor")
    site.pin(site.scale(exponent), "an exponent")
    return unscaled(site.shape)


@scale_rule(*POWERS)
def constant_power(site: Site, x: Scale) -> Scale:
    """A power that the operator's name says."""
    return x * POWERS[site.node.name]


@scale_rule("aten::prelu", "aten::_prelu_kernel")
def prelu(site: Site, x: Scale, slope: Scale) -> Scale:
    """The slope multiplies one side only, so it cannot be rescaled."""
    site.pin(slope, "the slope of a PReLU")
    return x


@scale_rule("aten::clamp", "aten::clamp_min", "aten::clamp_max", "aten::clip")
def clamp(
    site: Site, x: Scale, low: Operand | None = None, high: Operand | None = None,
    **bounds: Operand | None,
) -> Scale:  # fmt: skip
    """Bounds at zero or infinity are homogeneous; a tiny lower bound is an eps."""
    if site.node.name == "aten::clamp_max":
        low, high = None, low
    low, high = bounds.get("min", low), bounds.get("max", high)
    for bound in (low, high):
        if isinstance(bound, float) and 0 < bound <= EPSILON and bound is low:
            site.epsilon(x)
        elif bound is not None:
            x = site.equal(x, site.scale(bound)).expand(site.shape)
    return x


@scale_rule("aten::glu")
def gated(site: Site, x: Scale, dim: int = -1) -> Scale:
    """The first half passes, times a sigmoid of the second, which is fixed."""
    site.pin(x.map(lambda label: label.chunk(2, dim)[1]), "enters a sigmoid")
    return x.map(lambda label: label.chunk(2, dim)[0])


@scale_rule("aten::where")
def where(site: Site, condition: Integers, x: Operand, y: Operand) -> Scale:
    """Either tensor may be chosen, so both must have one scale."""
    return site.equal(site.scale(x), site.scale(y)).expand(site.shape)


@scale_rule("aten::masked_fill")
def masked_fill(site: Site, x: Scale, mask: Integers, value: Operand) -> Scale:
    """Entries replaced by a constant; zeros and infinities replace at no cost."""
    return site.equal(x, site.scale(value)).expand(site.shape)


@scale_rule(
    *READ, "aten::_assert_tensor_metadata", "aten::_assert_async", "aten::sym_size"
)
def observe(site: Site, x: Scale | Integers, *_: Any, **__: Any) -> Scale:
    """A number read by the program must not change (shapes and types never do)."""
    if site.node.name in READ:
        site.pin(site.scale(x), "read as a number by the program")
    return unscaled(())
