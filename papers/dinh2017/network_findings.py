"""What we found for networks with biases, depth and convolutions, and for ε-sharpness."""

from __future__ import annotations

from typing import Any

from papers.dinh2017.ranking import RANKED_BY
from papers.dinh2017.verdicts import Finding, verdict
from papers.experiment import Results
from papers.page import number

KINDS = ("layer", "node")
# Relative drifts below this are rounding.
FLAT = 1e-9
# Where the quadratic term is this many times the linear one, but the rise of the loss is
# still below a share of 1 + L, Taylor's formula should hold to NEAR.
ABOVE_LINEAR, SMALL_RISE, NEAR = 100.0, 1e-3, 0.05


def orbit_runs(network: str) -> list[str]:
    """The runs of one network along its orbit: whole layers, and unit by unit."""
    middle = "" if network == "linear" else f"{network}-"
    return [f"orbit-{middle}{kind}" for kind in KINDS]


def theorem1_networks(results: Results) -> Finding:
    networks = results["theorem1-networks"]["networks"]
    error = max(one["error"] for one in networks)
    powers = [power for one in networks for power in one["powers"]]
    least = min(one["least growth"] for one in networks)
    words = (
        f"{len(networks)} kinds of networks, {sum(one['pairs'] for one in networks)} pairs "
        f"of layers: the gradient grows at least {number(least)} times, as α to the power "
        f"of {number(min(powers), 6)} to {number(max(powers), 6)}; the law of its norm "
        f"holds to {number(error)}"
    )
    holds = error < 1e-10 and all(abs(power + 1) < 0.01 for power in powers)
    return words, verdict(holds)


def derivatives(results: Results) -> Finding:
    networks = results["derivatives"]["networks"].values()
    gradient = max(one["gradient"] for one in networks)
    hessian = max(one["hessian"] for one in networks)
    words = (
        f"largest relative errors over {len(networks)} networks: {number(gradient)} of the "
        f"gradient, {number(hessian)} of the Hessian"
    )
    return words, verdict(max(gradient, hessian) < 1e-10)


def orbit_biases(results: Results) -> Finding:
    return orbit_of(results, "biases")


def orbit_convolutions(results: Results) -> Finding:
    return orbit_of(results, "convolutions")


def orbit_of(results: Results, network: str) -> Finding:
    """Whether the function stays and the Hessian grows."""
    runs = [results[run] for run in orbit_runs(network)]
    drift = max(max(one["output drift"], one["loss drift"]) for one in runs)
    factor = min(row_of(one, RANKED_BY)["factor"] for one in runs)
    words = (
        f"outputs and loss change by at most {number(drift)}, while the spectral norm "
        f"grows {number(factor)} times at least"
    )
    return words, verdict(drift < 1e-12 and factor > 100)


def row_of(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in found["measures"] if row["measure"] == name)


def invariant_measures(results: Results) -> Finding:
    """Hessian-based measures that keep their value under rescalings of single units."""
    names = ("normalized-sharpness", "riemannian-spectral-norm[metric=node]")
    rows = [
        row_of(results[run], name)
        for network in ("linear", "biases", "convolutions")
        for run in orbit_runs(network)
        for name in names
    ]
    drift = max(row["drift"] for row in rows)
    words = (
        f"{' and '.join(names)} are made from the Hessian, and drift by at most "
        f"{number(drift)} along the orbits of three networks"
    )
    holds = drift < FLAT and all(row["claims"] for row in rows)
    return words, verdict(holds, "does not hold")


def epsilon_quadratic(results: Results) -> Finding:
    near = [abs(ratio - 1) for ratio in small_ratios(results)]
    if not near:
        return "no ε is small enough in this form", verdict(False)
    words = (
        f"where the quadratic term is {number(ABOVE_LINEAR)} times the linear one and below "
        f"{number(SMALL_RISE)}, the measured rise differs from it by at most "
        f"{max(near):.2%} ({len(near)} points)"
    )
    return words, verdict(max(near) < NEAR, "agrees for small ε at a critical point")


def small_ratios(results: Results) -> list[float]:
    """Measured / quadratic where Taylor's formula should hold."""
    return [
        point["value"] / point["quadratic"]
        for network in results["epsilon-sharpness"]["networks"].values()
        for curve in network["curves"]
        for point in curve["points"]
        if point["trusted"]
        and ABOVE_LINEAR * point["linear"] < point["quadratic"] < SMALL_RISE
    ]


def epsilon_large(results: Results) -> Finding:
    rows = results["epsilon-sharpness"]["constant"]
    words = "; ".join(
        f"ε = {number(one['epsilon'])}: from {number(one['before'])} to at least "
        f"{number(one['after'])} (constant network: {number(one['bound'])})"
        for one in rows
    )
    return words, verdict(all(one["after"] >= one["bound"] for one in rows))
