"""The table that names everything a paper states, and says what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from papers.experiment import Results
from papers.page import NOT_RUN, table

REPRODUCED, IN_PART, REFUTED, ABSENT = "reproduced", "in part", "refuted", "absent"
VERDICTS = (REPRODUCED, IN_PART, REFUTED, ABSENT)
# Numbers that bear out neither the paper nor what this page says against it.
OPEN = "not borne out"
Finding = tuple[str, str]


@dataclass(frozen=True)
class Check:
    """What the stored results say of one statement.

    Attributes:
        runs: the results that it needs.
        find: the verdict and what was measured, from these results.
    """

    runs: tuple[str, ...]
    find: Callable[[Results], Finding]


def completeness(
    entries: Sequence[Mapping[str, Any]], checks: Mapping[str, Check], results: Results
) -> str:
    """The table, and how many statements have which verdict.

    Args:
        entries: in the order of the paper, "where" and "what" with either "check", a key
            of `checks`, or "why" it is absent.
        checks: key -> how the verdict is found.
        results: the finished runs.
    """
    rows = [
        [one["where"], one["what"], *verdict_on(one, checks, results)]
        for one in entries
    ]
    counts = Counter(row[2] for row in rows)
    said = ", ".join(f"{counts[v]} {v}" for v in dict.fromkeys((*VERDICTS, *counts)))
    return (
        table(["where", "the paper (our words)", "verdict", "what we measured"], rows)
        + f"\nOf {len(rows)} entries: {said}.\n"
    )


def verdict_on(
    entry: Mapping[str, Any], checks: Mapping[str, Check], results: Results
) -> Finding:
    """The verdict on one entry, and what stands behind it."""
    if "why" in entry:
        return ABSENT, entry["why"]
    check = checks[entry["check"]]
    if any(name not in results for name in check.runs):
        return NOT_RUN, ""
    return check.find(results)


def judged(holds: bool, verdict: str = REPRODUCED) -> str:
    """The verdict, if the numbers bear it out."""
    return verdict if holds else OPEN
