"""Where the variables of a solved system sit in the parameters and buffers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flatgauge.symmetry.labels import Scale, squeeze, varies
from flatgauge.symmetry.solve import Array, Matrix
from flatgauge.symmetry.system import System

LogScale = tuple[Tensor, ...]
"""The log-scale of one tensor: terms that broadcast to its shape and are summed."""


@dataclass(frozen=True)
class Layout:
    """The scales of named tensors, written in the variables of one system.

    Attributes:
        scales: The scale of every parameter and rescalable buffer.
        count: The number of variables.
    """

    scales: dict[str, Scale]
    count: int

    def log_scales(self, variables: Array) -> dict[str, LogScale]:
        """The log-scale of every tensor, as row and column terms, never in full."""
        source = torch.from_numpy(np.ascontiguousarray(variables))
        result: dict[str, LogScale] = {}
        for name, scale in self.scales.items():
            terms = [
                coefficient * source[squeeze([label])[0]]
                for coefficient, label in scale.terms
            ]
            if any(bool(term.any()) for term in terms):
                result[name] = tuple(terms)
        return result

    def gather(self, name: str, entries: Tensor) -> Array:
        """The transpose of `log_scales`: sums of `entries` of one tensor by variable."""
        total = np.zeros(self.count)
        for coefficient, label in self.scales[name].terms:
            (small,) = squeeze([label])
            sums = entries.double().sum_to_size(small.shape).reshape(-1).cpu().numpy()
            flat = small.reshape(-1).numpy()
            total += coefficient * np.bincount(flat, sums, minlength=self.count)
        return total

    def moved(self, names: Iterable[str]) -> Matrix:
        """Rows that span the exponents of the named tensors: they vanish if these do."""
        return self._rows(part for n in names for part in _spanning(self.scales[n]))

    def uneven(self, names: Iterable[str]) -> Matrix:
        """Rows that vanish where every named tensor is scaled as a whole."""
        scales = [self.scales[name] for name in names]
        corners = [scale.first(range(len(scale.shape))) for scale in scales]
        pairs = zip(scales, corners, strict=True)
        return self._rows(part - corner for s, corner in pairs for part in _spanning(s))

    def _rows(self, scales: Iterable[Scale]) -> Matrix:
        system = System()
        system.count = self.count
        for scale in scales:
            system.vanish(scale)
        return system.matrix()


def _spanning(scale: Scale) -> list[Scale]:
    """Slices of a scale whose entries span all of its entries.

    With a[o] - b[i] these are one column and one row: the rest are their sums and
    differences.
    """
    if len(scale.terms) < 2:
        return [scale]
    rank = len(scale.shape)
    dims = [{d for d in range(rank) if varies(t, d)} for _, t in scale.terms]
    return [scale.first(dims[1] - dims[0]), scale.first(dims[0] - dims[1])]
