"""Operators made of operators: S A S, A + c I, and the compression P A P."""

from __future__ import annotations

from collections.abc import Callable

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.vectors import Params, add, multiply


class Scaled(SymmetricOperator):
    """S A S for a diagonal S, given as a named vector (or anything that broadcasts)."""

    def __init__(self, operator: SymmetricOperator, scales: Params):
        self.operator = operator
        self.scales = scales
        self.space = operator.space

    def _apply(self, vectors: list[Params]) -> list[Params]:
        images = self.operator @ [multiply(vector, self.scales) for vector in vectors]
        return [multiply(image, self.scales) for image in images]


class Shifted(SymmetricOperator):
    """A + c I."""

    def __init__(self, operator: SymmetricOperator, shift: float):
        self.operator = operator
        self.shift = shift
        self.space = operator.space

    def _apply(self, vectors: list[Params]) -> list[Params]:
        images = self.operator @ vectors
        return [
            add(image, vector, self.shift)
            for image, vector in zip(images, vectors, strict=True)
        ]


class Compressed(SymmetricOperator):
    """P A P for an orthogonal projection P."""

    def __init__(
        self, operator: SymmetricOperator, projection: Callable[[Params], Params]
    ):
        self.operator = operator
        self.projection = projection
        self.space = operator.space

    def _apply(self, vectors: list[Params]) -> list[Params]:
        images = self.operator @ [self.projection(vector) for vector in vectors]
        return [self.projection(image) for image in images]
