"""Table 4, CIFAR-10: an AlexNet-type and a VGG16-type network, small and large batches.

Two protocols. "authors" is what the authors' public code does: raw pixels from 0 to 255,
SGD with momentum 0.9 and a rate of 1e-4 that is halved now and then for batches of 256,
momentum 0.99 and a constant 1e-3 for batches of 2000, a fixed number of epochs. "clean"
differs in the batch size alone: pixels standardized, one rate and one momentum, no
dropout, and both are taken at the first epoch whose training loss is below the same bound.
Networks are measured in eval mode, that is without dropout: by the paper's measure on as
many of the first training images as in the paper, by the others and on Figure 2's lines on
fewer.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

import flatgauge as fg
from papers.alone import Descent, evaluate_alone, train_alone
from papers.data import images
from papers.experiment import Context, Run
from papers.networks import alexnet, vgg
from papers.rangamani2019.lines import lines_of
from papers.rangamani2019.table4 import (
    BOUNDS,
    DIAGONAL,
    FISHER,
    PAPERS_MEASURE,
    SPECTRAL,
    measured,
    name_only,
)
from papers.training import Goal

PROTOCOLS = ("authors", "clean")
# Six pairs or more can come out below 5 % in the sign-flip test, three cannot.
SEEDS = {"alexnet": 8, "vgg16": 3}
EPOCHS = {"alexnet": (150, 500), "vgg16": (90, 300)}
HALVED_EVERY = {"alexnet": 30, "vgg16": 50}
ALEXNET = {
    "kind": "alexnet",
    "inputs": 3,
    "size": 32,
    "channels": [64, 64],
    "kernels": [5, 5],
    "widths": [384, 192, 10],
}
VGG16 = {
    "kind": "vgg",
    "inputs": 3,
    "blocks": [[64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3],
    "widths": [512, 240, 10],
    "dropout": 0.5,
    "deviation": 0.01,
}
# On the 8 x 8 digits.
SMALL = {
    "alexnet": {
        **ALEXNET,
        "inputs": 1,
        "size": 8,
        "channels": [6],
        "kernels": [3],
        "widths": [16, 10],
    },
    "vgg16": {
        **VGG16,
        "inputs": 1,
        "blocks": [[4], [6], [8]],
        "widths": [12, 10],
    },
}
# Products of the deep network in full precision would take longer than its training.
PRECISION = {"alexnet": "ieee", "vgg16": "tf32"}
TOLERANCE = 0.01  # of eigenvalues
# What the clean protocol changes in a network: what is trained is what is measured, and
# pixels of unit size reach the outputs.
CLEAN = {"alexnet": {}, "vgg16": {"dropout": 0.0, "deviation": None}}
SHAPES = {"alexnet": ALEXNET, "vgg16": VGG16}
# Mean and standard deviation of the training pixels, by channel.
STANDARD = {"mean": [0.4914, 0.4822, 0.4465], "deviation": [0.2470, 0.2435, 0.2616]}
BOUND, RATE = 1e-3, 0.05


def name_of(protocol: str, network: str, batch_size: int, seed: int) -> str:
    """The name of a run, such as cifar10-authors-vgg16-256-0."""
    return f"cifar10-{protocol}-{network}-{batch_size}-{seed}"


def runs(quick: bool) -> list[Run]:
    """One run for each network; the seeds of all cells in turn."""
    return [
        Run(
            name_of(protocol, network, size, seed),
            settings_of(protocol, network, large, seed, quick),
            compute,
            needs=("data",),
            repeats=False,
            long=True,
        )
        for seed in range(1 if quick else max(SEEDS.values()))
        for network in SHAPES
        for protocol in PROTOCOLS
        for large, size in enumerate(sizes(quick))
        if seed < SEEDS[network]
    ]


def sizes(quick: bool) -> tuple[int, int]:
    """The small and the large batch."""
    return (32, 200) if quick else (256, 2000)


def settings_of(
    protocol: str, network: str, large: int, seed: int, quick: bool
) -> dict[str, Any]:
    """What a run depends on; `large` is 1 for the large batch, else 0."""
    authors = protocol == "authors"
    descent = {
        "kind": "sgd",
        "batch_size": sizes(quick)[large],
        "epochs": EPOCHS[network][large],
        "rate": 1e-3 if large else 1e-4,
        "momentum": 0.99 if large else 0.9,
        "halved_every": None if large else HALVED_EVERY[network],
        "half": True,
        "given_up_after": 50,
    }
    if not authors:
        descent |= {"epochs": 300, "rate": RATE, "momentum": 0.9, "halved_every": None}
    if quick:
        descent["epochs"] = 3
    return {
        "data": "cifar10",
        "network": (SMALL if quick else SHAPES)[network]
        | ({} if authors else CLEAN[network]),
        "protocol": protocol,
        "batch_size": sizes(quick)[large],
        "seed": seed,
        "descent": descent,
        "evaluated_every": 10 if authors else 1,
        "goal": None if authors else {"accuracy": 0.0, "loss": BOUND},
        "scale": 255.0 if authors else None,
        "standard": None if authors or quick else STANDARD,
        "measures": [*SPECTRAL, *DIAGONAL, *FISHER, *BOUNDS],
        "options": {"pac-bayes-bound": {"samples": 100}}
        | {name_only(one): {"tol": TOLERANCE} for one in SPECTRAL},
        "measured_samples": 200 if quick else 10_000,
        "others_samples": 100 if quick else 2000,
        "measured_in_batches_of": 1000,
        "dtype": "float32",
        "precision": PRECISION[network],
        # Several runs share a GPU.
        "memory": "8GiB",
        "lines": {"directions": 5, "points": 21, "span": 1.0},
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Train one network, then measure it."""
    (inputs, targets), (test_inputs, test_targets) = (
        images(context, settings["data"], part) for part in ("train", "test")
    )
    inputs, test_inputs = (prepared(one, settings) for one in (inputs, test_inputs))
    goal = settings["goal"]
    trained = train_alone(
        lambda: network_of(settings["network"]),
        inputs,
        targets,
        Descent(**settings["descent"]),
        seed=settings["seed"],
        goal=Goal(**goal) if goal else None,
        every=settings["evaluated_every"],
    )
    model = trained.model
    train_loss, train_accuracy = evaluate_alone(model, inputs, targets)
    test_loss, test_accuracy = evaluate_alone(model, test_inputs, test_targets)
    found = {
        "seed": settings["seed"],
        "epochs": trained.epochs,
        "reached": trained.reached,
        "train_loss": train_loss,
        "train_accuracy": train_accuracy,
        "test_loss": test_loss,
        "test_accuracy": test_accuracy,
        "measured_loss": None,
        "measures": {},
        "stored_by_authors": None,
        "lines": None,
    }
    if math.isfinite(train_loss):
        found |= looked_at(model, inputs, targets, settings)
    history = trained.history[:: max(1, len(trained.history) // 30)]
    return {"networks": [found], "history": history}


def looked_at(
    model: nn.Module, inputs: Tensor, targets: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    """The paper's measure on the first images, the others and the lines on fewer."""

    def objective(count: int) -> fg.Objective:
        return fg.Objective(
            model,
            (inputs[:count], targets[:count]),
            batch_size=settings["measured_in_batches_of"],
            dtype=getattr(torch, settings["dtype"]),
            precision=settings["precision"],
            memory=settings["memory"],
        )

    options = settings["options"]
    part = objective(settings["others_samples"])
    others = [one for one in settings["measures"] if one != PAPERS_MEASURE]
    found = measured(part, others, options)
    lines = lines_of(part, **settings["lines"])
    whole = objective(settings["measured_samples"])
    loss = whole.value()
    found |= measured(whole, [PAPERS_MEASURE], options)
    norm = found[PAPERS_MEASURE]["value"]
    return {
        "measured_loss": loss,
        "measures": found,
        # What the authors' code would have written down.
        "stored_by_authors": norm and norm / (2 + 2 * loss),
        "lines": lines,
    }


def network_of(shape: dict[str, Any]) -> nn.Module:
    """A fresh network of a shape."""
    return alexnet(shape) if shape["kind"] == "alexnet" else vgg(shape)


def prepared(pixels: Tensor, settings: dict[str, Any]) -> Tensor:
    """Pixels as the protocol takes them, from those in [0, 1]."""
    if settings["scale"]:
        pixels = settings["scale"] * pixels
    if settings["standard"]:
        mean, deviation = (
            torch.tensor(settings["standard"][name]).to(pixels)[:, None, None]
            for name in ("mean", "deviation")
        )
        pixels = (pixels - mean) / deviation
    return pixels
