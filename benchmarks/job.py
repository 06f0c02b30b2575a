"""One row of the results, to be measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Job:
    """One row of one part of the results."""

    part: str
    network: str
    precision: str
    run: Callable[[], dict[str, Any]]
    detail: str = ""

    @property
    def label(self) -> str:
        words = (self.part, self.network, self.precision, self.detail)
        return ", ".join(word for word in words if word)
