"""Fourier transforms and complex numbers: a factor c > 0 passes through all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flatgauge.symmetry.labels import Scale, unscaled
from flatgauge.symmetry.rules.registry import scale_rule
from flatgauge.symmetry.site import Integers, Site


def _transformed(site: Site, x: Scale, dims: Sequence[int]) -> Scale:
    """Every result is a sum over all entries along `dims`, which share one scale."""
    return site.uniform(x, dims).expand(site.shape)


@scale_rule(
    "aten::fft_fft", "aten::fft_ifft", "aten::fft_rfft", "aten::fft_irfft",
    "aten::fft_hfft", "aten::fft_ihfft",
)  # fmt: skip
def transform(site: Site, x: Scale, n: Any = None, dim: int = -1, *_: Any) -> Scale:
    """A transform along one dimension."""
    return _transformed(site, x, [dim])


@scale_rule(
    "aten::fft_fftn", "aten::fft_ifftn", "aten::fft_rfftn", "aten::fft_irfftn",
    "aten::fft_hfftn", "aten::fft_ihfftn",
)  # fmt: skip
def transform_many(
    site: Site, x: Scale, sizes: Sequence[int] | None = None,
    dim: Sequence[int] | None = None, *_: Any,
) -> Scale:  # fmt: skip
    """A transform along the dimensions given, else the last ones, else all."""
    count = len(x.shape) if sizes is None else len(sizes)
    return _transformed(site, x, range(-count, 0) if dim is None else dim)


@scale_rule(
    "aten::fft_fft2", "aten::fft_ifft2", "aten::fft_rfft2", "aten::fft_irfft2",
    "aten::fft_hfft2", "aten::fft_ihfft2",
)  # fmt: skip
def transform_two(
    site: Site, x: Scale, sizes: Any = None, dim: Sequence[int] = (-2, -1), *_: Any
) -> Scale:
    """A transform along two dimensions."""
    return _transformed(site, x, dim)


@scale_rule("aten::_fft_r2c", "aten::_fft_c2c", "aten::_fft_c2r")
def kernel(site: Site, x: Scale, dim: Sequence[int], *_: Any) -> Scale:
    """What all transforms come down to."""
    return _transformed(site, x, dim)


@scale_rule("aten::view_as_real", "aten::view_as_real_copy")
def parts(site: Site, x: Scale) -> Scale:
    """Real and imaginary part along a new last dimension."""
    return x.reshape([*x.shape, 1]).expand(site.shape)


@scale_rule("aten::view_as_complex", "aten::view_as_complex_copy")
def joined(site: Site, x: Scale) -> Scale:
    """The last dimension is that of real and imaginary part."""
    return site.uniform(x, [-1]).reshape(site.shape)


@scale_rule("aten::complex")
def made_complex(site: Site, real: Scale | Integers, imaginary: Scale) -> Scale:
    """Real and imaginary part of one number have its scale."""
    return site.equal(site.scale(real), site.scale(imaginary)).expand(site.shape)


@scale_rule("aten::polar")
def polar(site: Site, length: Scale | Integers, angle: Scale | Integers) -> Scale:
    """A length with its scale, and an angle, which must stay."""
    site.pin(site.scale(angle), "an angle")
    return site.scale(length).expand(site.shape)


@scale_rule("aten::angle")
def angle(site: Site, x: Scale) -> Scale:
    """A factor c > 0 turns nothing."""
    return unscaled(site.shape)
