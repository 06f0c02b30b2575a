"""The linear system of a network: which log-scales must agree for it to stay the same.

Variables are handed out in blocks; every rule adds equations between `Scale`s. An
equation may be marked as approximate: it demands that a normalization layer's eps be
negligible no more, so it binds the exact group only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flatgauge.symmetry.labels import ANY, Scale, squeeze
from flatgauge.symmetry.solve import Array, Matrix, compress

ZERO = 0
"""The variable that is always zero."""


@dataclass(frozen=True)
class Gauge:
    """A block of variables that can be shifted together without any effect.

    Attributes:
        count: The number of independent shifts (one per group of a grouped convolution).
        start: The first variable of the block.
        stop: The variable after its last.
    """

    count: int
    start: int
    stop: int

    def frees(self, scale: Scale, shared: int, offsets: int) -> bool:
        """Whether its shifts move `offsets` parts of a scale independently.

        Args:
            scale: with one part for each index of its first dimensions.
            shared: how many dimensions those are.
            offsets: the number of parts that differ.
        """
        inside, blocks = 0.0, 1
        for coefficient, label in scale.terms:
            (small,) = squeeze([label])
            if small.numel() and self.start <= int(small.max()) < self.stop:
                inside += coefficient
                heads = small[(slice(None),) * shared + (0,) * (small.ndim - shared)]
                blocks = int(heads.unique().numel())
        return inside != 0 and self.count == offsets == blocks


class System:
    """Homogeneous linear equations between variables, gathered as arrays.

    Attributes:
        count: The number of variables so far; variable 0 is always zero.
        open_gauges: Parameters whose row and column variables may still be shifted
            together without changing the parameter.
        loose: Whether there are other variables that may move without any effect.
    """

    def __init__(self) -> None:
        self.count = 1
        self.open_gauges: dict[str, Gauge] = {}
        self.loose = False
        self._equations: list[tuple[Array, Array]] = []
        self._exact_only: list[tuple[Array, Array]] = []
        self._tags: list[tuple[str, Array]] = []

    def variables(self, shape: Sequence[int]) -> Tensor:
        """A block of new variables, as a label tensor of the given shape."""
        size = int(np.prod(shape, dtype=np.int64))
        labels = torch.arange(self.count, self.count + size).reshape(tuple(shape))
        self.count += size
        return labels

    def vanish(self, scale: Scale, *, approximately: bool = False) -> None:
        """Demand that every entry of `scale` be zero.

        Args:
            scale: The left-hand side of the equations.
            approximately: Whether only the exact group must obey.
        """
        if not scale.terms:
            return
        labels = torch.stack(
            [
                label.reshape(-1)
                for label in squeeze([label for _, label in scale.terms])
            ]
        )
        if scale.zeros:
            labels = labels[:, (labels != ANY).all(dim=0)]
        coefficients = np.array([coefficient for coefficient, _ in scale.terms])
        target = self._exact_only if approximately else self._equations
        target.append((coefficients, labels.numpy()))

    def fix_the_unconstrained(self, scales: Iterable[Scale]) -> None:
        """Demand that those variables of `scales` be zero that no equation knows."""
        known = np.zeros(self.count, bool)
        for _, labels in (*self._equations, *self._exact_only):
            known[labels] = True
        for scale in scales:
            for _, label in scale.terms:
                free = squeeze([label])[0].reshape(-1).unique()
                free = free[~torch.from_numpy(known)[free]]
                if free.numel():
                    self.vanish(Scale(free.shape, ((1.0, free),)))

    def collapse(self, scale: Scale) -> Scale:
        """The same scale as a single term, by new variables where there were more."""
        if not scale.terms:
            label = torch.tensor(ZERO).expand(scale.shape)
            return Scale(scale.shape, ((1.0, label),))
        if len(scale.terms) == 1 and scale.terms[0][0] == 1.0:
            return scale
        labels = squeeze([label for _, label in scale.terms])
        fresh = self.variables(labels[0].shape)
        self.vanish(scale - Scale(scale.shape, ((1.0, fresh.expand(scale.shape)),)))
        if scale.zeros:
            self.loose = True
            fresh = fresh.masked_fill(
                torch.stack([label == ANY for label in labels]).any(dim=0), ANY
            )
        return Scale(scale.shape, ((1.0, fresh.expand(scale.shape)),), scale.zeros)

    def constant_along(self, like: Scale, dims: Sequence[int]) -> Scale:
        """A scale of new variables that varies as `like` does, but not along `dims`."""
        self.loose = True
        sizes = [
            size if like.varies(dim) and dim not in dims else 1
            for dim, size in enumerate(like.shape)
        ]
        return Scale(like.shape, ((1.0, self.variables(sizes).expand(like.shape)),))

    def tag(self, scale: Scale, name: str) -> None:
        """Remember that the variables of `scale` play the part `name`."""
        for _, label in scale.terms:
            self._tags.append((name, squeeze([label])[0].reshape(-1).numpy()))

    def equations(self) -> tuple[Matrix, Array, Array]:
        """The equations of both groups: long ones, equal pairs, zero variables."""
        equal = [np.zeros((2, 0), np.int64)]
        zero = [np.array([ZERO])]
        rest = []
        for coefficients, labels in self._equations:
            if len(coefficients) == 1:
                zero.append(labels[0])
            elif len(coefficients) == 2 and coefficients.sum() == 0:
                equal.append(labels)
            else:
                rest.append((coefficients, labels))
        return (
            _matrix(rest, self.count),
            np.concatenate(equal, axis=1),
            np.concatenate(zero),
        )

    def matrix(self) -> Matrix:
        """All equations of both groups, as one matrix."""
        return _matrix(self._equations, self.count)

    def exact_equations(self) -> Matrix:
        """The further equations of the exact group."""
        return _matrix(self._exact_only, self.count)

    def tags(self) -> dict[str, Array]:
        """The variables of each part, by its name."""
        parts: dict[str, list[Array]] = {}
        for name, variables in self._tags:
            parts.setdefault(name, []).append(variables[variables != ANY])
        return {name: np.concatenate(pieces) for name, pieces in parts.items()}


def _matrix(blocks: list[tuple[Array, Array]], width: int) -> Matrix:
    rows, columns, values = (
        [np.zeros(0, np.int64)],
        [np.zeros(0, np.int64)],
        [np.zeros(0)],
    )
    height = 0
    for coefficients, labels in blocks:
        terms, size = labels.shape
        rows.append(np.tile(np.arange(height, height + size), terms))
        columns.append(labels.reshape(-1))
        values.append(np.repeat(coefficients, size))
        height += size
    return compress(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(height, width),
    )
