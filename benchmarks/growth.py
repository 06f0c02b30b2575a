"""How time and memory grow: with samples, with parameters, with classes."""

from __future__ import annotations

from typing import Any

import flatgauge as fg
from benchmarks.alone import Settings, run_alone
from benchmarks.networks import of_classes
from benchmarks.timing import interleaved, ratios
from flatgauge.diagonals.diagonal import choose_method
from flatgauge.diagonals.exact import exact_diagonal
from flatgauge.diagonals.output_probes import probe_diagonal

# So that there are several batches at every number of samples, also where small ones
# are joined, and that the fixed cost of a product does not show.
SAMPLES = {
    "cpu": (1000, 2000, 4000, 8000),
    "cuda": (80_000, 160_000, 320_000, 640_000),
}
BATCH = {"cpu": 125, "cuda": 40_000}
WIDTHS = (128, 256, 512, 1024)
CLASSES = (2, 5, 10, 20, 50, 100, 200)
PROBES = 30


def with_samples(
    network: str, contestant: str, samples: int, device: str, precision: str
) -> dict[str, Any]:
    settings = Settings(network, contestant, samples, BATCH[device], device, precision)
    row = _row("samples", samples, network, contestant, device, precision)
    return row | run_alone(settings)


def with_parameters(
    width: int, contestant: str, device: str, precision: str
) -> dict[str, Any]:
    """The MLP, with as many samples as the benchmark of products has or fewer."""
    samples, batch = (2000, 1000) if device == "cpu" else (10_000, 10_000)
    settings = Settings(
        "MLP", contestant, samples, batch, device, precision, width=width
    )
    row = _row("width", width, "MLP", contestant, device, precision)
    return row | {"samples": samples} | run_alone(settings)


def with_classes(
    classes: int, device: str, precision: str, rounds: int = 3, samples: int = 1000
) -> dict[str, Any]:
    """The exact diagonal of LeNet and square-root probes, in gradients."""
    network = of_classes(classes)
    batches = network.batches(device, samples, samples)
    objective = fg.Objective(network.model().to(device), batches, precision=precision)
    contestants = {
        "gradient": objective.gradient,
        "exact": lambda: exact_diagonal(objective),
        "probes": lambda: probe_diagonal(objective, PROBES, seed=0),
    }
    seconds = interleaved(contestants, rounds, device)
    row = _row("classes", classes, "LeNet", "diagonal", device, precision)
    return row | {
        "samples": samples,
        "probes": PROBES,
        "default": choose_method(objective),
        "seconds": {name: min(values) for name, values in seconds.items()},
        "gradients": ratios(seconds, "gradient"),
    }


def _row(
    axis: str, value: int, network: str, contestant: str, device: str, precision: str
) -> dict[str, Any]:
    return {
        "axis": axis,
        "value": value,
        "network": network,
        "contestant": contestant,
        "device": device,
        "precision": precision,
    }
