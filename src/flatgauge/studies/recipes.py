"""What makes an objective of each row of a table: its model, its data, its weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from flatgauge.checkpoint_series import Built, Recipe
from flatgauge.checkpoints import Checkpoint
from flatgauge.objective import LossLike
from flatgauge.requests import parse_value

Row = Mapping[str, Any]


def columns_of(function: Callable[..., Any], row: Row) -> dict[str, Any]:
    """The entries of a row that a function names among its arguments.

    Text is taken for a number where it is one.

    >>> columns_of(lambda width: width, {"width": "64", "gap": "0.1"})
    {'width': 64}
    """
    known = inspect.signature(function).parameters
    return {
        name: parse_value(entry) if isinstance(entry, str) else entry
        for name, entry in row.items()
        if name in known
    }


@dataclass(frozen=True)
class Recipes:
    """The arguments of a study; model and data may be functions of a row's columns."""

    model: nn.Module | Callable[..., nn.Module]
    data: Any
    loss: LossLike
    batch_size: int | None
    key: str | None
    settings: Mapping[str, Any]
    rows: Mapping[str, Row]

    def __call__(self, checkpoint: Checkpoint) -> Built:
        """The objective of a row."""
        return self._recipe(checkpoint.name)(checkpoint)

    def identity(
        self,
        requests: Sequence[str],
        options: Mapping[str, Mapping[str, Any]],
        seed: int,
    ) -> Callable[[Checkpoint], Mapping[str, Any]]:
        """Everything but the weights that a row's numbers hang on: see `identity_of`."""

        def of(checkpoint: Checkpoint) -> Mapping[str, Any]:
            return self._recipe(checkpoint.name).identity(requests, options, seed)

        if _is_function(self.model) or _is_function(self.data):
            return of
        every = self._recipe(next(iter(self.rows))).identity(requests, options, seed)
        return lambda _: every

    def _recipe(self, name: str) -> Recipe:
        row = self.rows[name]
        made = (_made(self.model, row), _made(self.data, row))
        return Recipe(*made, self.loss, self.batch_size, self.key, self.settings)


def _is_function(thing: Any) -> bool:
    return callable(thing) and not isinstance(thing, nn.Module)


def _made(thing: Any, row: Row) -> Any:
    return thing(**columns_of(thing, row)) if _is_function(thing) else thing
