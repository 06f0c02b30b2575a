"""The table of a study: a checkpoint in each row, with its target and its settings."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatgauge.checkpoints import Checkpoint, step_of
from flatgauge.errors import DataError, OptionError


@dataclass(frozen=True)
class Table:
    """Rows of named columns, and the checkpoint of each."""

    rows: list[dict[str, Any]]
    checkpoints: list[Checkpoint]

    @property
    def by_name(self) -> dict[str, dict[str, Any]]:
        """The rows by the names of their checkpoints."""
        names = [one.name for one in self.checkpoints]
        return dict(zip(names, self.rows, strict=True))

    def column(self, name: str) -> list[Any]:
        """One column.

        Raises:
            OptionError: if it is not there.
            DataError: if a row is without it.
        """
        known = list(self.rows[0])
        if name not in known:
            raise OptionError(
                f"the table has no column '{name}': it has {', '.join(known)}."
            )
        for number, row in enumerate(self.rows, 1):
            if name not in row:
                raise DataError(
                    f"row {number} of the table has no '{name}', as the first has: give "
                    "None where there is none."
                )
        return [row[name] for row in self.rows]


def read_table(
    source: str | Path | Iterable[Mapping[str, Any]], checkpoint: str = "checkpoint"
) -> Table:
    """Read the table of a study.

    Args:
        source: a CSV file, or its rows. Checkpoints are paths from the folder of the file,
            or from the current one.
        checkpoint: the column that names them.

    Raises:
        DataError: if it cannot be read, is empty, or names a checkpoint twice.
    """
    if isinstance(source, str | Path):
        rows, folder = _read(Path(source)), Path(source).parent
    else:
        rows, folder = [dict(row) for row in source], Path()
    if not rows:
        raise DataError("the table has no rows: give one for each checkpoint.")
    table = Table(rows, [])
    names = [str(name) for name in table.column(checkpoint)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            f"the table names the checkpoint '{twice}' twice: keep one of the rows."
        )
    paths = [_place(folder, name) for name in names]
    files: dict[Path, str] = {}
    for path, name in zip(paths, names, strict=True):
        other = files.setdefault(path.resolve(), name)
        if other != name:
            raise DataError(
                f"the table names one checkpoint twice, as '{other}' and as '{name}': "
                "keep one of the rows."
            )
    found = zip(paths, names, strict=True)
    return Table(rows, [Checkpoint(path, name, step_of(path)) for path, name in found])


def find_table(folder: Path) -> Path:
    """The one CSV file of a folder.

    Raises:
        OptionError: if there are none or several.
    """
    found: Sequence[Path] = sorted(folder.glob("*.csv"))
    if len(found) != 1:
        names = ", ".join(one.name for one in found) or "none"
        raise OptionError(
            f"'{folder}' should have one CSV file, but has {names}: say which with --table."
        )
    return found[0]


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"the table '{path}' could not be read: {error}.") from error
    short = next(
        (n for n, row in enumerate(rows, 2) if None in (*row, *row.values())), 0
    )
    if short:
        raise DataError(
            f"line {short} of '{path}' has not as many entries as there are columns: "
            "mend it."
        )
    return rows


def _place(folder: Path, name: str) -> Path:
    beside = folder / name
    return beside if beside.exists() or not Path(name).exists() else Path(name)
