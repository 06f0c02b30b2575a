"""The synthetic problem of section 3.1: random inputs, random labels, untrained networks."""

from __future__ import annotations

from typing import Any

import torch

import flatgauge as fg
from flatgauge.vectors import generator
from papers.networks import build


def objective(settings: dict[str, Any], dtype: torch.dtype) -> fg.Objective:
    """An untrained network with biases, on Gaussian inputs with random labels.

    It is on the CPU, where the same command gives the same bits.
    """
    shape, samples = settings["network"], settings["samples"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings["seed"])
        model = build(shape, bias=True)
    random = generator(settings["seed"])
    size = (1, shape["size"], shape["size"]) if "size" in shape else shape["widths"][:1]
    inputs = torch.randn(samples, *size, generator=random)
    labels = torch.randint(shape["widths"][-1], (samples,), generator=random)
    return fg.Objective(model, (inputs, labels), dtype=dtype)
