"""Functions of torch whose kernels lack derivatives, composed of others.

Each takes what torch's function of the same name takes, and returns the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_embedding_bag = functional.embedding_bag
_group_norm = functional.group_norm
_batch_norm = torch.batch_norm


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x + 3, 0), 6) / 6; never in place, which nobody can tell from outside.

    >>> hardsigmoid(torch.tensor([-4.0, 0.0, 3.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    found = functional.relu6(input + 3) / 6
    return input.copy_(found) if inplace else found


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum of the embeddings of each bag; 0 for an empty one.

    What changes weights or gradients on the side is left to torch's own.
    """
    if max_norm is not None or scale_grad_by_freq:
        more = (scale_grad_by_freq, mode, sparse, per_sample_weights)
        last = (include_last_offset, padding_idx)
        return _embedding_bag(input, weight, offsets, max_norm, norm_type, *more, *last)
    there: Tensor | None = None
    if offsets is not None:
        places, there = _places(offsets, input.shape[0], include_last_offset)
        input = input[places] if input.numel() else torch.zeros_like(places)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights[places]
    if padding_idx is not None:
        own = input != padding_idx % weight.shape[0]
        there = own if there is None else there & own
    entries = functional.embedding(input, weight)
    if per_sample_weights is not None:
        entries = entries * per_sample_weights[..., None]
    if there is None:
        if input.shape[1] == 0:
            return entries.sum(1)
        return entries.amax(1) if mode == "max" else getattr(entries, mode)(1)
    if mode == "max":
        entries = entries.masked_fill(~there[..., None], -torch.inf)
        largest = entries.amax(1) if entries.shape[1] else entries.sum(1)
        return torch.where(there.any(1)[:, None], largest, 0.0)
    total = (entries * there[..., None]).sum(1)
    if mode == "sum":
        return total
    return total / there.sum(1).clamp_min(1)[:, None]


def _places(offsets: Tensor, count: int, last: bool) -> tuple[Tensor, Tensor]:
    """Where the entries of each bag are, [bags, longest], and which of these there are."""
    ends = offsets if last else torch.cat([offsets, offsets.new_tensor([count])])
    lengths = ends.diff()
    longest = int(lengths.max()) if lengths.numel() else 0
    steps = torch.arange(longest, device=offsets.device)
    places = ends[:-1, None] + steps
    return places.clamp_max(max(count - 1, 0)), steps < lengths[:, None]


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Torch's own of an input in plain order.

    On a CPU its backward ends the process where the channels come last and the slope of
    the input is not asked for (torch 2.13).
    """
    plain = input.contiguous() if input.device.type == "cpu" else input
    return _group_norm(plain, num_groups, weight, bias, eps)


def batch_norm(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Torch's own, whose output's gradients come in plain order.

    Of a single sample its backward on a CPU is wrong where the channels of the gradient come
    last and the stride over samples, of which there is one, is not the usual one, as behind
    `flatten(2).transpose(1, 2)` (torch 2.13).
    """
    output = _batch_norm(input, *args, **kwargs)
    if output.requires_grad and len(input) == 1 and input.device.type == "cpu":
        output.register_hook(Tensor.contiguous)
    return output


@contextmanager
def composed_kernels() -> Iterator[None]:
    """Modules and models call these instead of torch's own, as long as it lasts."""
    places: list[tuple[Any, dict[str, Any]]] = [
        (
            functional,
            {
                "hardsigmoid": hardsigmoid,
                "embedding_bag": embedding_bag,
                "group_norm": group_norm,
            },
        ),
        (torch, {"batch_norm": batch_norm}),
    ]
    before = [{name: getattr(place, name) for name in ours} for place, ours in places]
    for place, ours in places:
        vars(place).update(ours)
    try:
        yield
    finally:
        for (place, _), old in zip(places, before, strict=True):
            vars(place).update(old)
