"""Hessian products in units of one gradient, against other packages."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

import flatgauge as fg
from benchmarks import peers
from benchmarks.contestants import answers, build_all
from benchmarks.networks import Batch, Network
from benchmarks.timing import free, interleaved, once, ratios
from flatgauge.curvature.routes import Route
from flatgauge.vectors import gaussian, generator, ravel, unravel

CHECKED_SAMPLES = 16
# Products enough for every trial of routes to pay.
MANY = 10**9


def products(
    network: Network,
    device: str,
    precision: str,
    rounds: int = 5,
    batches: list[Batch] | None = None,
) -> dict[str, Any]:
    """Times in gradients of the same round; errors on a few samples against float64."""
    peers.global_precision(precision == "tf32")
    model = network.model().to(device)
    found, route = timings(network, model, device, precision, rounds, batches)
    free(device)
    return found | {"error": accuracy(network, model, device, precision, route)}


def timings(
    network: Network,
    model: nn.Module,
    device: str,
    precision: str,
    rounds: int,
    batches: list[Batch] | None,
) -> tuple[dict[str, Any], Route]:
    """The contestants in turn, over all the data; and the route that was chosen."""
    batches = batches or network.batches(device)
    objective = fg.Objective(model, batches, precision=precision)
    vector = ravel(gaussian(objective.parameters, generator(0)))
    hessian = fg.Hessian(objective, expect=MANY)
    named = unravel(vector, objective.parameters)
    first = once(lambda: hessian @ named, device)
    contestants: dict[str, Callable[[], Any]] = {
        "gradient": objective.gradient,
        "flatgauge": lambda: hessian @ named,
    }
    for warm_up in contestants.values():
        for _ in range(3):
            once(warm_up, device)
    theirs, failures = build_all(
        {name: partial(b, model, batches) for name, b in peers.PRODUCTS.items()},
        lambda product: once(lambda: product(vector), device),
    )
    for name, product in theirs.items():
        contestants[name] = partial(product, vector)
    seconds = interleaved(contestants, rounds, device, warm_up=False)
    model.zero_grad()
    choice = hessian.plan
    found = {
        "network": network.name,
        "device": device,
        "precision": precision,
        "samples": objective.sample_count,
        "parameters": vector.numel(),
        "route": choice.route.name,
        "candidates": choice.seconds,
        "disagreement": {
            n: e if math.isfinite(e) else None for n, e in choice.disagreement.items()
        },
        "first product": first,
        "seconds": {name: min(values) for name, values in seconds.items()},
        "gradients": ratios(seconds, "gradient"),
        "failures": failures,
    }
    return found, choice.route


def accuracy(
    network: Network, model: nn.Module, device: str, precision: str, route: Route
) -> dict[str, float]:
    """Relative errors of one product with a few samples, by that very route."""
    batch = network.few(device, CHECKED_SAMPLES)
    exact = fg.Hessian(
        fg.Objective(model, [batch], dtype=torch.float64), "double-backward"
    )
    vector = ravel(gaussian(exact.space, generator(0))).float()
    truth = exact.multiply_flat(vector.double()[:, None])[:, 0]
    ours = fg.Hessian(fg.Objective(model, [batch], precision=precision), route)
    images = {"flatgauge": ours.multiply_flat(vector[:, None])[:, 0]}
    images |= answers(
        {name: partial(b, model, [batch]) for name, b in peers.PRODUCTS.items()},
        lambda product: product(vector),
    )
    return {
        name: float((image.detach().double() - truth).norm() / truth.norm())
        for name, image in images.items()
    }
