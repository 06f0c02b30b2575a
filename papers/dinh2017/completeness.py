"""The part of the page that lists everything in the paper, and what became of it."""

from __future__ import annotations

from typing import Any

from papers.dinh2017.claims import finding
from papers.dinh2017.verdicts import DIFFERS
from papers.experiment import Results
from papers.page import NOT_RUN, table


def completeness(results: Results, expected: dict[str, Any]) -> str:
    rows = [
        [one["where"], one["what"], standing(one, results), one["why"]]
        for one in expected["completeness"]
    ]
    states = [row[2] for row in rows]
    kinds = dict.fromkeys(states)
    counts = ", ".join(f"{states.count(kind)} {kind}" for kind in kinds)
    head = ["where", "what", "verdict", "how, or why not"]
    return f"""\
{expected["sources"]} Of {len(rows)} items: {counts}.

{table(head, rows)}"""


def standing(item: dict[str, Any], results: Results) -> str:
    """The item's verdict, if all that it rests on was run and came out as it says."""
    verdicts = [finding(claim, results)[1] for claim in item["claims"]]
    for word in (DIFFERS, NOT_RUN):
        if word in verdicts:
            return word
    return item["verdict"]
