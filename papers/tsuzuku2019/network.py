"""The ReLU networks that this paper's experiments train, and their rescaled twins."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flatgauge as fg
from flatgauge import datasets
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers, rescale_nodes
from flatgauge.vectors import Params, generator
from papers.data import images
from papers.experiment import Context

CLASSES = 10


def data_of(context: Context, settings: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The training images in float64, and their labels.

    A share settings["random_labels"] of the labels, if it is there, is drawn at random.
    """
    if settings["data"] == "digits":
        pixels, labels = datasets.digits(settings["samples"])
        pixels, labels = pixels.to(context.device), labels.to(context.device)
    else:
        pixels, labels = images(context, settings["data"], "train", settings["samples"])
    return pixels.double(), _with_random_labels(labels, settings, settings["seed"])


def held_out(context: Context, settings: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Images that the training does not see, with labels that are drawn in the same way."""
    if settings["data"] == "digits":
        pixels, labels = (one[settings["samples"] :] for one in datasets.digits())
        pixels, labels = pixels.to(context.device), labels.to(context.device)
    else:
        pixels, labels = images(context, settings["data"], "test")
    return pixels.double(), _with_random_labels(labels, settings, settings["seed"] + 1)


def trained(context: Context, settings: dict[str, Any]) -> nn.Sequential:
    """A network after some epochs of Adam on the cross-entropy.

    Args:
        context: where to train.
        settings: data, samples, widths (hidden), bias, batch, epochs, rate, seed; and
            channels and kernels, if convolutions come first.
    """
    pixels, labels = data_of(context, settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings["seed"])
        model = _untrained(settings, pixels.shape).double().to(context.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["rate"])
    random = generator(settings["seed"])
    for _ in range(settings["epochs"]):
        order = torch.randperm(len(labels), generator=random).to(context.device)
        for rows in order.split(settings["batch"]):
            optimizer.zero_grad()
            F.cross_entropy(model(pixels[rows]), labels[rows]).backward()
            optimizer.step()
    return model


def _untrained(settings: dict[str, Any], images_shape: torch.Size) -> nn.Sequential:
    """Convolutions with ReLU and 2 x 2 max pooling, if any, then linear layers."""
    _, before, size, _ = images_shape
    layers: list[nn.Module] = []
    kernels = settings.get("kernels", [])
    for channels, kernel in zip(settings.get("channels", []), kernels, strict=True):
        layers += [nn.Conv2d(before, channels, kernel, bias=settings["bias"])]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
        size, before = (size - kernel + 1) // 2, channels
    layers.append(nn.Flatten())
    widths = [before * size**2, *settings["widths"], CLASSES]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs, bias=settings["bias"]), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _with_random_labels(labels: Tensor, settings: dict[str, Any], seed: int) -> Tensor:
    share = settings.get("random_labels", 0.0)
    if not share:
        return labels
    random = generator(seed)
    chosen = torch.rand(len(labels), generator=random) < share
    drawn = torch.randint(CLASSES, labels.shape, generator=random)
    return torch.where(chosen.to(labels.device), drawn.to(labels.device), labels)


def facts(objective: fg.Objective, pixels: Tensor, labels: Tensor) -> dict[str, Any]:
    """What a reader must know about a trained network."""
    with torch.no_grad():
        right = objective.model()(pixels).argmax(1) == labels
    return {
        "parameters": sum(one.numel() for one in objective.parameters.values()),
        "samples": len(labels),
        "accuracy": float(right.double().mean()),
        "loss": objective.value(),
    }


def twins(model: nn.Module, settings: dict[str, Any]) -> dict[str, Params]:
    """The same function at three points: as trained, layers and nodes rescaled.

    Args:
        model: a chain.
        settings: layers (a factor for each, product 1), spread (of the nodes' log
            factors) and seed.
    """
    base = {name: one.detach() for name, one in model.named_parameters()}
    chain, random = Chain.of(model), generator(settings["seed"])
    factors = [
        torch.randn(len(base[layer.weight]), generator=random, dtype=torch.float64)
        .mul(settings["spread"])
        .exp()
        .to(base[layer.weight].device)
        for layer in chain.layers[:-1]
    ]
    return {
        "trained": base,
        "layers": rescale_layers(base, chain, settings["layers"]),
        "nodes": rescale_nodes(base, chain, factors),
    }
