"""Hessian products in units of one gradient, against other packages."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import flatgauge as fg
from benchmarks import peers
from benchmarks.networks import Batch, Network
from benchmarks.timing import interleaved, once, ratios
from flatgauge.vectors import gaussian, generator, ravel, unravel

CHECKED_SAMPLES = 16


def global_precision(tf32: bool) -> None:
    """What the other packages see, which have no setting of their own."""
    torch.backends.cuda.matmul.fp32_precision = "tf32" if tf32 else "ieee"
    torch.backends.cudnn.conv.fp32_precision = "tf32" if tf32 else "ieee"


def products(
    network: Network, device: str, precision: str, rounds: int = 5
) -> dict[str, Any]:
    """Times in gradients of the same round; errors on a few samples against float64."""
    global_precision(precision == "tf32")
    model = network.model().to(device)
    found = timings(network, model, device, precision, rounds)
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    return found | {"error": accuracy(network, model, device, precision)}


def timings(
    network: Network, model: nn.Module, device: str, precision: str, rounds: int
) -> dict[str, Any]:
    """The contestants in turn, over all the data."""
    batches = network.batches(device)
    objective = fg.Objective(model, batches, precision=precision)
    vector = ravel(gaussian(objective.parameters, generator(0)))
    hessian = fg.Hessian(objective)
    named = unravel(vector, objective.parameters)
    first = once(lambda: hessian @ named, device)
    contestants: dict[str, Callable[[], Any]] = {
        "gradient": objective.gradient,
        "flatgauge": lambda: hessian @ named,
    }
    failures = {}
    for name, build in peers.PRODUCTS.items():
        try:
            product = build(model, batches)
            if product is not None:
                once(lambda run=product: run(vector), device)
                contestants[name] = lambda run=product: run(vector)
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}"[:200]
    seconds = interleaved(contestants, rounds, device)
    choice = hessian.choice
    assert choice is not None
    return {
        "network": network.name,
        "device": device,
        "precision": precision,
        "samples": objective.sample_count,
        "parameters": vector.numel(),
        "route": choice.route.name,
        "candidates": choice.seconds,
        "disagreement": {n: e for n, e in choice.disagreement.items() if e < 1e30},
        "first product": first,
        "seconds": {name: min(values) for name, values in seconds.items()},
        "gradients": ratios(seconds, "gradient"),
        "failures": failures,
    }


def accuracy(
    network: Network, model: nn.Module, device: str, precision: str
) -> dict[str, float]:
    """Relative errors of one product with a few samples."""
    random = torch.Generator().manual_seed(2)
    batch: Batch = tuple(p.to(device) for p in network.draw(CHECKED_SAMPLES, random))
    exact = fg.Hessian(fg.Objective(model, [batch], dtype=torch.float64))
    vector = ravel(gaussian(exact.space, generator(0))).float()
    truth = exact.multiply_flat(vector.double()[:, None])[:, 0]
    ours = fg.Hessian(fg.Objective(model, [batch], precision=precision))
    images = {"flatgauge": ours.multiply_flat(vector[:, None])[:, 0]}
    for name, build in peers.PRODUCTS.items():
        try:
            product = build(model, [batch])
            if product is not None:
                images[name] = product(vector)
        except Exception:
            continue
    return {
        name: float((image.detach().double() - truth).norm() / truth.norm())
        for name, image in images.items()
    }
