"""The headline: WRN-16-4 on CIFAR-10 with random labels, one network a run.

As in `random_labels`, with networks that train alone: their norms keep statistics. Norms
are in eval mode when a network is measured. Of the first network of each share of random
labels three twins are measured, too: with the norms' statistics taken anew from all
training images, with norms folded into convolutions, and behind a random rescaling.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor, nn

import flatgauge as fg
from papers.alone import Descent, evaluate_alone, train_alone
from papers.data import images
from papers.experiment import Context, Run
from papers.training import Goal
from papers.tsuzuku2019.random_labels import (
    COSTLY,
    MEASURES,
    OPTIONS,
    RATIOS,
    measure,
    plain_measurement,
    randomized,
)
from papers.wide_resnet import WideResNet, folded, recalibrated

SEEDS = 2
# Network seeds of one label seed.
APART = 100


def name_of(ratio: float, seed: int) -> str:
    """The name of a run, such as random-labels-cifar10-wrn-0.3-0."""
    return f"random-labels-cifar10-wrn-{ratio:g}-{seed}"


def runs(quick: bool) -> list[Run]:
    """One run for each network: start several processes with `--only` to fill a GPU."""
    return [
        Run(
            name_of(ratio, seed),
            settings_of(ratio, seed, quick),
            compute,
            needs=("data",),
            repeats=False,
            long=True,
        )
        for seed in range(1 if quick else SEEDS)
        for ratio in (RATIOS[::10] if quick else RATIOS)
    ]


def settings_of(ratio: float, seed: int, quick: bool) -> dict[str, Any]:
    """What a run depends on."""
    network = (
        {"depth": 10, "width": 1, "inputs": 1} if quick else {"depth": 16, "width": 4}
    )
    return {
        "data": "cifar10",
        "network": network,
        "seed": seed,
        "ratio": ratio,
        "descent": {
            "kind": "adam",
            "rate": 1e-3,
            "epochs": 2 if quick else 200,
            "batch_size": 128,
            "half": True,
        },
        "fitted": 0.99,
        "measures": [*MEASURES, *(COSTLY if seed == 0 and not quick else ())],
        "options": OPTIONS,
        "twins": seed == 0,
        "spread": 1.0,
        "measured_samples": 200 if quick else 10_000,
        "measured_in_batches_of": 2500,
        "dtype": "float32",
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Train one network, then measure it and its twins."""
    seed, ratio = settings["seed"], settings["ratio"]
    inputs, clean = images(context, settings["data"], "train")
    targets = randomized(clean, ratio, seed)
    started = time.perf_counter()
    trained = train_alone(
        lambda: WideResNet(**settings["network"]),
        inputs,
        targets,
        Descent(**settings["descent"]),
        seed=APART * seed + round(10 * ratio),
        goal=Goal(settings["fitted"], math.inf),
    )
    seconds = {"training": round(time.perf_counter() - started, 1)}
    model = trained.model
    loss, own = evaluate_alone(model, inputs, targets)
    test_loss, other = evaluate_alone(model, *images(context, settings["data"], "test"))
    network = {
        "ratio": ratio,
        "epochs": trained.epochs,
        "fitted": trained.reached,
        "train_loss": loss,
        "train_accuracy": own,
        "test_loss": test_loss,
        "test_accuracy": other,
        "gap": own - other,
    }
    found = measure(model, inputs, targets, settings["measures"], settings)
    network["measures"] = {one: plain_measurement(m) for one, m in found.items()}
    seconds |= {one: round(m.cost.seconds, 3) for one, m in found.items()}
    if settings["twins"]:
        network["twins"] = _twins(model, inputs, targets, settings)
    return {
        "networks": [network],
        "history": trained.history,
        "times": {"of": seconds},
    }


def _twins(
    model: nn.Module, inputs: Tensor, targets: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    """Each twin's largest change of an output, relative to the largest, and measures."""
    assert isinstance(model, WideResNet)
    count = settings["measured_samples"]
    some = inputs[:count]
    group = fg.symmetries(
        fg.Objective(model, (some[:32], targets[:32]), dtype=torch.float32)
    )
    element = group.random_element(seed=settings["seed"], spread=settings["spread"])
    twins = {
        "statistics": recalibrated(model, inputs, settings["measured_in_batches_of"]),
        "folded": folded(model),
        "rescaled": group.act(model, element),
    }
    with torch.no_grad():
        before = model(some)
        moved = {
            name: float((twin(some) - before).abs().max() / before.abs().max())
            for name, twin in twins.items()
        }
    return {
        name: {
            "outputs": moved[name],
            "measures": {
                one: plain_measurement(m)
                for one, m in measure(
                    twin, inputs, targets, list(MEASURES), settings
                ).items()
            },
        }
        for name, twin in twins.items()
    }
