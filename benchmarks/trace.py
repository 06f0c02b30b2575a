"""The trace of the Hessian to 2 %: time in gradients, and the true error of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import flatgauge as fg
from benchmarks import peers
from benchmarks.contestants import build_all, in_words
from benchmarks.networks import Batch, Network
from benchmarks.timing import once, ratios
from flatgauge.diagonals.exact import exact_diagonal
from flatgauge.piecewise.affine import is_affine_in_each_tensor
from flatgauge.vectors import ravel


def trace(
    network: Network,
    device: str,
    precision: str,
    rounds: int = 3,
    batches: list[Batch] | None = None,
) -> dict[str, Any]:
    """Everyone's own call, from the model and the batches to the number.

    Each round has a seed of its own; of several rounds, the first warms up and is not
    timed. The truth is the sum of the exact diagonal in float64, where the network is
    piecewise affine. Where it is not, errors are relative to our own estimate, whose
    standard error is given.
    """
    peers.global_precision(precision == "tf32")
    model = network.model().to(device)
    batches = batches or network.batches(device)
    objective = fg.Objective(model, batches, precision=precision)

    def ours(seed: int) -> tuple[float, dict[str, Any]]:
        fresh = fg.Objective(model, batches, precision=precision)
        found = fg.measure(fresh, "hessian-trace", seed=seed)["hessian-trace"]
        assert found.value is not None
        return found.value, {
            "products": found.cost.products,
            "standard error": found.uncertainty or 0.0,
            "status": found.status.name,
            "method": found.details["method"],
        }

    calls, failures = build_all(
        {
            "flatgauge": lambda: ours,
            **{name: partial(b, model, batches) for name, b in peers.TRACES.items()},
        },
        lambda call: None,
    )
    once(objective.gradient, device)
    seconds: dict[str, list[float]] = {"gradient": [], **{name: [] for name in calls}}
    found: dict[str, list[tuple[float, Any]]] = {name: [] for name in calls}
    for seed in range(rounds):
        seconds["gradient"].append(once(objective.gradient, device))
        for name, call in calls.items():
            if name in failures:
                continue
            try:
                taken = once(partial(_store, call, seed, found[name]), device)
                seconds[name].append(taken)
            except Exception as error:
                failures[name] = in_words(error)
    model.zero_grad()
    fine = {name: rows for name, rows in found.items() if name not in failures}
    timed = {
        name: values[rounds > 1 :]
        for name, values in seconds.items()
        if name == "gradient" or name in fine
    }
    values = {name: [value for value, _ in rows] for name, rows in fine.items()}
    affine = is_affine_in_each_tensor(objective)
    truth = _truth(model, batches) if affine else None
    reference = values["flatgauge"][-1] if truth is None else truth
    judged = {
        name: one
        for name, one in values.items()
        if truth is not None or name != "flatgauge"
    }
    return {
        "network": network.name,
        "device": device,
        "precision": precision,
        "samples": objective.sample_count,
        "truth": truth,
        "seconds": {name: min(values) for name, values in timed.items()},
        "gradients": ratios(timed, "gradient"),
        "values": values,
        "error": {name: _rms(one, reference) for name, one in judged.items()},
        "worst error": {name: _worst(one, reference) for name, one in judged.items()},
        "notes": {name: [note for _, note in rows] for name, rows in fine.items()},
        "failures": failures,
    }


def _store(
    call: Callable[[int], tuple[float, Any]], seed: int, into: list[tuple[float, Any]]
) -> None:
    into.append(call(seed))


def _truth(model: torch.nn.Module, batches: list[Batch]) -> float:
    exact = fg.Objective(model, batches, dtype=torch.float64)
    return float(ravel(exact_diagonal(exact)).sum())


def _worst(values: list[float], truth: float) -> float:
    return max(abs(value - truth) for value in values) / abs(truth)


def _rms(values: list[float], truth: float) -> float:
    squares = [(value - truth) ** 2 for value in values]
    return math.sqrt(sum(squares) / len(squares)) / abs(truth)
