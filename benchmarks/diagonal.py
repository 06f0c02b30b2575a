"""The exact diagonal of the Hessian in units of one gradient."""

from __future__ import annotations

from typing import Any

import flatgauge as fg
from benchmarks.networks import Network
from benchmarks.timing import interleaved, ratios
from flatgauge.curvature.affine import is_affine_in_each_tensor
from flatgauge.curvature.diagonal_methods import exact_diagonal


def diagonal(
    network: Network, device: str, precision: str, rounds: int = 3
) -> dict[str, Any]:
    """K = 10 outputs: the floor is about 2/3 K gradients.

    The check that the network is piecewise affine looks at a few samples once, whatever
    the amount of data, and is timed apart.
    """
    batches = network.batches(device)
    objective = fg.Objective(network.model().to(device), batches, precision=precision)

    def check() -> bool:
        objective._facts.clear()
        return is_affine_in_each_tensor(objective)

    contestants = {
        "gradient": objective.gradient,
        "exact diagonal": lambda: exact_diagonal(objective),
        "check": check,
    }
    seconds = interleaved(contestants, rounds, device)
    return {
        "network": network.name,
        "device": device,
        "precision": precision,
        "samples": objective.sample_count,
        "seconds": {name: min(values) for name, values in seconds.items()},
        "gradients": ratios(seconds, "gradient"),
    }
