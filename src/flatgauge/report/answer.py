"""Which checkpoint is flatter, by which measures, how surely, and how to write it."""

from __future__ import annotations

import math
from collections import Counter

from flatgauge.report.formatting import listed, number, shorten
from flatgauge.report.sections import catalogue, subjects
from flatgauge.results import Plain, Report
from flatgauge.vocabulary import Kind

QUOTED = 3
"""Measures that a sentence for a paper quotes."""
TRUSTWORTHY = (
    "Trustworthy means that no rescaling of neurons, channels or layers moves it."
)


def compared(report: Plain) -> list[str]:
    """The answer of a comparison, and what it rests on."""
    comparison = report["extras"].get("comparison")
    if not comparison:
        return []
    told = [row for row in comparison["rows"] if row["flatter"] and row["significant"]]
    if any(one["decisive"] for one in comparison.get("unlike", [])):
        return ["No order is told, since the checkpoints were not measured alike."]
    if not told:
        return ["No difference between the checkpoints is larger than its error bars."]
    solid = trustworthy(told)
    count = len(trustworthy(comparison["rows"]))
    others = [row for row in told if row not in solid]
    if not solid:
        none = "No trustworthy measure" if count else "No measure that is trustworthy"
        return [
            f"{none} tells the checkpoints apart.",
            f"{TRUSTWORTHY} Others can, and rescaling turns that round: "
            f"{_named(report, others)}.",
        ]
    votes = Counter(row["flatter"] for row in solid)
    winner, most = votes.most_common(1)[0]
    if most < len(solid):
        camps = ", ".join(f"{n} name “{shorten(name)}”" for name, n in votes.items())
        sentences = [f"Trustworthy measures do not agree: {camps}."]
    else:
        by = _share(len(solid), count)
        sentences = [f"“{shorten(winner)}” is flatter, by {by}."]
    sentences.append(f"{TRUSTWORTHY} Here: {_named(report, solid)}.")
    sentences.append(_confidence(comparison, solid))
    against = [row for row in others if row["flatter"] != winner]
    if against:
        sentences.append(
            f"Otherwise by {_named(report, against)}, which can be made to say anything: the "
            "same functions with rescaled parameters have other values."
        )
    return sentences


def trustworthy(rows: list[Plain]) -> list[Plain]:
    """Those that claim that no rescaling of nodes moves them."""
    return [row for row in rows if Kind.NODE_RESCALE in row["invariant_to"]]


def _share(told: int, count: int) -> str:
    if count == 1:
        return "the one trustworthy measure"
    if told == count:
        return f"all {count} trustworthy measures"
    return f"{told} of {count} trustworthy measures; the others cannot tell"


def _named(report: Plain, rows: list[Plain]) -> str:
    known = catalogue(report)
    titles = [
        known.get(row["measure"], {}).get("title", row["measure"]) for row in rows
    ]
    return listed([shorten(one) for one in titles])


def _confidence(comparison: Plain, rows: list[Plain]) -> str:
    """How far apart the values are, beside their errors."""
    closest, surest = math.inf, math.inf
    for row in rows:
        best = row["values"][row["flatter"]]
        rest = {n: v for n, v in row["values"].items() if n != row["flatter"]}
        second = min(rest, key=lambda name: abs(rest[name] - best))
        gap = abs(rest[second] - best)
        scale = max(abs(best), abs(rest[second]))
        bars = [row["uncertainties"][name] or 0.0 for name in (row["flatter"], second)]
        closest = min(closest, gap / scale if scale else 0.0)
        surest = min(surest, gap / math.hypot(*bars) if any(bars) else math.inf)
    error = (
        f"{number(surest, 2)} times the error of the computation"
        if math.isfinite(surest)
        else "far more than rounding, the only error of these numbers"
    )
    return (
        f"The closest of these differences is {number(100 * closest, 2)} %, {error}. "
        f"{_over_samples(comparison, rows)}"
    )


def _over_samples(comparison: Plain, rows: list[Plain]) -> str:
    """What is known of other samples."""
    reports = {n: Report.from_dict(one) for n, one in comparison["reports"].items()}
    beyond = 0
    for row in rows:
        found = [one[row["measure"]] for one in reports.values()]
        errors = [one.data_uncertainty for one in found]
        if None in errors:
            return "How much other samples would change them was not measured."
        values = sorted(one.value or 0.0 for one in found)
        beyond += values[1] - values[0] > 2 * math.hypot(
            *(one or 0.0 for one in errors)
        )
    return (
        f"{beyond} of {len(rows)} are larger than two standard errors over the samples."
    )


def paper_sentence(report: Plain) -> str:
    """One sentence that can go into a paper; empty if nothing was measured."""
    names, known = subjects(report), catalogue(report)
    first = next(iter(names.values()))
    facts = first.provenance
    where = (
        f"on {facts.samples:,} samples ({facts.loss}, {facts.mode} mode, {facts.dtype}; "
        f"flatgauge {facts.flatgauge})"
    )
    comparison = report["extras"].get("comparison")
    if not comparison:
        solid = [
            request
            for request, entry in known.items()
            if Kind.NODE_RESCALE in (entry["invariant_to"] or ())
        ]
        chosen = [one for one in solid or known if first[one].status.trusted][:QUOTED]
        said = [f"{one} {first[one].quoted}" for one in chosen]
        return f"{facts.model}: {listed(said)} {where}." if said else ""
    told = [row for row in comparison["rows"] if row["flatter"] and row["significant"]]
    solid = trustworthy(told)
    winners = {row["flatter"] for row in solid}
    every = " and ".join(f"“{name}”" for name in names)
    every = every if len(names) < 4 else f"{len(names)} checkpoints"
    if len(winners) != 1:
        why = "agree on the order of" if winners else "tell apart"
        return f"Measures that no rescaling moves do not {why} {every} {where}."
    [winner] = winners
    rest = [name for name in names if name != winner]
    than = f"flatter than “{rest[0]}”" if len(rest) == 1 else f"the flattest of {every}"
    said = []
    for row in solid[:QUOTED]:
        other = (
            f" against {names[rest[0]][row['measure']].quoted}"
            if len(rest) == 1
            else ""
        )
        said.append(f"{row['measure']} {names[winner][row['measure']].quoted}{other}")
    return f"“{winner}” is {than} by {listed(said)} {where}."
