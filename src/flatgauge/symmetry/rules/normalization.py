"""Normalization layers: the scale of the input cancels, up to eps.

Each demands one scale s over what it normalizes, and through eps that 2 s = 0 of the
exact group; its output has the scale of its gain, which is that of its bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flatgauge.symmetry.labels import Scale, unscaled
from flatgauge.symmetry.rules.reduction import reduce
from flatgauge.symmetry.rules.registry import scale_rule
from flatgauge.symmetry.site import Site

BATCH_NORMS = {
    "aten::batch_norm", "aten::_native_batch_norm_legit_no_training",
    "aten::native_batch_norm", "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit_functional", "aten::cudnn_batch_norm",
}  # fmt: skip


def _affine(site: Site, gain: Scale | None, bias: Scale | None) -> Scale:
    """The scale of a normalized tensor after gain and bias."""
    result = unscaled(()) if gain is None else gain
    if gain is not None:
        site.tag(gain, "norm")
    return result if bias is None else site.equal(result, bias)


def _normalize(site: Site, scale: Scale, eps: int | float | None) -> None:
    site.tag(scale, "norm")
    if eps is None or eps > 0:
        site.epsilon(scale)


def _outputs(site: Site, result: Scale) -> Any:
    """The result, with nothing for the statistics that some kernels return too."""
    rest = (None,) * (len(site.node.outputs) - 1)
    return result if site.node.single else (result, *rest)


@scale_rule("aten::layer_norm", "aten::native_layer_norm")
def layer_norm(
    site: Site, x: Scale, shape: Sequence[int], gain: Scale | None = None,
    bias: Scale | None = None, eps: int | float | None = 1e-5, *_: Any,
) -> Any:  # fmt: skip
    """(x - mean) / √(var + eps) over the last dimensions."""
    dims = range(len(x.shape) - len(shape), len(x.shape))
    _normalize(site, site.uniform(x, dims), eps)
    return _outputs(site, _affine(site, gain, bias).expand(site.shape))


@scale_rule("aten::rms_norm", "aten::_fused_rms_norm")
def rms_norm(
    site: Site, x: Scale, shape: Sequence[int], gain: Scale | None = None,
    eps: int | float | None = None, *_: Any,
) -> Any:  # fmt: skip
    """The quotient x / √(mean x² + eps) over the last dimensions."""
    return layer_norm(site, x, shape, gain, None, eps)


@scale_rule("aten::group_norm")
def group_norm(
    site: Site, x: Scale, groups: int, gain: Scale | None = None,
    bias: Scale | None = None, eps: int | float = 1e-5, *_: Any,
) -> Scale:  # fmt: skip
    """Normalization over the channels of a group and all positions."""
    channels = x.shape[1]
    cut = x.reshape([x.shape[0], groups, channels // groups, *x.shape[2:]])
    _normalize(site, site.uniform(cut, range(2, len(cut.shape))), eps)
    affine = _affine(site, gain, bias)
    if affine.shape:
        affine = affine.reshape([channels] + [1] * (len(x.shape) - 2))
    return affine.expand(site.shape)


@scale_rule("aten::native_group_norm")
def native_group_norm(
    site: Site, x: Scale, gain: Scale | None, bias: Scale | None, batch: int,
    channels: int, positions: int, groups: int, eps: int | float,
) -> Any:  # fmt: skip
    """The kernel behind `group_norm`."""
    return _outputs(site, group_norm(site, x, groups, gain, bias, eps))


@scale_rule("aten::instance_norm")
def instance_norm(
    site: Site, x: Scale, gain: Scale | None, bias: Scale | None, mean: Scale | None,
    variance: Scale | None, use_input: bool, momentum: Any, eps: int | float, *_: Any,
) -> Scale:  # fmt: skip
    """Normalization of each channel of each sample over its positions."""
    if not use_input:
        site.pin(x, "an instance norm with running statistics")
        return unscaled(site.shape)
    return group_norm(site, x, x.shape[1], gain, bias, eps)


@scale_rule(*BATCH_NORMS)
def batch_norm(
    site: Site, x: Scale, gain: Scale | None, bias: Scale | None, *options: Any
) -> Any:
    """Normalization by the batch or by running statistics, in the variant asked for.

    With running mean m and variance v, an input scaled by exp(s) needs m scaled alike.
    "joint" and "eps-corrected" scale v (or v + eps) by exp(2 s); "eval-only" leaves v
    alone, so that exp(s) passes to the output and the gain undoes it; "parameters"
    leaves both alone, which fixes s.
    """
    mean = variance = None
    if not isinstance(options[0], bool):
        (mean, variance), options = options[:2], options[2:]
    channel = site.uniform(x, [d for d in range(len(x.shape)) if d != 1])
    channel = channel.reshape([x.shape[1]])
    site.tag(channel, "norm")
    eps = options[-2] if site.node.name == "aten::batch_norm" else options[-1]
    frozen = site.node.name.endswith("no_training") or not options[0]
    result = unscaled(()) if gain is None else gain
    if not frozen or mean is None or variance is None:
        _normalize(site, channel, eps)
    else:
        site.equal(mean, channel)
        if site.batchnorm == "eval-only":
            result = result + channel
        else:
            site.equal(variance, channel * 2.0)
        if site.batchnorm == "joint":
            _normalize(site, channel, eps)
        if site.batchnorm == "eps-corrected":
            _remember_shift(site, eps)
    if gain is not None:
        site.tag(gain, "norm")
    if bias is not None:
        result = site.equal(result, bias)
    if result.shape:
        result = result.reshape([x.shape[1]] + [1] * (len(x.shape) - 2))
    return _outputs(site, result.expand(site.shape))


def _remember_shift(site: Site, eps: int | float) -> None:
    """The running variance is rescaled together with its eps."""
    value = site.node.args[4]
    for name, buffer in site.graph.buffers.items():
        if buffer is value:
            site.findings.shifted[name] = eps


@scale_rule("aten::_weight_norm", "aten::_weight_norm_interface")
def weight_norm(site: Site, direction: Scale, length: Scale, dim: int = 0) -> Any:
    """The product g v / ‖v‖, the norm over all dimensions but `dim` (all, where -1)."""
    rank = len(direction.shape)
    dims = [d for d in range(rank) if dim == -1 or d != dim % rank]
    norm = reduce(site, direction, dims, keepdim=True)
    return _outputs(site, (direction - norm + length).expand(site.shape))
