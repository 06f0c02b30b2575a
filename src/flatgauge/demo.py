"""The embedded demonstration: two networks, a twin, and which numbers can be trusted.

One small ReLU network is trained on scikit-learn's digits from two starts, the usual one
and one with larger parameters, to exactly the same training loss. They are measured,
compared and audited. Training happens here and in the papers' experiments, nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from scipy.optimize import root_scalar
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from flatgauge.auditing import Audit, audit
from flatgauge.comparison import Comparison, compare
from flatgauge.datasets import digits
from flatgauge.judging import AuditRow
from flatgauge.landscapes import landscape
from flatgauge.objective import Objective
from flatgauge.progress import Progress
from flatgauge.results import Report
from flatgauge.spectrum import spectral_density, spectrum_data
from flatgauge.tables import format_value, table
from flatgauge.vocabulary import Kind, Verdict

TRAIN = 1200
SEED = 0
SEEDS_TRIED = 6
"""With each of the first so many seeds all trustworthy measures name the same network."""
LOSS = 0.02
"""The training loss of both networks."""
STARTS = {"usual start": 1.0, "large start": 4.0}
"""What the parameters are multiplied by before training."""
RATE = 1e-3
MADE = (
    "Both networks are 64-48-32-10 with ReLU, of one seed ({seed}), and were trained by Adam "
    "({rate:g}, all of the 1,200 digits at a time) until the training loss was {loss:g}; "
    "“large start” began with all parameters times {start:g}. {fooled} Seeds 0 to {last} "
    "were tried, and the trustworthy measures agreed for each; other networks and data can "
    "come out differently, and a flatter one need not be better: see the test accuracies."
)


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


def train(images: Tensor, labels: Tensor, start: float, seed: int = SEED) -> nn.Module:
    """Full batches and Adam until the loss is `LOSS`, met inside of the last step.

    Args:
        images: [n, 1, 8, 8].
        labels: [n].
        start: what the parameters are multiplied by before.
        seed: of the network.
    """
    model = network(seed)
    parameters = list(model.parameters())
    with torch.no_grad():
        for parameter in parameters:
            parameter.mul_(start)
    optimizer = torch.optim.Adam(parameters, lr=RATE)
    before = after = parameters_to_vector(parameters).detach()
    while (loss := F.cross_entropy(model(images), labels)) > LOSS:
        before = after
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after = parameters_to_vector(parameters).detach()

    def above(share: float) -> float:
        """How far the loss is above the goal at a part of the last step."""
        vector_to_parameters(before + share * (after - before), parameters)
        with torch.no_grad():
            return float(F.cross_entropy(model(images), labels)) - LOSS

    above(float(root_scalar(above, bracket=(0.0, 1.0), xtol=1e-15).root))
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
    for index, (name, start) in enumerate(STARTS.items()):
        say(f"training from the {name}", index, 5)
        model = train(images[:TRAIN], labels[:TRAIN], start)
        with torch.no_grad():
            guesses = model(images[TRAIN:]).argmax(1)
        accuracies[name] = float((guesses == labels[TRAIN:]).double().mean())
        objectives[name] = Objective(model, (images[:TRAIN], labels[:TRAIN]))
    say("comparing the two", 2, 5)
    comparison = compare(objectives)
    say("moving along the symmetries", 3, 5)
    first = objectives["usual start"]
    checked = audit(first, elements=2, spread=1.0)
    say("drawing spectrum and landscape", 4, 5)
    density = spectral_density(first, probes=3, steps=40)
    slices = landscape(objectives, normalize="layer", points=31).to_list()
    report = checked.report.with_extras(
        comparison=comparison.to_dict(),
        spectrum=spectrum_data(density),
        landscapes=slices,
        accuracies=accuracies,
        made=_made(comparison, checked),
    )
    return Demonstration(accuracies, comparison, checked, report)


def _made(comparison: Comparison, checked: Audit) -> str:
    """How the networks were made, and what the twin does to the measures."""
    fooled = ""
    ratios = (checked.sharpened or {}).get("ratios", {})
    others = [
        row.measure
        for row in comparison.comparison_rows
        if Kind.NODE_RESCALE not in row.invariant_to
        and (row.values["usual start"] or 0.0) * (ratios.get(row.measure) or 0.0)
        > (row.values["large start"] or 0.0)
    ]
    if others:
        fooled = (
            "The twin of the audit is “usual start” with other parameters and the same "
            f"outputs, and by {' and '.join(others)} it is sharper than “large start”."
        )
    return MADE.format(
        seed=SEED,
        rate=RATE,
        loss=LOSS,
        start=STARTS["large start"],
        fooled=fooled,
        last=SEEDS_TRIED - 1,
    )


def summary(found: Demonstration) -> str:
    """The point at a glance: two networks, a twin, and which numbers moved."""
    lines = [
        f"{name}: test accuracy {accuracy:.1%}"
        for name, accuracy in found.accuracies.items()
    ]
    lines += ["", str(found.comparison), "", found.report.extras["made"]]
    twin = {row.measure: row for row in found.audit.audit_rows if row.adversarial}
    rows = [
        (request, format_value(one.value), _moved(twin.get(request)))
        for request, one in found.report.measurements.items()
    ]
    head = ("measure", "usual start", "its twin, with the same outputs")
    return "\n".join([*lines, "", table(head, rows)])


def _moved(row: AuditRow | None) -> str:
    if row is None or row.verdict == Verdict.NOT_JUDGED:
        return "-"
    return row.change or "the same"
