"""What the stored results say of every statement of the paper: bounds and derivations."""

from __future__ import annotations

from typing import Any

from papers.completeness import IN_PART, REFUTED, Check, Finding, judged
from papers.experiment import Results
from papers.page import number
from papers.tsuzuku2019.bits import growth
from papers.tsuzuku2019.comparison import moved

SHARP, MATRIX = "normalized-sharpness", "matrix-normalized-sharpness"
BOUNDS = ("bounds-digits", "bounds-mnist")
EXACT = 1e-9


def _networks(results: Results) -> list[dict[str, Any]]:
    return [one for name in BOUNDS for one in results[name]["networks"]]


def _posteriors(results: Results) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(o, p) for o in _networks(results) for p in o["posteriors"].values()]


def bound(results: Results) -> Finding:
    every = [p for _, p in _posteriors(results)]
    held = sum(p["unseen_error"] <= p["value"] for p in every)
    useful = [p["value"] for p in every if p["value"] < 1]
    least = f", the least {number(min(useful), 3)}" if useful else ""
    words = f"holds in {held} of {len(every)} cases; below 1 in {len(useful)}{least}"
    return (judged(held == len(every)), words)


def psi(results: Results) -> Finding:
    found = [one["deviation"] for one in _networks(results)]
    below = all(one["found"] <= one["tight"] <= one["printed"] for one in found)
    single = results["constants"]["deviation"]
    below = below and single["found"] <= single["corrected"] <= single["printed"]
    shares = [one["found"] / one["printed"] for one in found]
    words = (
        f"Ψ is {number(min(shares), 2)} to {number(max(shares), 2)} of λ²/2m; λ²/8m is a "
        "bound, too"
    )
    return (judged(below), words)


def decomposition(results: Results) -> Finding:
    every = _posteriors(results)
    held = sum(o["unseen_error"] <= p["value"] + p["A"] for o, p in every)
    words = (
        f"holds in {held} of {len(every)} cases, (A) being measured on unseen images"
    )
    return (judged(held == len(every)), words)


def small_together(results: Results) -> Finding:
    true = [p for o, p in _posteriors(results) if o["network"]["accuracy"] > 0.9]
    worst = max(abs(p["A"] + p["C"]) / p["C"] for p in true)
    words = (
        f"with true labels (A) is −(C) to {worst:.0%} of it: the noise costs as much on "
        "unseen images"
    )
    return (judged(worst < 1 / 3), words)


def noise_rise(results: Results) -> Finding:
    found = results["constants"]["noise"]
    ratio = found["printed"] / found["found"]
    words = f"on a quadratic the printed value is {number(ratio)} times the rise: ½ is missing"
    return (judged(abs(ratio - 2) < EXACT, IN_PART), words)


def divergence(results: Results) -> Finding:
    found = results["constants"]["divergence"]
    good = abs(found["corrected"] / found["found"] - 1) < EXACT
    words = (
        f"printed {number(found['printed'])}, in truth {number(found['found'])} on three "
        "weights: n_i is missing twice, and the rest is no constant"
    )
    return (judged(good, IN_PART), words)


def equal_scales(results: Results) -> Finding:
    every = [p for _, p in _posteriors(results)]
    ratios = [p["equal_variance_kl"] / p["kl"] for p in every]
    words = (
        f"σ_P = σ_Q costs {number(min(ratios), 3)} to {number(max(ratios), 3)} times the "
        "best prior of the grid on our networks"
    )
    return (judged(min(ratios) > 1, REFUTED), words)


def matrix_constant(results: Results) -> Finding:
    found = [one["posteriors"]["matrix"] for one in _networks(results)]
    shares = [p["hyperprior"] / p["kl"] for p in found]
    words = (
        f"ln|grid| a tensor, at most {max(shares):.2%} of the divergence, which itself is "
        "not (7)"
    )
    return (judged(max(shares) < 0.1), words)


def second_order(results: Results) -> Finding:
    ratios = [p["C_second_order"] / p["C"] for _, p in _posteriors(results)]
    words = (
        f"the second order of the surrogate loss is {number(min(ratios), 3)} to "
        f"{number(max(ratios), 3)} times (C) of the 0-1 loss"
    )
    return (judged(min(ratios) > 0, IN_PART), words)


def minimum(results: Results) -> Finding:
    found = results["constants"]["matrices"]
    good = abs(found["corrected_root"] / found["found_printed_objective"] - 1) < 1e-6
    words = (
        f"(12) prints {number(found['printed'])}, the minimum of (10) is "
        f"{number(found['found_printed_objective'])}: the root covers 2/λ only"
    )
    return (judged(good, IN_PART), words)


def layers_invariant(results: Results) -> Finding:
    return _unmoved(results, "layers", "matrix_sharpness")


def nodes_invariant(results: Results) -> Finding:
    return _unmoved(results, "nodes", "sharpness")


def _unmoved(results: Results, point: str, name: str) -> Finding:
    exact = results["algorithm1"]["exact"]["cross-entropy"]
    drift = abs(exact[point][name] / exact["trained"][name] - 1)
    words = f"with rescaled {point} it changes by {number(drift, 2)} (relative)"
    return (judged(drift < 1e-8), words)


def curvature(results: Results) -> Finding:
    steps = results["unbounded"]["steps"]
    worst = max(abs(one["row_curvature"] / one["alpha"] ** 2 - 1) for one in steps)
    words = f"by α² to {number(worst, 2)} (relative), up to α = {steps[-1]['alpha']:g}"
    return (judged(worst < 1e-8), words)


