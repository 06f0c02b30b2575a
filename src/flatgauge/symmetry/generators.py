"""The generators of a group of rescalings, and what they do to parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from torch import Tensor

from flatgauge.symmetry.element import Element
from flatgauge.symmetry.layout import Layout, LogScale
from flatgauge.symmetry.solve import Array, Matrix
from flatgauge.vectors import Params

LABELS = ("attention", "residual stream", "norm", "channel", "neuron")
"""The parts that a generator can play, the most telling first."""


@dataclass(frozen=True)
class Generator:
    """One direction of the group: how fast each tensor's logarithm grows along it.

    Attributes:
        label: What is rescaled: "neuron", "channel", "norm" (in front of or behind a
            normalization layer), "attention" or "residual stream".
        exact: Whether the function is preserved exactly, not only up to an eps.
        exponents: For each tensor that moves, terms that broadcast to its shape and are
            summed.
    """

    label: str
    exact: bool
    exponents: dict[str, LogScale]


class Generators(Sequence[Generator]):
    """All generators, made one by one when asked for: exact ones come first."""

    def __init__(
        self,
        layout: Layout,
        basis: Matrix,
        exact: int,
        tags: dict[str, Array],
    ) -> None:
        self.layout = layout
        self.basis = basis
        self.exact = exact
        self.labels = _labels(basis, tags)

    def __len__(self) -> int:
        return self.basis.shape[1]

    @overload
    def __getitem__(self, index: int) -> Generator: ...
    @overload
    def __getitem__(self, index: slice) -> list[Generator]: ...
    def __getitem__(self, index: int | slice) -> Generator | list[Generator]:
        """The generator with this number."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        column = self.basis[:, [number]].toarray()[:, 0]
        return Generator(
            self.labels[number], number < self.exact, self.layout.log_scales(column)
        )


def _labels(basis: Matrix, tags: dict[str, Array]) -> list[str]:
    touched = (basis != 0).T.astype(np.float64)
    labels = np.full(basis.shape[1], LABELS[-1], dtype=object)
    for name in reversed(LABELS):
        if name in tags:
            indicator = np.zeros(basis.shape[0])
            indicator[tags[name]] = 1.0
            indicator[0] = 0.0
            labels[touched @ indicator > 0] = name
    return labels.tolist()


class VerticalSpace(Sequence[Params]):
    """The directions along which a group moves parameters θ, buffers held fixed.

    The vector of a generator with exponents e is e θ, the derivative of exp(t e) θ at
    t = 0. Vectors are made one by one when asked for; `combine` and `inner` work with
    all of them at the cost of one pass over the parameters.
    """

    def __init__(self, layout: Layout, basis: Matrix, params: Params) -> None:
        self.params = params
        self._layout = layout
        self._basis = basis

    def at(self, params: Params) -> VerticalSpace:
        """The directions of the same generators at another point."""
        return VerticalSpace(self._layout, self._basis, params)

    def __len__(self) -> int:
        return self._basis.shape[1]

    @overload
    def __getitem__(self, index: int) -> Params: ...
    @overload
    def __getitem__(self, index: slice) -> list[Params]: ...
    def __getitem__(self, index: int | slice) -> Params | list[Params]:
        """The vector of one generator."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        coordinates = torch.zeros(len(self), dtype=torch.float64)
        coordinates[range(len(self))[index]] = 1.0
        return self.combine(coordinates)

    def combine(self, coordinates: Tensor) -> Params:
        """V c: the combination of all vectors with the given coordinates."""
        exponents = self._exponents(coordinates)
        result: Params = {}
        for name, tensor in self.params.items():
            total = torch.zeros_like(tensor)
            for term in exponents.get(name, ()):
                total = total + tensor * term.to(tensor)
            result[name] = total
        return result

    def flow(self, coordinates: Tensor) -> Params:
        """exp(e) θ: the point that the combined generators lead to in unit time."""
        moved = Element(self._exponents(coordinates))
        return {name: moved.apply(name, tensor) for name, tensor in self.params.items()}

    def inner(self, vector: Params) -> Tensor:
        """Vᵀ u: the Euclidean inner product of every vector with `vector`."""
        total = np.zeros(self._layout.count)
        for name, tensor in self.params.items():
            if name in self._layout.scales:
                total += self._layout.gather(name, tensor * vector[name])
        return torch.from_numpy(self._basis.T @ total)

    def _exponents(self, coordinates: Tensor) -> dict[str, LogScale]:
        variables = self._basis @ coordinates.double().cpu().numpy()
        return self._layout.log_scales(variables)
