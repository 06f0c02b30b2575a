"""The exact diagonal of the Hessian in units of one gradient, against BackPACK."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

import flatgauge as fg
from benchmarks import peers
from benchmarks.contestants import answers, build_all
from benchmarks.networks import Batch, Network
from benchmarks.timing import free, interleaved, once, ratios
from flatgauge.diagonals.exact import exact_diagonal
from flatgauge.diagonals.per_sample import samples_stand_alone
from flatgauge.piecewise.affine import is_affine_in_each_tensor
from flatgauge.vectors import ravel

OURS = "exact diagonal"
CHECKED_SAMPLES = 64


def diagonal(
    network: Network,
    device: str,
    precision: str,
    rounds: int = 3,
    batches: list[Batch] | None = None,
) -> dict[str, Any]:
    """K = 10 outputs: the floor is about 2/3 K gradients.

    The checks that the network is piecewise affine, and that its operations are
    understood, look at a few samples once, whatever the amount of data, and are timed
    apart.
    """
    peers.global_precision(precision == "tf32")
    model = network.model().to(device)
    found = timings(network, model, device, precision, rounds, batches)
    free(device)
    return found | accuracy(network, model, device, precision)


def timings(
    network: Network,
    model: nn.Module,
    device: str,
    precision: str,
    rounds: int,
    batches: list[Batch] | None,
) -> dict[str, Any]:
    batches = batches or network.batches(device)
    objective = fg.Objective(model, batches, precision=precision)

    def check() -> bool:
        objective.network_facts.clear()
        return is_affine_in_each_tensor(objective) and samples_stand_alone(objective)

    # On a few samples first: what fails leaves hooks behind that hold its batch.
    few = [network.few(device, CHECKED_SAMPLES)]
    able, failures = build_all(
        {name: partial(b, model, few) for name, b in peers.DIAGONALS.items()},
        lambda run: run(),
    )
    theirs, others = build_all(
        {name: partial(peers.DIAGONALS[name], model, batches) for name in able},
        lambda run: once(run, device),
    )
    contestants = {
        "gradient": objective.gradient,
        OURS: lambda: exact_diagonal(objective),
        "check": check,
        **theirs,
    }
    seconds = interleaved(contestants, rounds, device)
    return {
        "network": network.name,
        "device": device,
        "precision": precision,
        "samples": objective.sample_count,
        "seconds": {name: min(values) for name, values in seconds.items()},
        "gradients": ratios(seconds, "gradient"),
        "failures": failures | others,
    }


def accuracy(
    network: Network, model: nn.Module, device: str, precision: str
) -> dict[str, Any]:
    """Relative errors on a few samples, against our own diagonal in float64.

    BackPACK's diagonal in float64 is an independent witness for that truth.
    """
    batch = network.few(device, CHECKED_SAMPLES)
    exact = fg.Objective(model, [batch], dtype=torch.float64)
    truth = ravel(exact_diagonal(exact))
    ours = fg.Objective(model, [batch], precision=precision)
    images = {OURS: ravel(exact_diagonal(ours))}
    images |= _theirs(model, batch)
    wide = _theirs(network.model().double().to(device), (batch[0].double(), batch[1]))

    def error(image: torch.Tensor) -> float:
        return float((image.double() - truth).norm() / truth.norm())

    return {
        "error": {name: error(image) for name, image in images.items()},
        "difference in float64": {name: error(image) for name, image in wide.items()},
    }


def _theirs(model: nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
    return answers(
        {name: partial(b, model, [batch]) for name, b in peers.DIAGONALS.items()},
        lambda run: run(),
    )
