"""Scaled dot-product attention, in all the forms that torch dispatches it to."""

from __future__ import annotations

from typing import Any

from flatgauge.symmetry.labels import Scale, unscaled
from flatgauge.symmetry.rules.contraction import contract
from flatgauge.symmetry.rules.registry import scale_rule
from flatgauge.symmetry.site import Site


@scale_rule("aten::scaled_dot_product_attention")
def attention(
    site: Site, query: Scale, key: Scale, value: Scale, mask: Any = None, *_: Any,
    **__: Any,
) -> Scale:  # fmt: skip
    """softmax(q kᵀ) v: the scales of q and k cancel, those of v pass through."""
    for scale in (query, key, value):
        site.tag(scale, "attention")
    lead = "abcdefg"[: len(query.shape) - 2]
    batch = query.shape[:-2]
    key, value = _match_heads(key, query), _match_heads(value, query)
    key = key.expand([*batch, *key.shape[-2:]])
    value = value.expand([*batch, *value.shape[-2:]])
    scores = contract(site, f"{lead}QD,{lead}KD->{lead}QK", query, key)
    site.pin(scores, "enters a softmax")
    if isinstance(mask, Scale):
        site.pin(mask, "enters a softmax")
    weights = unscaled([*batch, query.shape[-2], key.shape[-2]])
    result = contract(site, f"{lead}QK,{lead}KV->{lead}QV", weights, value)
    return result.expand([*batch, query.shape[-2], value.shape[-1]])


def _match_heads(scale: Scale, query: Scale) -> Scale:
    """Repeat the heads of grouped-query attention."""
    if len(scale.shape) < 3 or scale.shape[-3] in (1, query.shape[-3]):
        return scale
    times = query.shape[-3] // scale.shape[-3]
    return scale.map(lambda label: label.repeat_interleave(times, dim=-3))


@scale_rule(
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_attention_math",
    "aten::_scaled_dot_product_fused_attention_overrideable",
)
def fused_attention(
    site: Site, query: Scale, key: Scale, value: Scale, *options: Any, **named: Any
) -> tuple[Any, ...]:
    """The same, from a kernel that also returns what its backward pass needs."""
    masks = [x for x in (*options, *named.values()) if isinstance(x, Scale)]
    result = attention(site, query, key, value, *masks[:1])
    return (result, *[None] * (len(site.node.outputs) - 1))
