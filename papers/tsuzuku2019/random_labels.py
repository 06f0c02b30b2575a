"""Sections 6.1 and 6.2: networks that fit labels of which a share is random.

Eleven networks of a seed, one for each share of random labels, train together until they
fit, or up to a stated number of epochs; those that do not fit by then are kept and marked.
Each is then measured on the first training images with the labels that it was trained on.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.vectors import generator
from papers.data import images
from papers.experiment import Context, Run
from papers.networks import build
from papers.training import Goal, Stack, evaluate, train

CLASSES = 10
RATIOS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
LENET = {
    "kind": "LeNet",
    "channels": [6, 16],
    "kernels": [5, 5],
    "widths": [120, 84, 10],
}
PAIRS: dict[str, dict[str, Any]] = {
    "mnist-mlp": {
        "data": "mnist",
        "network": {"kind": "fully connected", "widths": [784, 512, 512, 512, 10]},
        "epochs": 150,
    },
    "mnist-lenet": {
        "data": "mnist",
        "network": {**LENET, "inputs": 1, "size": 28},
        "epochs": 100,
    },
    "cifar10-lenet": {
        "data": "cifar10",
        "network": {**LENET, "inputs": 3, "size": 32},
        "epochs": 100,
    },
}
SMALL = {
    "fully connected": {"kind": "fully connected", "widths": [64, 48, 48, 48, 10]},
    "LeNet": {
        "kind": "LeNet",
        "size": 8,
        "channels": [4, 8],
        "kernels": [3, 2],
        "widths": [16, 12, 10],
    },
}
MEASURES = (
    "normalized-sharpness",
    "normalized-sharpness[surrogate=objective]",
    "matrix-normalized-sharpness",
    "matrix-normalized-sharpness[surrogate=objective]",
    "hessian-trace",
    "hessian-spectral-norm",
    "riemannian-spectral-norm[metric=layer]",
    "riemannian-spectral-norm[metric=node]",
    "fisher-rao-norm",
    "fisher-rao-norm[diagonal=True]",
    "spectral-norm-product",
)
# These look for a maximum or a boundary, or draw weights: hundreds of passes each.
COSTLY = (
    "epsilon-sharpness",
    "riemannian-sharpness",
    "riemannian-sharpness[metric=node]",
    "volume-flatness",
    "pac-bayes-bound",
    "pac-bayes-bound[posterior=node]",
)
CLIMB = {"tol": 0.01, "restarts": 0}
OPTIONS = {
    "epsilon-sharpness": CLIMB,
    "riemannian-sharpness": CLIMB,
    "volume-flatness": {"directions": 10},
    "pac-bayes-bound": {"samples": 100},
}
# Costly measures are taken of every third network: each seed begins at another ratio.
EVERY = 3
# The key of a network's own random labels, apart from that of its weights.
LABELS = 10_000


def name_of(pair: str, seed: int) -> str:
    """The name of a run, such as random-labels-mnist-mlp-0."""
    return f"random-labels-{pair}-{seed}"


def runs(quick: bool) -> list[Run]:
    """One run for each pair and seed, the seeds of all pairs in turn."""
    pairs = ["mnist-mlp"] if quick else list(PAIRS)
    return [
        Run(
            name_of(pair, seed),
            settings_of(pair, seed, quick),
            compute,
            needs=("data",),
            repeats=False,
            long=True,
        )
        for seed in range(2 if quick else 10)
        for pair in pairs
    ]


def settings_of(pair: str, seed: int, quick: bool) -> dict[str, Any]:
    """What a run depends on."""
    full = PAIRS[pair]
    ratios = RATIOS[::5] if quick else RATIOS
    return {
        **full,
        "network": SMALL[full["network"]["kind"]] if quick else full["network"],
        "epochs": 40 if quick else full["epochs"],
        "seed": seed,
        "ratios": ratios,
        "batch_size": 64 if quick else 128,
        "learning_rate": 1e-3,
        "fitted": 0.99,
        "measures": list(MEASURES),
        "costly_measures": list(COSTLY),
        "costly_ratios": [] if quick else ratios[seed % EVERY :: EVERY],
        "options": OPTIONS,
        "measured_samples": 400 if quick else 10_000,
        "measured_in_batches_of": 5000,
        "dtype": "float32",
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Train the networks of a seed together, then measure each."""
    inputs, clean = images(context, settings["data"], "train")
    targets = torch.stack(
        [randomized(clean, ratio, settings["seed"]) for ratio in settings["ratios"]]
    )
    started = time.perf_counter()
    stack = train(
        lambda: build(settings["network"], bias=True),
        inputs,
        targets,
        seeds=[settings["seed"] * len(RATIOS) + n for n in range(len(targets))],
        epochs=settings["epochs"],
        batch_size=settings["batch_size"],
        learning_rate=settings["learning_rate"],
        goal=Goal(settings["fitted"], math.inf),
    )
    seconds = {"training": round(time.perf_counter() - started, 1)}
    found = _accuracies(context, settings, stack, inputs, targets)
    for index, network in enumerate(found):
        model = stack.unstack(index)
        asked = list(settings["measures"])
        if network["ratio"] in settings["costly_ratios"]:
            asked += settings["costly_measures"]
        measured = measure(model, inputs, targets[index], asked, settings)
        network["measures"] = {
            request: plain_measurement(one) for request, one in measured.items()
        }
        for request, one in measured.items():
            spent = seconds.get(request, 0.0) + one.cost.seconds
            seconds[request] = round(spent, 3)
    return {"networks": found, "times": {"of": seconds}}


