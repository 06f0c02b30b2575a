"""Hessian products in units of one gradient, against other packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import flatgauge as fg
from benchmarks import peers
from benchmarks.networks import Network
from benchmarks.timing import interleaved, once, ratios
from flatgauge.vectors import gaussian, generator, ravel, unravel


def global_precision(tf32: bool) -> None:
    """What the other packages see, which have no setting of their own."""
    torch.backends.cuda.matmul.fp32_precision = "tf32" if tf32 else "ieee"
    torch.backends.cudnn.conv.fp32_precision = "tf32" if tf32 else "ieee"


def products(
    network: Network, device: str, precision: str, rounds: int = 7
) -> dict[str, Any]:
    """Times in gradients of the same round, and errors against float64."""
    global_precision(precision == "tf32")
    model, batches = network.model().to(device), network.batches(device)
    objective = fg.Objective(model, batches, precision=precision)
    vector = ravel(gaussian(objective.parameters, generator(0)))
    exact = fg.Hessian(fg.Objective(model, batches, dtype=torch.float64))
    truth = exact.multiply_flat(vector.double()[:, None])[:, 0]
    hessian = fg.Hessian(objective)
    kept = fg.Hessian(objective, "double-backward")
    named = unravel(vector, objective.parameters)
    contestants: dict[str, Callable[[], Any]] = {
        "gradient": objective.gradient,
        "flatgauge": lambda: ravel(hessian @ named),
        "flatgauge, double backward": lambda: ravel(kept @ named),
    }
    failures = {}
    for name, build in peers.PRODUCTS.items():
        try:
            product = build(model, batches)
            if product is not None:
                product(vector)
                contestants[name] = lambda run=product: run(vector)
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}"[:200]
    errors = {}
    for name, run in contestants.items():
        if name != "gradient":
            image = run().double()
            errors[name] = float((image - truth).norm() / truth.norm())
    seconds = interleaved(contestants, rounds, device)
    return {
        "network": network.name,
        "device": device,
        "precision": precision,
        "samples": objective.sample_count,
        "parameters": vector.numel(),
        "seconds": {name: min(values) for name, values in seconds.items()},
        "gradients": ratios(seconds, "gradient"),
        "error": errors,
        "failures": failures,
        "first product": once(lambda: fg.Hessian(objective) @ named, device),
    }
