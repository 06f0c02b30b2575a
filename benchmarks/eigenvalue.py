"""Time to a certified top eigenvalue, against PyHessian's own call."""

from __future__ import annotations

import statistics
from typing import Any

import torch

import flatgauge as fg
from benchmarks import peers
from benchmarks.networks import NETWORKS
from benchmarks.timing import once

SAMPLES = 10_000


def eigenvalue(
    device: str, precision: str, batch: int, rounds: int = 5
) -> dict[str, Any]:
    """The MLP with 10,000 samples, to a relative residual of 1e-3."""
    peers.global_precision(precision == "tf32")
    network = NETWORKS["MLP"]
    model = network.model().to(device)
    batches = network.batches(device, SAMPLES, batch)
    ours: list[Any] = []
    theirs: list[Any] = []

    def run_ours() -> None:
        objective = fg.Objective(model, batches, precision=precision)
        ours.append(fg.top_eigenvalues(objective, k=1, tol=1e-3, seed=len(ours)))

    def run_theirs() -> None:
        own: Any = peers.pyhessian(model, batches)
        with peers.seeded(len(theirs)):
            theirs.append(own.eigenvalues(maxIter=100, tol=1e-3, top_n=1)[0][0])

    seconds: dict[str, list[float]] = {"flatgauge": [], "PyHessian": []}
    for index in range(rounds + 1):
        taken = {"flatgauge": once(run_ours, device)}
        if peers.installed("pyhessian"):
            taken["PyHessian"] = once(run_theirs, device)
        if index:
            for name, value in taken.items():
                seconds[name].append(value)
    exact = fg.Objective(model, batches, dtype=torch.float64)
    truth = fg.top_eigenvalues(exact, k=1, tol=1e-9, max_steps=500).values[0]
    worst = max(ours, key=lambda one: abs(one.values[0] - truth))
    model.zero_grad()
    return {
        "network": network.name,
        "device": device,
        "precision": precision,
        "samples": SAMPLES,
        "batch": batch,
        "seconds": {name: statistics.median(v) for name, v in seconds.items() if v},
        "rounds": seconds,
        "truth": truth,
        "flatgauge": {
            "value": worst.values[0],
            "error": abs(worst.values[0] - truth) / truth,
            "bound": worst.error_bounds[0] / truth,
            "residual": worst.residuals[0] / truth,
            "products": worst.products,
        },
        "PyHessian errors": [abs(value - truth) / truth for value in theirs],
    }
