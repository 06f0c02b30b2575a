"""The embedded demonstration: two networks, their twins, and which numbers moved.

A small ReLU network is trained on scikit-learn's digits with a small and with
a large batch, measured, compared and audited. Training happens here and in the papers'
experiments, nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flatgauge.auditing import Audit, audit
from flatgauge.comparison import Comparison, compare
from flatgauge.datasets import digits
from flatgauge.landscapes import landscape
from flatgauge.objective import Objective
from flatgauge.progress import Progress
from flatgauge.results import Report
from flatgauge.spectrum import spectral_density, spectrum_data
from flatgauge.tables import format_value, table
from flatgauge.vectors import generator

TRAIN = 1200
UNMOVED = 1e-6
BATCHES = {"small batch": 16, "large batch": 1200}
EPOCHS = {"small batch": 60, "large batch": 1500}


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration found; `report` is what its page is drawn from."""

    accuracies: dict[str, float]
    comparison: Comparison
    audit: Audit
    report: Report


def network(seed: int = 0) -> nn.Module:
    """A small ReLU network for 8x8 digits, the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 48),
            nn.ReLU(),
            nn.Linear(48, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        ).double()


def train(images: Tensor, labels: Tensor, batch: int, epochs: int) -> nn.Module:
    """Adam at 1e-3 for a fixed number of epochs."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    random = generator(0)
    for _ in range(epochs):
        for rows in torch.randperm(len(labels), generator=random).split(batch):
            optimizer.zero_grad()
            F.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
    return model


def demonstrate(progress: Progress | None = None) -> Demonstration:
    """Train, measure, compare and audit.

    Args:
        progress: called with (what, index, count) as the work goes on.
    """
    images, labels = digits()
    images = images.double()
    say = progress or (lambda what, index, count: None)
    objectives, accuracies = {}, {}
    for index, (name, batch) in enumerate(BATCHES.items()):
        say(f"training with a {name}", index, 5)
        model = train(images[:TRAIN], labels[:TRAIN], batch, EPOCHS[name])
        with torch.no_grad():
            guesses = model(images[TRAIN:]).argmax(1)
        accuracies[name] = float((guesses == labels[TRAIN:]).double().mean())
        objectives[name] = Objective(model, (images[:TRAIN], labels[:TRAIN]))
    say("comparing the two", 2, 5)
    comparison = compare(objectives)
    say("moving along the symmetries", 3, 5)
    first = objectives["small batch"]
    checked = audit(first, elements=2, spread=1.0)
    say("drawing spectrum and landscape", 4, 5)
    density = spectral_density(first, probes=3, steps=40)
    slices = [
        landscape(one, normalize="layer", points=31).to_dict() | {"title": name}
        for name, one in objectives.items()
    ]
    report = checked.report.with_extras(
        comparison=comparison.to_dict(),
        spectrum=spectrum_data(density),
        landscapes=slices,
        accuracies=accuracies,
    )
    return Demonstration(accuracies, comparison, checked, report)


def summary(found: Demonstration) -> str:
    """The point at a glance: one network, its twin, and which numbers moved."""
    twin = found.audit.sharpened
    lines = [
        f"{name}: test accuracy {accuracy:.1%}"
        for name, accuracy in found.accuracies.items()
    ]
    lines += ["", str(found.comparison)]
    if twin is None:
        return "\n".join(lines)
    rows = [
        (request, format_value(one.value), _moved(twin["ratios"].get(request)))
        for request, one in found.report.measurements.items()
    ]
    head = ("measure", "small batch", "its twin, with the same outputs")
    lines += ["", table(head, rows)]
    lines += [f"The twin's outputs differ by {twin['output_change']:.0e}, relatively."]
    return "\n".join(lines)


def _moved(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return "the same" if abs(ratio - 1) < UNMOVED else f"× {ratio:.3g}"
