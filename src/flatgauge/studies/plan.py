"""What a study compares with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flatgauge.errors import OptionError
from flatgauge.studies.table import Table

BETTER = ("smaller", "larger")


@dataclass(frozen=True)
class Plan:
    """What is compared with what: columns of the table, and how it is judged.

    Attributes:
        target: the column that measures should order networks by, such as the gap.
        better: whether a "smaller" target is better, as of a gap, or a "larger" one, as
            of an accuracy.
        hyperparameters: the columns of settings.
        environments: the column of environments, or None.
        samples: how many samples each target was measured on: see `rank_statistics`.
        resamples: of the networks, for intervals.
        seed: of the resamples.
    """

    target: str
    better: str = "smaller"
    hyperparameters: Sequence[str] = ()
    environments: str | None = None
    samples: int | None = None
    resamples: int = 1000
    seed: int = 0

    def check(self, table: Table) -> None:
        """Raise an OptionError for columns that are not there, before anything is done."""
        if self.better not in BETTER:
            raise OptionError(f"better= is '{self.better}': use {' or '.join(BETTER)}.")
        named = [self.target, *self.hyperparameters]
        for name in [*named, *([self.environments] if self.environments else [])]:
            table.column(name)
        for value in table.column(self.target):
            try:
                float(value or "nan")
            except (TypeError, ValueError) as error:
                raise OptionError(
                    f"'{value}' in the column '{self.target}' is no number: leave the "
                    "cell empty where there is none."
                ) from error
