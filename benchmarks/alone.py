"""One contestant alone: its time, and its peak of memory.

On a CPU each runs in a process of its own, so that peaks do not mix:
`python -m benchmarks.alone SETTINGS`, with the settings as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from torch import nn

import flatgauge as fg
from benchmarks import peers
from benchmarks.meter import Meter
from benchmarks.networks import NETWORKS, Batch, Network, of_width
from benchmarks.timing import free, interleaved, once, ratios
from flatgauge.diagonals.exact import exact_diagonal
from flatgauge.vectors import gaussian, generator, ravel

GRADIENT = "gradient"
AUTO = "product"
KEPT = "product, graphs kept"
NOT_KEPT = "product, nothing kept"
DIAGONAL = "exact diagonal"
UNLIMITED = 2**62
PRODUCTS_TO_SETTLE = 3
TINY_BATCHES = 8


@dataclass(frozen=True)
class Settings:
    """Who runs on what; no rounds means that memory alone is wanted."""

    network: str
    contestant: str
    samples: int
    batch: int
    device: str = "cpu"
    precision: str = "ieee"
    budget: int | None = None
    width: int | None = None
    rounds: int = 3


def run_alone(settings: Settings) -> dict[str, Any]:
    """Peak and held bytes, seconds and the time in gradients."""
    if settings.device == "cuda":
        return run_here(settings)
    command = [sys.executable, "-m", "benchmarks.alone", json.dumps(asdict(settings))]
    done = subprocess.run([*command, peers.FOLDER], capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise RuntimeError(*last or [f"the process ended with {done.returncode}"])
    return json.loads(done.stdout.splitlines()[-1])


def run_here(settings: Settings) -> dict[str, Any]:
    peers.global_precision(settings.precision == "tf32")
    network = NETWORKS[settings.network]
    if settings.width is not None:
        network = of_width(settings.width)
    device = settings.device
    model = network.model().to(device)
    batches = network.batches(device, settings.samples, settings.batch)
    # Libraries and code that are loaded at the first use are not the contestant's.
    warm_up = replace(settings, budget=0)
    if settings.contestant == KEPT:
        warm_up = replace(settings, contestant=NOT_KEPT)
    _build(warm_up, model, _tiny(network, device))()
    model.zero_grad()
    meter = Meter(device)
    run = _build(settings, model, batches)
    # The first product plans and prepares.
    for _ in range(PRODUCTS_TO_SETTLE if isinstance(run, Product) else 1):
        run()
    found: dict[str, Any] = {"peak": meter.peak(), "held": meter.held()}
    if settings.rounds:
        objective = fg.Objective(model, batches, precision=settings.precision)
        once(objective.gradient, device)
        contestants = {GRADIENT: objective.gradient, settings.contestant: run}
        seconds = interleaved(contestants, settings.rounds, device, warm_up=False)
        found["seconds"] = min(seconds[settings.contestant])
        found["gradients"] = ratios(seconds, GRADIENT)[settings.contestant]
    if isinstance(run, Product):
        found["route"] = run.hessian.plan.route.name
    found["parameters"] = sum(p.numel() for p in model.parameters())
    model.zero_grad()
    free(device)
    return found


class Product:
    """A product with one vector, as often as it is called."""

    def __init__(self, hessian: fg.Hessian):
        self.hessian = hessian
        self.vector = gaussian(hessian.space, generator(0))

    def __call__(self) -> object:
        return self.hessian @ self.vector


def _build(
    settings: Settings, model: nn.Module, batches: list[Batch]
) -> Callable[[], object]:
    name = settings.contestant
    if name in peers.PRODUCTS:
        product = peers.PRODUCTS[name](model, batches)
        if product is None:
            raise RuntimeError(f"{name} is not installed")
        space = {n: p.detach() for n, p in model.named_parameters()}
        return partial(product, ravel(gaussian(space, generator(0))))
    objective = fg.Objective(model, batches, precision=settings.precision)
    if name == GRADIENT:
        return objective.gradient
    if name == DIAGONAL:
        return lambda: exact_diagonal(objective)
    # No trial of routes where memory is compared: it takes one batch's graph once.
    route = "auto" if name == AUTO else "double-backward"
    budget = {KEPT: UNLIMITED, NOT_KEPT: 0, AUTO: settings.budget}[name]
    return Product(fg.Hessian(objective, route, memory_budget=budget))


def _tiny(network: Network, device: str) -> list[Batch]:
    """A few batches of two samples."""
    return network.batches(device, 2 * TINY_BATCHES, 2)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    peers.use(sys.argv[2])
    print(json.dumps(run_here(Settings(**json.loads(sys.argv[1])))))
