"""The networks of a study in one SQLite file: who measures which, and what was found.

Every change is one transaction, so that the file is whole whenever a process ends. A
network is claimed before it is measured; a claim whose process is gone is free again.
Reports are found by a key of everything that they hang on, as in a series.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from flatgauge.errors import FlatgaugeError
from flatgauge.results import Report, Status
from flatgauge.studies.presence import is_present

FILE = "study.sqlite"
WORKERS = "workers"
MOST_DEATHS = 5
"""A network whose process died so often is given up."""
PATIENCE = 60.0
"""Seconds that a transaction waits for those of other processes."""
TABLE = """
CREATE TABLE IF NOT EXISTS networks (
    key TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    owner TEXT,
    claims INTEGER NOT NULL DEFAULT 0,
    stored REAL,
    report TEXT,
    failure TEXT
)
"""
OPEN = "report IS NULL AND failure IS NULL"


class StudyStore:
    """The networks of a study that are asked for now.

    Args:
        folder: made if it is not there.
        names: the networks' names by their keys, in the order in which they are measured.

    Raises:
        FlatgaugeError: if the folder holds something else, or cannot be made.
    """

    def __init__(self, folder: Path, names: Mapping[str, str]):
        self.folder = folder
        self.workers = folder / WORKERS
        self._names = names
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FlatgaugeError(
                f"no results can be stored in '{folder}' ({error.strerror or error}): name "
                "another folder with --store (store= in Python)."
            ) from error
        try:
            self._file = sqlite3.connect(
                folder / FILE, timeout=PATIENCE, isolation_level=None
            )
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute(TABLE)
        except sqlite3.DatabaseError as error:
            raise FlatgaugeError(
                f"'{folder / FILE}' is no store of a study ({error}): name another folder."
            ) from error
        self._file.execute(
            "CREATE TEMP TABLE asked (key TEXT PRIMARY KEY, place INTEGER)"
        )
        self._file.executemany(
            "INSERT INTO asked VALUES (?, ?)",
            [(key, place) for place, key in enumerate(names)],
        )
        with self._transaction():
            self._file.executemany(
                "INSERT OR IGNORE INTO networks (key, name) VALUES (?, ?)",
                list(names.items()),
            )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def begin(self) -> None:
        """Try again what failed in earlier runs, in whole or in one measure."""
        failed = [
            key
            for key, report in self.reports().items()
            if any(one.status is Status.FAILED for one in report.measurements.values())
        ]
        with self._transaction():
            self._free_the_dead()
            self._file.executemany(
                "UPDATE networks SET report = NULL, stored = NULL WHERE key = ?",
                [(key,) for key in failed],
            )
            self._file.execute(
                "UPDATE networks SET failure = NULL, claims = 0 WHERE owner IS NULL "
                "AND report IS NULL AND key IN (SELECT key FROM asked)"
            )

    def claim(self, owner: str) -> str | None:
        """The key of the next network that nobody measures; None if there is none.

        Args:
            owner: the name of the process: see `present`.
        """
        with self._transaction():
            self._free_the_dead()
            found = self._file.execute(
                "SELECT key FROM asked JOIN networks USING (key) "
                f"WHERE owner IS NULL AND {OPEN} ORDER BY place LIMIT 1"
            ).fetchone()
            if found is None:
                return None
            self._file.execute(
                "UPDATE networks SET owner = ?, claims = claims + 1 WHERE key = ?",
                (owner, found[0]),
            )
            return found[0]

    def keep(self, key: str, report: Report) -> None:
        """Store a report, unless another process has, which is then the same."""
        text = json.dumps(report.to_dict(), allow_nan=False)
        self._file.execute(
            "UPDATE networks SET report = ?, stored = ?, owner = NULL "
            "WHERE key = ? AND report IS NULL",
            (text, time.time(), key),
        )

    def fail(self, key: str, reason: str) -> None:
        """Say why a network cannot be measured, for this run."""
        self._file.execute(
            f"UPDATE networks SET failure = ?, owner = NULL WHERE key = ? AND {OPEN}",
            (reason, key),
        )

    def reports(self) -> dict[str, Report]:
        """What was measured, by key, in the order in which it was asked for."""
        found = self._select("networks.report", "report IS NOT NULL")
        return {key: Report.from_dict(json.loads(text)) for key, text in found}

    def failures(self) -> dict[str, str]:
        """Why others were not, by key."""
        return dict(self._select("failure", "failure IS NOT NULL"))

    def times(self) -> dict[str, float]:
        """When each report was stored, by key."""
        return dict(self._select("stored", "stored IS NOT NULL"))

    def left(self) -> int:
        """How many networks are still to be measured, or being measured."""
        return self._number("COUNT(*)", OPEN)

    def claims(self) -> int:
        """How often networks were claimed since the runs began."""
        return self._number("SUM(claims)", "1")

    def _number(self, what: str, where: str) -> int:
        found = self._file.execute(
            f"SELECT {what} FROM asked JOIN networks USING (key) WHERE {where}"
        )
        return found.fetchone()[0] or 0

    def _select(self, column: str, where: str) -> Sequence[tuple]:
        return self._file.execute(
            f"SELECT key, {column} FROM asked JOIN networks USING (key) "
            f"WHERE {where} ORDER BY place"
        ).fetchall()

    def _free_the_dead(self) -> None:
        owners = self._file.execute(
            "SELECT DISTINCT owner FROM networks WHERE owner IS NOT NULL"
        ).fetchall()
        for (owner,) in owners:
            if not is_present(self.workers, owner):
                self._file.execute(
                    "UPDATE networks SET owner = NULL, failure = CASE WHEN claims >= ? "
                    "THEN ? END WHERE owner = ?",
                    (MOST_DEATHS, died(), owner),
                )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")


def died() -> str:
    """Why a network is given up whose processes die."""
    return (
        f"the process that measured it died {MOST_DEATHS} times, as where memory is too "
        "small: measure it by itself to see why."
    )
