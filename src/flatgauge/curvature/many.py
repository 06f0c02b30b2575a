"""Products with many vectors at once, where calls cost more than what they compute."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod

import torch

from flatgauge.curvature.agreement import is_same_product
from flatgauge.vectors import Params, gaussian, generator


class ManyProducts(ABC):
    """The product with one batch, for one vector or for several.

    Not every operation can be done for several vectors by torch, and not every rule for
    that need be right: at the first time both ways are compared on this very batch.
    """

    _agrees: bool | None = None

    @abstractmethod
    def pulled(self, vector: Params, *, together: bool) -> Params:
        """A_b v; if `together`, vectors are stacked along a leading dimension."""

    def __call__(self, vector: Params) -> Params:
        """A_b v."""
        return self.pulled(vector, together=False)

    def many(self, vectors: list[Params]) -> list[Params]:
        """A_b v for vectors v of the same tensors."""
        if self._agrees is None:
            random = generator(0)
            tried = [gaussian(vectors[0], random) for _ in range(2)]
            right, found = [self(one) for one in tried], self._at_once(tried)
            self._agrees = found is not None and all(
                is_same_product(*pair) for pair in zip(found, right, strict=True)
            )
        images = self._at_once(vectors) if self._agrees else None
        return [self(vector) for vector in vectors] if images is None else images

    def _at_once(self, vectors: list[Params]) -> list[Params] | None:
        """None where an operation of the backward cannot be done for several."""
        stacked = {n: torch.stack([one[n] for one in vectors]) for n in vectors[0]}
        try:
            with warnings.catch_warnings():
                # Of operations that are done one by one.
                warnings.simplefilter("ignore")
                images = self.pulled(stacked, together=True)
        except RuntimeError:
            return None
        return [{n: t[i] for n, t in images.items()} for i in range(len(vectors))]
