"""Operators that reduce, pool or accumulate along dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flatgauge.symmetry.labels import Scale, unscaled
from flatgauge.symmetry.rules.registry import scale_rule
from flatgauge.symmetry.site import Integers, Site

Dims = int | Sequence[int] | None


def reduce(site: Site, x: Scale, dims: Dims, keepdim: bool) -> Scale:
    """One scale along the reduced dimensions, which disappear unless kept."""
    rank = len(x.shape)
    chosen = [dims] if isinstance(dims, int) else list(dims or range(rank))
    common = site.uniform(x, chosen)
    if keepdim:
        return common
    gone = {dim % rank for dim in chosen}
    return common.reshape([n for d, n in enumerate(x.shape) if d not in gone])


@scale_rule(
    "aten::mean", "aten::sum", "aten::amax", "aten::amin", "aten::nansum",
    "aten::any", "aten::all", "aten::argmax", "aten::argmin",
)  # fmt: skip
def linear_reduction(
    site: Site, x: Scale, dim: Dims = None, keepdim: bool = False, **_: Any
) -> Scale:
    """Sums and extrema of entries that share a scale."""
    return reduce(site, x, dim, keepdim)


@scale_rule("aten::max", "aten::min", "aten::median", "aten::mode")
def extremum(
    site: Site, x: Scale, dim: int | Scale | None = None, keepdim: bool = False
) -> Scale | tuple[Scale, ...]:
    """With a dimension: values and indices; with another tensor: entrywise."""
    if isinstance(dim, Scale):
        return site.equal(x, dim).expand(site.shape)
    reduced = reduce(site, x, dim, keepdim)
    return reduced if site.node.single else (reduced, reduced)


@scale_rule("aten::var", "aten::std", "aten::var_mean", "aten::std_mean")
def spread(
    site: Site, x: Scale, dim: Dims | bool = None, *_: Any, **__: Any
) -> Scale | tuple[Scale, Scale]:
    """The variance has twice the scale, the deviation once."""
    dims = None if isinstance(dim, bool) else dim
    reduced = reduce(site, x, dims, keepdim=len(site.shape) == len(x.shape))
    moment = reduced * 2.0 if "var" in site.node.name else reduced
    return (moment, reduced) if site.node.name.endswith("_mean") else moment


@scale_rule("aten::linalg_vector_norm", "aten::norm", "aten::frobenius_norm")
def vector_norm(
    site: Site, x: Scale, order: int | float = 2, dim: Dims = None, keepdim: bool = False,
    **_: Any,
) -> Scale:  # fmt: skip
    """A norm has the scale of its entries; the 0-norm counts and has none."""
    reduced = reduce(site, x, dim, keepdim)
    return unscaled(reduced.shape) if order == 0 else reduced


@scale_rule("aten::prod")
def product(
    site: Site, x: Scale, dim: int | None = None, keepdim: bool = False, **_: Any
) -> Scale:
    """A product of n entries has n times their scale."""
    count = x.shape.numel() if dim is None else x.shape[dim]
    return reduce(site, x, dim, keepdim) * float(count)


@scale_rule(
    "aten::softmax", "aten::_softmax", "aten::log_softmax", "aten::_log_softmax",
    "aten::logsumexp", "aten::_safe_softmax", "aten::softmin",
)  # fmt: skip
def softmax(site: Site, x: Scale, *_: Any, **__: Any) -> Scale:
    """Exponentials have a scale of their own."""
    site.pin(x, "enters a softmax")
    return unscaled(site.shape)


@scale_rule(
    "aten::cumsum", "aten::sort", "aten::topk", "aten::argsort", "aten::kthvalue"
)
def ordered(
    site: Site, x: Scale, *arguments: Any, dim: int | None = None, **_: Any
) -> Any:
    """Entries that change places along one dimension must share a scale."""
    takes_count = site.node.name in ("aten::topk", "aten::kthvalue")
    position = 1 if takes_count else 0
    given = [a for a in arguments[position:] if type(a) is int]
    axis = dim if dim is not None else (given[0] if given else -1)
    common = site.uniform(x, [axis])
    if site.node.name == "aten::kthvalue":
        return (common.reshape(site.shape),) * 2
    spread_out = common.expand(site.shape)
    return spread_out if site.node.single else (spread_out, None)


@scale_rule(
    "aten::max_pool1d", "aten::max_pool2d", "aten::max_pool3d", "aten::avg_pool1d",
    "aten::avg_pool2d", "aten::avg_pool3d", "aten::adaptive_avg_pool1d",
    "aten::adaptive_avg_pool2d", "aten::adaptive_avg_pool3d",
    "aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d",
    "aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices",
    "aten::adaptive_max_pool1d", "aten::adaptive_max_pool2d",
    "aten::max_pool1d_with_indices", "aten::upsample_nearest1d",
    "aten::upsample_nearest2d", "aten::upsample_nearest3d", "aten::upsample_bilinear2d",
    "aten::upsample_linear1d", "aten::upsample_trilinear3d", "aten::upsample_bicubic2d",
    "aten::_upsample_bilinear2d_aa", "aten::_upsample_bicubic2d_aa",
    "aten::upsample_nearest_exact2d", "aten::_upsample_nearest_exact2d",
)  # fmt: skip
def pool(site: Site, x: Scale, *_: Any, **__: Any) -> Any:
    """Pooling and interpolation mix positions of one channel."""
    space = range(_channel_dim(site, x) + 1, len(x.shape))
    pooled = site.uniform(x, space).expand(site.shape)
    return pooled if site.node.single else (pooled, None)


def _channel_dim(site: Site, x: Scale) -> int:
    spatial = next(n for n in (1, 2, 3) if f"{n}d" in site.node.name)
    return len(x.shape) - spatial - 1


@scale_rule("aten::diff")
def difference(site: Site, x: Scale, n: int = 1, dim: int = -1, *_: Any) -> Scale:
    """Differences of neighbours along one dimension."""
    return site.uniform(x, [dim]).expand(site.shape)


@scale_rule("aten::cdist", "aten::_cdist_forward", "aten::cosine_similarity")
def distances(site: Site, x: Scale, y: Scale, *_: Any, **__: Any) -> Scale:
    """Distances mix all entries of both tensors."""
    common = site.equal(
        site.uniform(x).reshape(()), site.uniform(y).reshape(())
    ).expand(site.shape)
    if site.node.name == "aten::cosine_similarity":
        site.epsilon(common)
        return unscaled(site.shape)
    return common


@scale_rule("aten::scatter_reduce", "aten::index_reduce")
def accumulate_by(
    site: Site,
    x: Scale,
    dim: int,
    index: Integers,
    source: Scale,
    reduce: str,
    **_: Any,
) -> Scale:
    """The same by sums, means or extrema; products have scales of their own."""
    by = "multiply" if reduce == "prod" else "add"
    return accumulate(site, x, dim, index, source, reduce=by)


@scale_rule("aten::index_add", "aten::scatter_add", "aten::scatter", "aten::index_copy")
def accumulate(
    site: Site,
    x: Scale,
    dim: int,
    index: Integers,
    source: Scale | Integers | int | float,
    *,
    reduce: str = "add",
    **_: Any,
) -> Scale:
    """Entries of another tensor land anywhere along one dimension."""
    if reduce != "add":
        site.pin(x, "scattered into by products")
        site.pin(site.scale(source), "scattered by products")
        return unscaled(site.shape)
    common = site.uniform(x, [dim])
    landed = site.scale(source)
    if isinstance(source, Scale):
        landed = site.uniform(landed, [dim])
        if landed.shape != common.shape:
            common, landed = site.uniform(x), site.uniform(landed)
    return site.equal(common, landed).expand(site.shape)
