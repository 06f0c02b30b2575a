"""Pieces of a paper's page, in Markdown, from stored values only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from papers.data import FILES
from papers.experiment import Results, Run

NOT_RUN = "not run"


def number(value: Any, digits: int = 4) -> str:
    """A value as the page shows it; None, which stands for no number, as a dash.

    >>> number(0.000123456), number(3), number("yes"), number(None), number([1, 2.5])
    ('0.0001235', '3', 'yes', '–', '1, 2.5')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, list | tuple):
        return ", ".join(number(one, digits) for one in value)
    return str(value)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head)]
    lines += [[number(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def side_by_side(
    expected: Mapping[str, Any],
    found: Mapping[str, Any],
    verdicts: Mapping[str, str] | None = None,
    *,
    tolerance: float = 0.01,
) -> str:
    """The paper's values, ours, and whether they agree, as a Markdown table.

    Args:
        expected: what -> the paper's value, or {"value", "tolerance", "note"} of which the
            last two may be missing. The tolerance is relative; the note is shown beside
            the value (such as "misprint; 0.25 is right").
        found: what -> our value; what is missing there was not run.
        verdicts: what -> a verdict of one's own words in place of "agrees" or "differs".
        tolerance: the relative one for values that state none.
    """
    rows = []
    for what, entry in expected.items():
        entry = entry if isinstance(entry, Mapping) else {"value": entry}
        printed = number(entry["value"])
        printed += f" ({entry['note']})" if entry.get("note") else ""
        if what not in found:
            rows.append([what, printed, NOT_RUN, NOT_RUN])
            continue
        same = agrees(entry["value"], found[what], entry.get("tolerance", tolerance))
        verdict = (verdicts or {}).get(what, "agrees" if same else "differs")
        rows.append([what, printed, number(found[what]), verdict])
    return table(["", "the paper", "flatgauge", "verdict"], rows)


def agrees(expected: Any, found: Any, tolerance: float) -> bool:
    """Whether two values are the same, numbers up to a relative tolerance.

    >>> agrees([1.0, "flat"], [1.001, "flat"], 0.01), agrees(1.0, None, 0.01)
    (True, False)
    """
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        pairs = zip(expected, found, strict=False)
        return len(expected) == len(found) and all(
            agrees(one, other, tolerance) for one, other in pairs
        )
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return abs(found - expected) <= tolerance * abs(expected)
    return expected == found


def provenance(results: Results) -> str:
    """Which versions on which device made the results, and in what time."""
    facts = [record["provenance"] for record in results.records.values()]
    if not facts:
        return "Nothing has been run yet.\n"

    def all_of(name: str) -> str:
        return ", ".join(sorted({fact[name] for fact in facts}))

    devices: dict[str, list[dict[str, Any]]] = {}
    for record in results.records.values():
        devices.setdefault(record["provenance"]["device"], []).append(record["times"])
    times = ", ".join(f"{_spent(devices[one])} on {one}" for one in sorted(devices))
    return (
        f"Made with flatgauge {all_of('flatgauge')} (commit {all_of('commit')}), torch "
        f"{all_of('torch')} and Python {all_of('python')}. The runs took {times}.\n"
    )


def _spent(times: list[dict[str, Any]]) -> str:
    """The time that passed while any of the runs was made."""
    ends = [datetime.fromisoformat(one["finished"]).timestamp() for one in times]
    spans = [(end - one["seconds"], end) for end, one in zip(ends, times, strict=True)]
    passed, until = 0.0, -math.inf
    for start, end in sorted(spans):
        passed += max(0.0, end - max(start, until))
        until = max(until, end)
    total = sum(one["seconds"] for one in times)
    # Ends are known to the second.
    if passed > total - len(times):
        return f"{total:.1f} s"
    return f"{passed:.0f} s (several runs at a time, {total:.0f} s in all)"


def run_again(name: str, runs: Sequence[Run], results: Results) -> str:
    """The last section: commands, data, provenance, and the time of each run."""
    needs_data = any("data" in run.needs for run in runs)
    made = [record["provenance"]["device"] for record in results.records.values()]
    options = " --data DIR" if needs_data else ""
    options += " --device cuda" if any(device != "cpu" for device in made) else ""
    lines = [
        "## Run it again\n",
        "```",
        f"flatgauge papers {name} --quick  # reduced, on the CPU, no files needed",
        f"flatgauge papers {name}{options} --out NEW",
        "```\n",
        "Run them in a checkout of the source. Without `--out` only what is not yet in "
        "`results` is made, so that a run that was stopped goes on; `NEW` starts from "
        "nothing in a folder of that name.\n",
    ]
    held = sorted({run.data for run in runs if "data" in run.needs}, reverse=True)
    if held:
        parts = " and ".join(f"`{name}/` with {FILES[name]}" for name in held)
        lines.append(f"`DIR` holds {parts}.\n")
    lines += [
        provenance(results),
        "<details><summary>The time of each run</summary>\n",
        table(["run", "seconds", "device"], _times(runs, results)),
        "</details>\n",
    ]
    return "\n".join(lines)


def _times(runs: Sequence[Run], results: Results) -> list[list[Any]]:
    rows = []
    missing = [run for run in runs if run.long and run.name not in results]
    for run in runs:
        record = results.records.get(run.name)
        if run in missing:
            continue
        if record is None:
            rows.append([run.name, NOT_RUN, ""])
        else:
            seconds = f"{record['times']['seconds']:.1f}"
            rows.append([run.name, seconds, record["provenance"]["device"]])
    if missing:
        rows.append([f"{len(missing)} long runs", NOT_RUN, "meant for a GPU"])
    return rows
