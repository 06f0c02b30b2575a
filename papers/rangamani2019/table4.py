"""Table 4, MNIST: are minima of small batches flatter than those of large ones?

Two protocols. "authors" is what the authors' public code does: no biases, Adam with
learning rate 1e-3 for both batch sizes, 200 epochs. "printed" is what the paper says: with
biases, learning rate 1e-4 for batches of 256 and 1e-3 for batches of 5000, trained to
100 % train accuracy with a loss of order 1e-4.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import flatgauge as fg
from papers.data import images
from papers.experiment import Context, Run
from papers.networks import build
from papers.rangamani2019 import networks
from papers.training import Goal, train

PROTOCOLS = ("authors", "printed")
NETWORKS = ("fc", "lenet")
SPECTRAL = (
    "riemannian-spectral-norm[metric=layer]",
    "riemannian-spectral-norm[metric=node]",
    "hessian-spectral-norm",
)
DIAGONAL = (
    "hessian-trace",
    "normalized-sharpness",
    "normalized-sharpness[surrogate=objective]",
    "matrix-normalized-sharpness",
    "matrix-normalized-sharpness[surrogate=objective]",
    "spectral-norm-product",
)
FISHER = ("fisher-rao-norm", "fisher-rao-norm[diagonal=True]")
BOUNDS = ("pac-bayes-bound", "pac-bayes-bound[posterior=node]")
# These look for a maximum, a boundary or a minimum, and take hundreds of passes.
SEARCHES = (
    "epsilon-sharpness",
    "riemannian-sharpness",
    "riemannian-sharpness[metric=node]",
    "volume-flatness",
)
# This one draws noise for every weight hundreds of times: not for millions of them.
DIRECT = ("normalized-sharpness-direct[surrogate=objective]",)
CLIMB = {"tol": 0.01, "restarts": 0}
OPTIONS = {
    "epsilon-sharpness": CLIMB,
    "riemannian-sharpness": CLIMB,
    "volume-flatness": {"directions": 20},
    # λ is the number of training images, as in a PAC-Bayes bound.
    "normalized-sharpness-direct": {"lam": 60_000, "steps": 60, "draws": 100},
    "pac-bayes-bound": {"samples": 100},
}
PAPERS_MEASURE = SPECTRAL[0]
EPSILON = 1e-3  # of the authors' code, in the numbers that it stores for MNIST-FC


def name_of(protocol: str, network: str, batch_size: int) -> str:
    """The name of a run, such as table4-authors-fc-256."""
    return f"table4-{protocol}-{network}-{batch_size}"


def name_only(request: str) -> str:
    """The name of the measure in a request.

    >>> name_only("riemannian-sharpness[metric=node]")
    'riemannian-sharpness'
    """
    return request.split("[")[0]


def sizes(quick: bool) -> tuple[int, int]:
    """The small and the large batch."""
    return (32, 400) if quick else (256, 5000)


def runs(quick: bool) -> list[Run]:
    """One run for each protocol, network and batch size; its seeds train together."""
    return [
        Run(
            name_of(protocol, network, size),
            _settings(quick, protocol, network, size),
            compute,
            needs=("data",),
        )
        for protocol in PROTOCOLS
        for network in NETWORKS
        for size in sizes(quick)
    ]


def _settings(quick: bool, protocol: str, network: str, size: int) -> dict[str, Any]:
    shapes = {
        "fc": networks.TINY_FC if quick else networks.MNIST_FC,
        "lenet": networks.TINY_LENET if quick else networks.C1,
    }
    authors = protocol == "authors"
    slow = not authors and size == sizes(quick)[0]
    # Float64 costs no more than float32 on a data-centre GPU for matrix products, but
    # many times more for convolutions.
    dtype, tol = {"fc": ("float64", 1e-6), "lenet": ("float32", 1e-5)}[network]
    exact = {name_only(request): {"tol": tol} for request in SPECTRAL}
    return {
        "network": shapes[network],
        "bias": not authors,
        "batch_size": size,
        "learning_rate": 1e-4 if slow else 1e-3,
        "epochs": 30 if quick else 200 if authors else 500,
        "goal": None if authors else {"accuracy": 1.0, "loss": 10**-3.5},
        "evaluated_every": 10 if authors else 1,
        "seeds": [0, 1] if quick else [0, 1, 2, 3, 4],
        "measures": [
            *(*SPECTRAL, *DIAGONAL, *FISHER, *BOUNDS, *SEARCHES),
            *(DIRECT if network == "lenet" else ()),
        ],
        "options": OPTIONS | exact,
        "searched_samples": 10_000,
        "history_every": 10,
        "measured_in_batches_of": 10_000,
        "stored_factor": EPSILON**2 if network == "fc" else 1.0,
        "dtype": dtype,
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Train the networks of all seeds together, then measure each on all train data."""
    inputs, targets = images(context, "mnist", "train")
    goal = settings["goal"]
    stack = train(
        lambda: build(settings["network"], settings["bias"]),
        inputs,
        targets,
        seeds=settings["seeds"],
        epochs=settings["epochs"],
        batch_size=settings["batch_size"],
        learning_rate=settings["learning_rate"],
        goal=Goal(**goal) if goal else None,
        every=settings["evaluated_every"],
    )
    _, train_accuracy = stack.evaluate(inputs, targets)
    test_loss, test_accuracy = stack.evaluate(*images(context, "mnist", "test"))
    found = []
    for index, seed in enumerate(settings["seeds"]):
        loss, measures = measure(stack.unstack(index), inputs, targets, settings)
        norm = measures[PAPERS_MEASURE]["value"]
        found.append(
            {
                "seed": seed,
                "epochs": stack.epochs[index],
                "reached": None if stack.reached is None else stack.reached[index],
                "train_loss": loss,
                "train_accuracy": train_accuracy[index],
                "test_loss": test_loss[index],
                "test_accuracy": test_accuracy[index],
                "measures": measures,
                "stored_by_authors": None
                if norm is None
                else norm / (2 + 2 * loss) * settings["stored_factor"],
            }
        )
    history = [
        {key: _rounded(value) for key, value in entry.items()}
        for entry in stack.history
        if entry["epoch"] % settings["history_every"] == 0
    ]
    return {"networks": found, "history": history}


