"""Operators made of operators: S A S, and the compression P A P."""

from __future__ import annotations

from collections.abc import Callable

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.errors import NonFiniteError
from flatgauge.vectors import Params, is_finite, multiply


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