def randomized(labels: Tensor, ratio: float, seed: int) -> Tensor:
    """The labels, of which a share was drawn anew from all classes.

    A larger share holds the samples of a smaller one, with the same random labels.
    """
    random = generator(LABELS + seed)
    order = torch.randperm(len(labels), generator=random)
    drawn = torch.randint(CLASSES, (len(labels),), generator=random)
    chosen = order[: round(ratio * len(labels))]
    found = labels.clone()
    found[chosen.to(labels.device)] = drawn[chosen].to(labels)
    return found


def measure(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    asked: list[str],
    settings: dict[str, Any],
) -> dict[str, fg.Measurement]:
    """The measures asked for, of one network on the first training samples."""
    count = settings["measured_samples"]
    objective = fg.Objective(
        model,
        (inputs[:count], targets[:count]),
        batch_size=settings["measured_in_batches_of"],
        dtype=getattr(torch, settings["dtype"]),
    )
    names = {request.split("[")[0] for request in asked}
    options = {n: one for n, one in settings["options"].items() if n in names}
    return dict(fg.measure(objective, *asked, options=options).measurements)


def _accuracies(
    context: Context,
    settings: dict[str, Any],
    stack: Stack,
    inputs: Tensor,
    targets: Tensor,
) -> list[dict[str, Any]]:
    """How well each network fits its labels, and the true ones of the test part."""
    model, parameters = stack.model, stack.parameters
    losses, own = evaluate(model, parameters, inputs, targets)
    test = images(context, settings["data"], "test")
    test_losses, others = stack.evaluate(*test)
    assert stack.reached is not None
    return [
        {
            "ratio": ratio,
            "epochs": stack.epochs[n],
            "fitted": stack.reached[n],
            "train_loss": losses[n],
            "train_accuracy": own[n],
            "test_loss": test_losses[n],
            "test_accuracy": others[n],
            "gap": own[n] - others[n],
        }
        for n, ratio in enumerate(settings["ratios"])
    ]


def plain_measurement(found: fg.Measurement) -> dict[str, Any]:
    """A measurement's value, its error and how far to trust it."""
    plain: dict[str, Any] = {"value": found.value, "status": found.status.name}
    if found.uncertainty is not None:
        plain["uncertainty"] = found.uncertainty
    if not found.status.trusted:
        plain["message"] = found.message
    return plain