def measure(
    model: nn.Module, inputs: Tensor, targets: Tensor, settings: dict[str, Any]
) -> tuple[float, dict[str, Any]]:
    """The train loss and every measure of one network.

    On all the train data, except for the searches, which see the first ones.
    """

    def objective(count: int) -> fg.Objective:
        return fg.Objective(
            model,
            (inputs[:count], targets[:count]),
            batch_size=settings["measured_in_batches_of"],
            dtype=getattr(torch, settings["dtype"]),
        )

    whole, part = objective(len(inputs)), objective(settings["searched_samples"])
    slow = SEARCHES + DIRECT
    searches = [one for one in settings["measures"] if one in slow]
    others = [one for one in settings["measures"] if one not in slow]
    measures = {}
    for where, requests in ((whole, others), (part, searches)):
        measures |= measured(where, requests, settings["options"])
    return whole.value(), measures


def measured(
    objective: fg.Objective, requests: list[str], options: dict[str, Any]
) -> dict[str, Any]:
    """Measures as they are stored, with those of the options that belong to them."""
    names = set(map(name_only, requests))
    own = {name: one for name, one in options.items() if name in names}
    found = fg.measure(objective, *requests, options=own).measurements
    return {request: _plain(one) for request, one in found.items()}


def _plain(found: fg.Measurement) -> dict[str, Any]:
    """What the page needs of a measurement: its value and how far to trust it."""
    plain: dict[str, Any] = {"value": found.value, "status": found.status.name}
    if found.uncertainty is not None:
        plain["uncertainty"] = found.uncertainty
    if "log_ball_volume" in found.details:
        plain["dimension"] = found.details["dimension"]
    if "smallest" in found.details:
        plain["smallest"] = found.details["smallest"]
        plain["steps"] = found.details["steps"]
    if not found.status.trusted:
        plain["message"] = found.message
    return plain


def _rounded(value: Any) -> Any:
    return [float(f"{one:.4g}") for one in value] if isinstance(value, list) else value
