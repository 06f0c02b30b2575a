"""Whether numbers were measured alike, told from their provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flatgauge.results import Provenance

# Names that a sentence lists before it counts the rest.
LISTED = 3
# Numbers of other precision are numbers of the same thing.
NOT_DECISIVE = {"precision"}


@dataclass(frozen=True)
class Unlike:
    """Something in which numbers that are compared were not measured alike.

    Where it is `decisive` they are numbers of different things, and no order is told.
    """

    what: str
    text: str
    decisive: bool


def differences(facts: Mapping[str, Provenance]) -> list[Unlike]:
    """In what the named numbers were not measured alike, each in a sentence."""
    found = []
    for what, values in _facts(facts).items():
        groups: dict[str, list[str]] = {}
        for name, value in values.items():
            groups.setdefault(value, []).append(name)
        if len(groups) > 1:
            parts = "; ".join(
                f"{value or 'independent samples'} for {_listed(names)}"
                for value, names in groups.items()
            )
            text = f"Not measured alike, in the {what}: {parts}."
            found.append(Unlike(what, text, what not in NOT_DECISIVE))
    return found


def in_common(facts: Mapping[str, Provenance]) -> str:
    """What they have in common, in words."""
    every = [set(values.values()) for values in _facts(facts).values()]
    return ", ".join(value for one in every if len(one) == 1 for value in one if value)


def _facts(facts: Mapping[str, Provenance]) -> dict[str, dict[str, str]]:
    """What must be the same, as it is shown, for each name."""
    # Files of before fingerprints say only how many samples there were.
    known = all(one.data for one in facts.values())
    shown = {
        name: {
            "data": f"{one.samples:,} samples" + (f" ({one.data})" if known else ""),
            "loss": one.loss,
            "mode": f"{one.mode} mode",
            "batches": one.batch_sizes,
            "precision": one.dtype + (" (tf32)" if one.precision == "tf32" else ""),
        }
        for name, one in facts.items()
    }
    first = next(iter(shown.values()))
    return {what: {name: one[what] for name, one in shown.items()} for what in first}


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:LISTED])
    return shown if len(names) <= LISTED else f"{shown} and {len(names) - LISTED} more"
