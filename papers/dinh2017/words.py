"""Sentences of the page that follow from the results, and change with them."""

from __future__ import annotations

from typing import Any

from papers.dinh2017.claims import EVERY_ORBIT
from papers.dinh2017.network_findings import FLAT, orbit_runs
from papers.dinh2017.ranking import kept_values
from papers.dinh2017.representation_findings import CHANGES, swapped
from papers.experiment import Results
from papers.page import number

# Relative drifts below this are rounding; factors above the other one are called large.
LARGE = 100.0
SIDES = ("left", "right")


def verdict(results: Results) -> str:
    """The page in plain words, where every claim was tried and none came out otherwise."""
    return " ".join(
        [
            "**In plain words.** The theorems are right.",
            moving(results),
            invariant(results),
            "Four things need care: one formula must be read with an outer product, the "
            "Hessian cannot be made as small as one likes and some measures that are made "
            "from it are invariant (others say otherwise of the paper), and the count in "
            "Theorem 2 is too high for some networks with biases.",
            representations(results),
            radial(results),
        ]
    )


def moving(results: Results) -> str:
    """How far the measures go that claim no invariance."""
    found = results["orbit-layer"]
    drift = max(found["output drift"], found["loss drift"])
    free = [row for row in found["measures"] if not row["claims"]]
    large = {row["measure"]: row["factor"] for row in free if row["factor"] > LARGE}
    if not large:
        return "No measure moves much when layers are rescaled."
    return (
        f"When layers are rescaled, {_listed(list(large))} move by factors of "
        f"{number(min(large.values()), 2)} to {number(max(large.values()), 2)}, while the "
        f"function stays the same to {number(drift, 2)}."
    )


def invariant(results: Results) -> str:
    """Whether the measures that claim an invariance have it."""
    rows = [r for run in EVERY_ORBIT for r in results[run]["measures"] if r["claims"]]
    broken = sorted({row["measure"] for row in rows if row["drift"] > FLAT})
    if broken:
        return f"Against their claim, these move too: {_listed(broken)}."
    worst = max(row["drift"] for row in rows)
    return (
        "The measures that claim to be invariant under a rescaling do not move (by at "
        f"most {number(worst, 2)})."
    )


def flat_lines(results: Results, network: str = "linear") -> str:
    """Which lines of an orbit's figure are flat, beside those that claim to be."""
    broken, others = [], []
    for run, side in zip(orbit_runs(network), SIDES, strict=True):
        for row in results[run]["measures"]:
            if row["claims"] and row["drift"] > FLAT:
                broken.append(f"{row['measure']} ({side})")
            if not row["claims"] and row["drift"] <= FLAT:
                others.append(f"{row['measure']} ({side})")
    if broken:
        return f"**Not every claim holds**: {_listed(broken)} moves."
    if not others:
        return "**The only flat lines are the invariant measures.**"
    return (
        f"**The only flat lines are the invariant measures**, and {_listed(others)}: "
        "flat in this network, but without a claim, because it is not so in all networks."
    )


def representations(results: Results) -> str:
    """Which changes of the data's representation turned a ranking around."""
    names = {True: [], False: []}
    for name, kind in CHANGES.items():
        names[bool(swapped(results, kind))].append(name)
    if not names[False]:
        return (
            f"{_listed(list(CHANGES)).capitalize()} the data each turned a ranking of two "
            "models around beyond its error."
        )
    return (
        f"Of the changes of representation, only {_listed(names[True])} turned a ranking "
        f"around beyond its error; {_listed(names[False])} did not."
    )


def radial(results: Results) -> str:
    """What is left of our own measures after a radial map."""
    kept, valued = kept_values(results["ranking"])
    if kept:
        return (
            f"In the coordinates of a radial map {len(kept)} of our {len(valued)} "
            "measures that have a value there keep it."
        )
    return (
        "And one thing must be said against ourselves: none of our measures that have a "
        "value in the coordinates of a radial map keeps it."
    )


def sampling(found: dict[str, Any]) -> str:
    """How far the sampled volume is from the closed form."""
    scores = [
        abs(row["sampled"] - row["closed form"]) / row["sampled error"]
        for row in found["sides"]
    ]
    return (
        "Sampling the box is at most "
        f"{number(max(scores), 2)} standard errors away from this volume."
    )


def _listed(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
