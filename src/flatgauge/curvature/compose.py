"""Operators made of operators: S A S, A + c I, the compression P A P, and a block of A."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.errors import NonFiniteError
from flatgauge.vectors import Params, add, is_finite, multiply


class Composed(SymmetricOperator):
    """An operator whose products are made of those of another one."""

    def __init__(self, operator: SymmetricOperator):
        self.operator = operator
        self.space = operator.space
        self.memory = operator.memory

    @property
    def rounding(self) -> float:
        """That of the other operator."""
        return self.operator.rounding

    def check(self, images: list[Params]) -> None:
        """As the other operator does: its parts are still apart."""
        self.operator.check(images)


class Scaled(Composed):
    """S A S for a diagonal S, given as a named vector (or anything that broadcasts)."""

    def __init__(self, operator: SymmetricOperator, scales: Params):
        super().__init__(operator)
        self.scales = scales

    def _apply(self, vectors: list[Params]) -> list[Params]:
        images = self.operator.unchecked(
            [multiply(vector, self.scales) for vector in vectors]
        )
        return [multiply(image, self.scales) for image in images]


class Shifted(Composed):
    """A + c I."""

    def __init__(self, operator: SymmetricOperator, shift: float):
        super().__init__(operator)
        self.shift = shift

    def _apply(self, vectors: list[Params]) -> list[Params]:
        images = self.operator.unchecked(vectors)
        return [
            add(image, vector, self.shift)
            for image, vector in zip(images, vectors, strict=True)
        ]


class Compressed(Composed):
    """P A P for an orthogonal projection P."""

    def __init__(
        self, operator: SymmetricOperator, projection: Callable[[Params], Params]
    ):
        super().__init__(operator)
        self.projection = projection

    def _apply(self, vectors: list[Params]) -> list[Params]:
        images = self.operator.unchecked(
            [self.projection(vector) for vector in vectors]
        )
        return [self.projection(image) for image in images]

    def check(self, images: list[Params]) -> None:
        """A projection spreads what is not finite, so that no part is to blame."""
        if not all(is_finite(image) for image in images):
            raise NonFiniteError(
                "a projected product is not finite: look for square roots or logarithms "
                "at 0, or measure in dtype=torch.float64."
            )


class Block(Composed):
    """The rows and columns of A that belong to some tensors of its space."""

    def __init__(self, operator: SymmetricOperator, names: Collection[str]):
        super().__init__(operator)
        self.space = {n: t for n, t in operator.space.items() if n in names}

    def _apply(self, vectors: list[Params]) -> list[Params]:
        if self.operator.takes_parts:
            return self.operator.unchecked(vectors)
        images = self.operator.unchecked([self._filled(vector) for vector in vectors])
        return [{name: image[name] for name in self.space} for image in images]

    def _filled(self, vector: Params) -> Params:
        """The vector of the whole space that is zero elsewhere."""
        return {
            name: vector[name] if name in vector else torch.zeros_like(tensor)
            for name, tensor in self.operator.space.items()
        }
