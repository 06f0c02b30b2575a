"""docs/zoo.md, from rows that were measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from zoo.checks import MOST_TIMED, UNCLAIMED, Row
from zoo.registry import SOURCES, every_network
from zoo.store import ROOT
from zoo.verdicts import RIGHT, notes, verdict

PAGE = ROOT / "docs" / "zoo.md"
HEAD = (ROOT / "tests" / "zoo" / "page_head.md").read_text
MOST_GRADIENTS = 300
COLUMNS = (
    "network", "parameters", "verdict", "symmetries", "outputs moved", "dense", "audit",
    "sharpened", "gradients",
)  # fmt: skip
NOT_RUN = "not run"


def write(rows: Mapping[str, Row]) -> None:
    parts = [HEAD().rstrip(), _totals(rows), _cost(rows), _claims(rows)]
    for name in SOURCES:
        listed = [one for one in every_network().values() if one.source == name]
        lines = [_line(one.name, rows.get(one.name)) for one in listed]
        parts.append("\n".join([f"## {name}", "", _cells(COLUMNS), _rule(), *lines]))
    parts.append(_reasons(rows))
    PAGE.write_text("\n\n".join(parts) + "\n")


def summary(rows: Mapping[str, Row]) -> str:
    """Counts of verdicts."""
    counts = Counter(verdict(row).split()[0] for row in rows.values())
    return ", ".join(f"{count} {word}" for word, count in counts.most_common())


def _totals(rows: Mapping[str, Row]) -> str:
    words = Counter(
        verdict(rows[name]) if name in rows else NOT_RUN for name in every_network()
    )
    lines = [f"| {word} | {count} |" for word, count in words.most_common()]
    return "\n".join(["| verdict | networks |", "|---|---:|", *lines])


def _cost(rows: Mapping[str, Row]) -> str:
    timed = [row for row in rows.values() if "gradients" in row]
    if not timed:
        return ""
    cheap = [row for row in timed if row["gradients"] <= MOST_GRADIENTS]
    dear = [row for row in timed if row["gradients"] > MOST_GRADIENTS]
    foreseen = [
        row
        for row in dear
        if "predicted" in row and 0.5 <= row["predicted"] / row["gradients"] <= 2
    ]
    return (
        f"The default set took at most {MOST_GRADIENTS} gradients (median of nine timed "
        f"alone) on {len(cheap)} of the {len(timed)} networks below {MOST_TIMED:,} "
        f"parameters that were timed; for {len(foreseen)} of the other {len(dear)} the "
        "prediction made before the start was right within a factor of 2."
    )


def _claims(rows: Mapping[str, Row]) -> str:
    judged = [row for row in rows.values() if "wrong_claim_caught" in row]
    caught = [row for row in judged if row["wrong_claim_caught"]]
    return (
        f"`{UNCLAIMED}`, which claims no rescaling, was seen to move under one on "
        f"{len(caught)} of the {len(judged)} networks that have some: there a wrong claim "
        "would have been caught."
    )


def _line(name: str, row: Row | None) -> str:
    short = name.partition("/")[2].replace("_", r"\_")
    if row is None:
        return _cells((short, "", NOT_RUN, *[""] * (len(COLUMNS) - 3)))
    compared = [one[0] for one in row.get("dense", {}).values()]
    dense = f"{compared.count('right')}/{len(compared)}" if compared else ""
    counted = row.get("verdicts", {})
    return _cells(
        (
            short,
            f"{row['parameters']:,}" if "parameters" in row else "",
            verdict(row),
            _symmetries(row),
            _small(row.get("preserved")),
            dense,
            f"{sum(counted.values()) - len(row['violations'])}/{sum(counted.values())}"
            if counted
            else "",
            f"×{row['sharpened_by']:.3g}"
            if "sharpened_by" in row
            else "no" * ("sharpened" in row),
            f"{row['gradients']:.0f}" if "gradients" in row else "",
        )
    )


def _symmetries(row: Row) -> str:
    if "exact" not in row:
        return ""
    said = f"{row['exact']} / {row['up_to_eps']}"
    if "numerical" not in row:
        return said
    if row["numerical"] is None:
        return f"{said}, undecided"
    return said + (f", {row['missed']} missed" if row["missed"] else ", all")


def _small(value: float | None) -> str:
    return "" if value is None else f"{value:.0e}"


def _reasons(rows: Mapping[str, Row]) -> str:
    lines = ["## What is not right, and why", ""]
    for name, network in every_network().items():
        row = rows.get(name)
        if row is None or verdict(row) == RIGHT:
            continue
        meant = f" (expected: {network.refused})" if network.refused else ""
        said = "; ".join(_escaped(note) for note in notes(row)[:3])
        lines.append(f"- `{name}`, {verdict(row)}{meant}: {said}")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    plain = " ".join(text.split())[:300]
    for sign in ("\\", "|", "<", "*", "_", "`", "[", "$"):
        plain = plain.replace(sign, "\\" + sign)
    return plain


def _cells(values: Any) -> str:
    return "| " + " | ".join(values) + " |"


def _rule() -> str:
    return "|---|---:|---|---|---|---|---|---|---:|"
