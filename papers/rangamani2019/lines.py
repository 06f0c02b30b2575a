"""Figure 2: the loss on lines through a network along random directions."""

from __future__ import annotations

from typing import Any

import flatgauge as fg

NORMALIZATIONS = ("layer", "filter")


def lines_of(
    objective: fg.Objective, directions: int, points: int, span: float
) -> dict[str, Any]:
    """The loss on lines as plain data: "axis", and the losses by direction.

    Direction k of one network is the same draw as that of another of its shape.

    Args:
        objective: of the network.
        directions: how many.
        points: on each line, which reaches from -span to span.
        span: in units of the norms of layers or filters.
    """
    found: dict[str, Any] = {}
    for normalize in NORMALIZATIONS:
        made = [
            fg.landscape(objective, normalize, points=points, span=span, seed=seed)
            for seed in range(directions)
        ]
        found["axis"] = made[0].axes[0].tolist()
        found[normalize] = [
            [float(f"{loss:.6g}") for loss in one.losses.tolist()] for one in made
        ]
    return found
