"""Algorithm 1, which clips noisy probes of diag(H), against the exact diagonal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import mean, stdev
from typing import Any

import flatgauge as fg
from flatgauge.solvers.balancing import balance
from flatgauge.vectors import Params, add, scale, zeros_like
from papers.experiment import Context
from papers.tsuzuku2019.network import data_of, facts, trained, twins
from papers.tsuzuku2019.probes import samples

GAP = 1e-6  # the certified gap of (17) for noisy diagonals


def algorithm1(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Normalized sharpness from few probes, over the exact one of the same function.

    The settings list what to estimate: with which loss, at which point ("trained",
    "layers" or "nodes" rescaled), from which kind of probes, with how many.
    """
    model = trained(context, settings["network"])
    data = data_of(context, settings["network"])
    base = fg.Objective(model, data)
    points = twins(model, settings["twins"])
    exact: dict[str, dict[str, Any]] = {}
    estimates = []
    for wanted in settings["estimates"]:
        objective = base.with_loss(wanted["loss"]).at(points[wanted["point"]])
        known = exact.setdefault(wanted["loss"], {})
        if wanted["point"] not in known:
            known[wanted["point"]] = _exact(objective)
        found = _estimate(objective, wanted, settings["runs"], known[wanted["point"]])
        estimates.append({**wanted, **found})
    return {"network": facts(base, *data), "exact": exact, "estimates": estimates}


def _exact(objective: fg.Objective) -> dict[str, float]:
    names = ("normalized-sharpness", "matrix-normalized-sharpness")
    own = {name: {"surrogate": "objective"} for name in names}
    report = fg.measure(objective, *names, options=own, strict=True)
    diagonal = fg.hessian_diagonal(objective, "exact").values
    value = report["normalized-sharpness"].value
    assert value is not None
    return {
        "sharpness": value,
        "matrix_sharpness": report["matrix-normalized-sharpness"].details[
            "weights_only"
        ],
        "trace": float(diagonal[first_weight(objective)].sum()),
        "loss": objective.value(),
        "smallest": min(float(one.min()) for one in diagonal.values()),
    }


def _estimate(
    objective: fg.Objective, wanted: dict[str, Any], runs: int, known: dict[str, float]
) -> dict[str, Any]:
    """The ratios for each number of probes, each a mean over independent runs."""
    counts, first = wanted["probes"], first_weight(objective)
    totals = {count: zeros_like(objective.parameters) for count in counts}
    values: dict[int, list[float]] = {count: [] for count in counts}
    matrix: dict[int, list[float]] = {count: [] for count in counts}
    traces: list[float] = []
    drawn: Iterator[Params] = samples(objective, wanted, max(counts))
    for index, sample in enumerate(drawn, start=1):
        traces.append(float(sample[first].sum()))
        for count in counts:
            if len(values[count]) == runs:
                continue
            totals[count] = add(totals[count], sample)
            if index % count == 0:
                h = scale(totals[count], 1 / count)
                values[count].append(sharpness(objective, h) / known["sharpness"])
                matrix[count].append(
                    matrix_sharpness(objective, h) / known["matrix_sharpness"]
                )
                totals[count] = zeros_like(objective.parameters)
    ratios = [mean(values[count]) for count in counts]
    return {
        "runs": [len(values[count]) for count in counts],
        "ratios": ratios,
        "spreads": [_spread(values[count]) for count in counts],
        "matrix_ratios": [mean(matrix[count]) for count in counts],
        "exponent": exponent(counts, ratios) if len(counts) > 2 else None,
        "trace_ratio": mean(traces) / known["trace"],
        "trace_error": stdev(traces) / math.sqrt(len(traces)) / known["trace"],
    }


def sharpness(objective: fg.Objective, diagonal: Params) -> float:
    """(17) of a diagonal with its negative entries clipped, biases left out."""
    return sum(
        balance(diagonal[name].clamp_min(0), weight.square(), GAP).value
        for name, weight in objective.parameters.items()
        if weight.ndim == 2
    )


def matrix_sharpness(objective: fg.Objective, diagonal: Params) -> float:
    """(13), whose sums over matrices are taken before the clipping."""
    return sum(
        float(weight.norm()) * math.sqrt(max(float(diagonal[name].sum()), 0.0))
        for name, weight in objective.parameters.items()
        if weight.ndim == 2
    )


def exponent(counts: list[int], ratios: list[float]) -> float:
    """The slope of ln ratio over ln probes, by least squares."""
    x, y = [math.log(one) for one in counts], [math.log(one) for one in ratios]
    middle = mean(x)
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum(
        (a - middle) ** 2 for a in x
    )


def first_weight(objective: fg.Objective) -> str:
    return next(name for name, one in objective.parameters.items() if one.ndim == 2)


def _spread(values: list[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None
