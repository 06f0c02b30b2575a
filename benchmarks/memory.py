"""Peak memory of gradients, products and diagonals, and whether a budget is kept."""

from __future__ import annotations

from typing import Any

from benchmarks import peers
from benchmarks.alone import (
    AUTO,
    DIAGONAL,
    GRADIENT,
    KEPT,
    NOT_KEPT,
    Settings,
    run_alone,
)
from benchmarks.contestants import in_words
from benchmarks.networks import Network

BUDGET = 2 * 2**30


def memory(network: Network, device: str, precision: str) -> dict[str, Any]:
    """Bytes over the baseline, which holds the model and the data."""
    samples, batch = network.sizes(device)
    names = [GRADIENT, NOT_KEPT, KEPT, AUTO, DIAGONAL, *peers.PRODUCTS]
    if network.name == "GPT":
        names.remove(DIAGONAL)
    found: dict[str, dict[str, int]] = {"peak": {}, "held": {}}
    failures = {}
    for name in names:
        settings = Settings(
            network.name, name, samples, batch, device, precision, rounds=0
        )
        try:
            one = run_alone(settings)
            found["peak"][name], found["held"][name] = one["peak"], one["held"]
        except Exception as error:
            failures[name] = in_words(error)
    return {
        "network": network.name,
        "device": device,
        "precision": precision,
        "samples": samples,
        **found,
        "failures": failures,
    }


def within_budget(
    network: Network, samples: int, budget: int = BUDGET, batch: int | None = None
) -> dict[str, Any]:
    """A product under a budget on a CPU, beside a gradient and all graphs kept."""
    size = batch or network.on_cpu[1]

    def run(name: str, limit: int | None = None) -> dict[str, Any]:
        return run_alone(
            Settings(network.name, name, samples, size, budget=limit, rounds=0)
        )

    product = run(AUTO, budget)
    gradient = run(GRADIENT)["peak"]
    return {
        "network": network.name,
        "axis": "samples",
        "value": samples,
        "batch": size,
        "device": "cpu",
        "precision": "ieee",
        "budget": budget,
        "peak": product["peak"],
        "held": product["held"],
        "route": product["route"],
        "gradient": gradient,
        "everything kept": run(KEPT)["peak"],
    }