def norms(results: Results) -> Finding:
    steps = results["unbounded"]["steps"]
    last = steps[-1]
    keys = ("first", "second")
    grown = min(
        last[k][n] / steps[0][k][n] for k in keys for n in ("frobenius", "spectral")
    )
    above = max(last[k]["above_one"] for k in keys)
    words = (
        f"all four norms grow by {number(grown, 3)} times or more at α = "
        f"{last['alpha']:g}, the stable ranks fall to 1 + {number(above, 2)}"
    )
    return (judged(grown > last["alpha"] / 100 and above < 1e-3), words)


def capacity(results: Results) -> Finding:
    first, *_, last = results["unbounded"]["steps"]
    ratios = [last[name] / first[name] for name in ("bartlett", "neyshabur")]
    words = (
        "the norms behind the two bounds grow by {} and {} times, (17) changes by "
        "{} (relative)".format(
            *(number(r, 3) for r in ratios),
            number(abs(last[SHARP] / first[SHARP] - 1), 2),
        )
    )
    return (judged(min(ratios) > 1e3), words)


def orders_of_growth(results: Results) -> Finding:
    networks = results["bits"]["networks"]
    wide = [one for one in networks if one["depth"] == networks[0]["depth"]]
    node, entry = (growth(wide[-2], wide[-1], kind) for kind in ("node", "entry"))
    gains = sum(
        one["kinds"]["node"]["total"] < one["kinds"]["matrix"]["total"]
        for one in networks
    )
    words = (
        f"the scales grow as h^{number(node, 2)} and h^{number(entry, 3)}; but rows and "
        f"columns of their own shorten the whole description in {gains} of "
        f"{len(networks)} networks against one scale a matrix"
    )
    return (judged(node < 1.1 < 1.5 < entry, IN_PART), words)


def naive(results: Results) -> Finding:
    networks = results["bits"]["networks"]
    shorter = sum(
        one["kinds"]["node"]["total"] < one["kinds"]["entry"]["total"]
        for one in networks
    )
    price = [
        one["kinds"]["entry"]["hyperprior"] / one["kinds"]["entry"]["total"]
        for one in networks
    ]
    words = (
        f"a scale for each weight: {min(price):.0%} to {max(price):.0%} of all bits are "
        f"the hyperprior's; (17) needs fewer bits in {shorter} of {len(networks)} networks"
    )
    return (judged(shorter == len(networks) and min(price) > 0.5), words)


def description(results: Results) -> Finding:
    networks = results["bits"]["networks"]
    paid = [
        one["kinds"]["node"]["hyperprior"] / one["kinds"]["node"]["weights"]
        for one in networks
    ]
    words = (
        "(24) is what noisy weights cost once the prior's scales are known; saying those "
        f"of (17) costs {number(min(paid), 2)} to {number(max(paid), 2)} times as much "
        "again"
    )
    return (judged(max(paid) > 0.1, IN_PART), words)


def branches(results: Results) -> Finding:
    found = results["branches"]
    diagonal = moved(found, "layer", "fisher-rao-norm[diagonal=True]")
    full = moved(found, "layer", "fisher-rao-norm")
    words = f"(25) becomes {number(diagonal)} times, the norm of Liang et al. {number(full)}"
    wrong = abs(diagonal - 2) < 1e-6 and abs(full - 1) < 1e-6
    return (judged(wrong, REFUTED), words)


def branches_kept(results: Results) -> Finding:
    factors = [moved(results["branches"], "layer", name) for name in (SHARP, MATRIX)]
    words = "(17) becomes {} times, (13) {} times".format(*map(number, factors))
    return (judged(all(abs(f - 1) < 1e-6 for f in factors)), words)


def lambda_law(results: Results) -> Finding:
    worst = max(
        abs(one["found_17"] / one["law_17"] - 1)
        for one in results["constants"]["lambda"]
    )
    several = ", ".join(f"{o['lambda']:g}" for o in results["constants"]["lambda"])
    words = f"to {number(worst, 2)} (relative), solved anew at λ = {several}"
    return (judged(worst < EXACT), words)


CHECKS = {
    "bound": Check(BOUNDS, bound),
    "psi": Check((*BOUNDS, "constants"), psi),
    "decomposition": Check(BOUNDS, decomposition),
    "small together": Check(BOUNDS, small_together),
    "rise": Check(("constants",), noise_rise),
    "divergence": Check(("constants",), divergence),
    "equal scales": Check(BOUNDS, equal_scales),
    "matrix constant": Check(BOUNDS, matrix_constant),
    "second order": Check(BOUNDS, second_order),
    "minimum": Check(("constants",), minimum),
    "layers": Check(("algorithm1",), layers_invariant),
    "nodes": Check(("algorithm1",), nodes_invariant),
    "curvature": Check(("unbounded",), curvature),
    "norms": Check(("unbounded",), norms),
    "capacity": Check(("unbounded",), capacity),
    "growth": Check(("bits",), orders_of_growth),
    "naive": Check(("bits",), naive),
    "description": Check(("bits",), description),
    "branches": Check(("branches",), branches),
    "branches kept": Check(("branches",), branches_kept),
    "lambda law": Check(("constants",), lambda_law),
}
"""Key in expected.json -> how the verdict follows from the stored results."""
