"""What every result that has rows can be turned into."""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from flatgauge.errors import FlatgaugeError, OptionError

NOTHING = "there are no rows for a table: ask for measures, or write .html or .json."


class Tabular(ABC):
    """A result with rows, a table for people, and a sentence for a paper."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Flat rows, one thing each."""

    @abstractmethod
    def sentence(self) -> str:
        """What was measured, on what and with what, as a paper says it."""

    @abstractmethod
    def paper_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Headings and cells as people read them."""

    def whole(self) -> dict[str, Any] | None:
        """The plain report that its page is drawn from, if it has one."""
        return None

    def drawn_from(self) -> dict[str, Any]:
        """The parts of a plain report that its figures are drawn from."""
        return (self.whole() or {}).get("extras", {})

    def __str__(self) -> str:
        return self.sentence()

    def __repr__(self) -> str:
        """What `print` shows: all the fields would be pages of it."""
        return str(self)

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`.

        Raises:
            FlatgaugeError: if pandas is not installed.
        """
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise FlatgaugeError(
                "a data frame needs pandas: pip install pandas."
            ) from error
        return pandas.DataFrame(self.rows())

    def to_csv(self, path: str | Path | None = None) -> str | None:
        """The rows as comma-separated values; returned where no file is named."""
        return self._text(path, ".csv")

    def to_latex(self, path: str | Path | None = None) -> str | None:
        """A table ready for a paper, with the sentence that says what it shows.

        It is returned where no file is named.
        """
        return self._text(path, ".tex")

    def to_json(self, path: str | Path) -> None:
        """Write everything, as `Report.from_json` reads it back."""
        self.save(path, ".json")

    def to_html(self, path: str | Path) -> None:
        """Write the page: one file with figures and tables that needs nothing else."""
        self.save(path, ".html")

    def save(self, path: str | Path, suffix: str | None = None) -> list[Path]:
        """Write in the format that the name ends with.

        Args:
            path: a file, replaced in one step.
            suffix: another one to go by, such as ".csv".

        Returns:
            The files that were written: one, or one for each of several figures.

        Raises:
            OptionError: if there is no such format, or not for this result.
        """
        chosen = suffix or Path(path).suffix.lower()
        if chosen not in formats():
            known = ", ".join(sorted(formats()))
            raise OptionError(
                f"'{path}' has no ending that is known: give it one of {known}."
            )
        return formats()[chosen].write(self, Path(path))

    def _text(self, path: str | Path | None, suffix: str) -> str | None:
        if path is None:
            return formats()[suffix].text(self)
        self.save(path, suffix)
        return None


@cache
def formats() -> dict[str, ModuleType]:
    """The format of each suffix: every file beside this one that has some."""
    package = import_module("flatgauge.exports")
    found = {}
    for module in pkgutil.iter_modules(package.__path__):
        loaded = import_module(f"flatgauge.exports.{module.name}")
        found |= dict.fromkeys(getattr(loaded, "SUFFIXES", ()), loaded)
    return found
