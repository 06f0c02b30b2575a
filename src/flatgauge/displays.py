"""How an objective is shown: in a line, and in a notebook."""

from __future__ import annotations

from typing import Any

from flatgauge.tables import html_table


class Displayed:
    """An objective's own words; nothing is computed for them."""

    def __repr__(self) -> str:
        facts = _facts(self)
        said = [
            text if name in PLAIN else f"{text} {name}" for name, text in facts.items()
        ]
        return f"{type(self).__name__}({', '.join(said)})"

    def _repr_html_(self) -> str:
        return html_table(("objective", ""), list(_facts(self).items()))


PLAIN = ("model", "loss", "mode", "precision", "device")
"""What needs no noun beside it."""


def _facts(objective: Any) -> dict[str, str]:
    """What is known; facts of a loss may have been left out."""
    known = vars(objective)
    facts = {
        "model": type(objective.network.model).__name__,
        "parameters": f"{sum(t.numel() for t in objective.parameters.values()):,}",
    }
    if "sample_count" in known:
        facts["samples"] = f"{objective.sample_count:,}"
    if "loss" in known:
        value = known.get("_value")
        shown = objective.loss.name
        facts["loss"] = shown if value is None else f"{shown} {value:.6g}"
    facts["mode"] = f"{objective.network.mode} mode"
    facts["precision"] = str(objective.dtype).removeprefix("torch.")
    facts["device"] = str(objective.device)
    return facts
