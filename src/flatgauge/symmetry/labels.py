"""Log-scales of tensors, written as sums of labelled variables.

A rescaling multiplies every entry of a tensor by exp(s). The log-scale s of a tensor is
a `Scale`: a sum of terms `coefficient * variable[label]`, where the labels form an int64
tensor of the very shape of the tensor they describe. A label tensor has stride 0
wherever it is constant (over the batch, over space, over time), so that it costs no
more memory than the variables it names, and reshaping a tensor is reshaping its labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

ANY = -1
"""The label of an exact zero or an infinity, which every scale leaves as it is."""


@dataclass(frozen=True)
class Scale:
    """The log-scale of a tensor of shape `shape`: Σ coefficient · variable[label].

    Attributes:
        shape: The shape of the tensor, and of every label tensor.
        terms: Pairs of a coefficient and an int64 label tensor; none means scale 0.
        zeros: Whether some labels may be `ANY`.
        gauges: Names of parameters whose row-column freedom is visible in `terms`.
    """

    shape: torch.Size
    terms: tuple[tuple[float, Tensor], ...] = ()
    zeros: bool = False
    gauges: frozenset[str] = frozenset()

    def __add__(self, other: Scale) -> Scale:
        """The scale of the product of two tensors (which broadcast)."""
        shape = torch.broadcast_shapes(self.shape, other.shape)
        return Scale(
            shape,
            _merge([*self.expand(shape).terms, *other.expand(shape).terms]),
            self.zeros or other.zeros,
            self.gauges | other.gauges,
        )

    def __mul__(self, power: float) -> Scale:
        """The scale of the tensor raised to a power."""
        if power == 0:
            return Scale(self.shape)
        return replace(self, terms=tuple((power * c, label) for c, label in self.terms))

    def __sub__(self, other: Scale) -> Scale:
        """The scale of the quotient of two tensors."""
        return self + other * -1.0

    def map(self, structural: Callable[[Tensor], Tensor]) -> Scale:
        """Move the labels as `structural` moves the entries of a tensor."""
        if not self.terms:
            ghost = torch.empty(self.shape, dtype=torch.int64, device="meta")
            return Scale(structural(ghost).shape)
        terms = tuple((c, structural(label)) for c, label in self.terms)
        return replace(self, shape=terms[0][1].shape, terms=terms)

    def expand(self, shape: Sequence[int]) -> Scale:
        """Broadcast to a larger shape."""
        if tuple(shape) == tuple(self.shape):
            return self
        terms = tuple((c, label.expand(shape)) for c, label in self.terms)
        return replace(self, shape=torch.Size(shape), terms=terms)

    def reshape(self, shape: Sequence[int]) -> Scale:
        """Reshape, keeping stride 0 wherever the labels are constant."""
        terms = tuple((c, reshape(label, shape)) for c, label in self.terms)
        return replace(self, shape=torch.Size(shape), terms=terms)

    def first(self, dims: Iterable[int]) -> Scale:
        """The scale at index 0 along `dims`, which keep size 1."""
        chosen = {dim % len(self.shape) for dim in dims}
        shape = torch.Size(1 if d in chosen else n for d, n in enumerate(self.shape))
        terms = tuple(
            (c, label.as_strided(shape, label.stride(), label.storage_offset()))
            for c, label in self.terms
        )
        return replace(self, shape=shape, terms=terms)

    def varies(self, dim: int) -> bool:
        """Whether the labels may differ along `dim`."""
        return any(varies(label, dim) for _, label in self.terms)


def unscaled(shape: Sequence[int]) -> Scale:
    """The scale 0 of a constant."""
    return Scale(torch.Size(shape))


def nothing(shape: Sequence[int]) -> Scale:
    """The scale of exact zeros or infinities, which agrees with every other scale."""
    label = torch.tensor(ANY).expand(tuple(shape))
    return Scale(label.shape, ((1.0, label),), zeros=True)


def varies(label: Tensor, dim: int) -> bool:
    """Whether a label tensor may differ along `dim`."""
    return label.shape[dim] > 1 and label.stride(dim) != 0


def squeeze(labels: Sequence[Tensor]) -> list[Tensor]:
    """Keep one index of every dimension along which none of the labels varies."""
    shape = labels[0].shape
    kept = [
        size if any(varies(label, dim) for label in labels) else 1
        for dim, size in enumerate(shape)
    ]
    return [
        label.as_strided(kept, label.stride(), label.storage_offset())
        for label in labels
    ]


def settle(label: Tensor) -> Tensor:
    """Give stride 0 to every dimension along which the labels turn out constant."""
    (small,) = squeeze([label])
    for dim in range(small.ndim):
        if small.shape[dim] > 1:
            head = small.narrow(dim, 0, 1)
            if torch.equal(head.expand_as(small), small):
                small = head
    return small.expand(label.shape)


def reshape(label: Tensor, shape: Sequence[int]) -> Tensor:
    """Reshape a label tensor without spreading out its constant dimensions.

    Old and new dimensions are cut into the smallest groups with equal products; only
    within a group that varies are labels laid out in full. A dimension that is split
    may come apart into one that varies and one that does not.
    """
    shape = tuple(shape)
    if tuple(label.shape) == shape:
        return label
    if label.numel() == 0:
        return label.reshape(shape)
    middle, target = [], []
    source, split = label, False
    for old, new in _groups(tuple(label.shape), shape):
        constant = not any(varies(label, dim) for dim in old)
        if constant:
            for dim in old:
                source = source.narrow(dim, 0, 1)
        middle.extend([1] * len(new) if constant else [shape[dim] for dim in new])
        target.extend(shape[dim] for dim in new)
        split |= not constant and sum(shape[dim] > 1 for dim in new) > 1
    result = source.reshape(middle).expand(target)
    return settle(result) if split else result


def _groups(
    old: tuple[int, ...], new: tuple[int, ...]
) -> list[tuple[list[int], list[int]]]:
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        left, right = [], []
        a = b = 1
        while (not left and not right) or a != b:
            if (a <= b and i < len(old)) or j >= len(new):
                left.append(i)
                a *= old[i]
                i += 1
            else:
                right.append(j)
                b *= new[j]
                j += 1
        groups.append((left, right))
    return groups


def _merge(terms: Iterable[tuple[float, Tensor]]) -> tuple[tuple[float, Tensor], ...]:
    merged: dict[tuple[object, ...], tuple[float, Tensor]] = {}
    for coefficient, label in terms:
        strides = tuple(
            label.stride(d) if varies(label, d) else 0 for d in range(label.ndim)
        )
        key = (label.data_ptr(), strides)
        previous = merged[key][0] if key in merged else 0.0
        merged[key] = (previous + coefficient, label)
    return tuple(term for term in merged.values() if term[0] != 0)
