"""What we found for each claim of the paper: one sentence and a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from papers.dinh2017.ranking import RANKED_BY, spectral_norm
from papers.experiment import Results
from papers.page import number

AGREES, DIFFERS = "agrees", "differs"
CHANGES = {"standardizing": "standardized", "whitening": "whitened"}
Finding = tuple[str, str]


def verdict(holds: bool, words: str = AGREES) -> str:
    return words if holds else DIFFERS


def radial_local(results: Results) -> Finding:
    checks = results["radial-map"]["checks"].values()
    outside = max(one["moved"] for one in checks)
    inverse = max(one["inverse"] for one in checks)
    words = (
        f"moved outside the ball: {number(outside)}; error of the inverse: "
        f"{number(inverse)}"
    )
    return words, verdict(max(outside, inverse) < 1e-12)


def radial_jacobian(results: Results) -> Finding:
    checks = results["radial-map"]["checks"].values()
    outer = max(one["jacobian"] for one in checks)
    scalar = max(one["scalar"] for one in checks)
    words = (
        f"against finite differences: {number(outer)} with the outer product, "
        f"{number(scalar)} with a number in its place"
    )
    return words, verdict(outer < 1e-7 < scalar, "agrees, as an outer product")


def radial_hessian(results: Results) -> Finding:
    found = results["radial-map"]["hessian"]
    error = max(found["error at a minimum"], found["error elsewhere"])
    words = f"factor {number(found['factor'])}, relative error {number(error)}"
    return words, verdict(error < 1e-10)


def same_function(results: Results) -> Finding:
    found = results["orbit-layer"]
    words = (
        f"for α from {number(min(found['alphas']))} to {number(max(found['alphas']))} "
        f"outputs change by {number(found['output drift'])} and the loss by "
        f"{number(found['loss drift'])} (relative)"
    )
    return words, verdict(max(found["output drift"], found["loss drift"]) < 1e-12)


def large(results: Results) -> Finding:
    rows = {row["measure"]: row for row in results["orbit-layer"]["measures"]}
    factors = [rows[name]["factor"] for name in ("hessian-trace", RANKED_BY)]
    words = "trace up to ×{}, spectral norm up to ×{}".format(*map(number, factors))
    return words, verdict(min(factors) > 100)


def small(results: Results) -> Finding:
    networks = results["smallest-trace"]["networks"]
    error = max(abs(one["measured there"] / one["closed form"] - 1) for one in networks)
    shares = [number(one["closed form"] / one["trace"], 2) for one in networks]
    words = (
        f"the smallest traces are {', '.join(shares)} times those of "
        f"the networks at their minima; formula and measurement differ by {number(error)}"
    )
    # Away from a minimum, rounding decides where a training stops.
    bounded = all(
        one["critical"] and one["smallest of others"] >= 1 for one in networks
    )
    return words, verdict(error < 1e-9 and bounded, "does not hold, as corrected")


def volume(results: Results) -> Finding:
    rows = results["volume"]["sides"]
    first, last = rows[0], rows[-1]
    length = math.log(last["side"] / first["side"])
    slopes = [
        (last[name] - first[name]) / length for name in ("sampled", "closed form")
    ]
    scores = [abs(r["sampled"] - r["closed form"]) / r["sampled error"] for r in rows]
    words = (
        f"the sampled volume grows by {number(slopes[0])} for each unit of ln R "
        f"({number(slopes[1])} in the closed form), up to {number(last['sampled'])} ± "
        f"{number(last['sampled error'], 2)} at R = {number(last['side'])}"
    )
    return words, verdict(max(scores) < 4)


def theorem1(results: Results) -> Finding:
    found = results["theorem1"]
    words = (
        f"from {number(found['norms'][0])} at α = 1 to {number(found['norms'][-1])} at "
        f"α = {number(found['alphas'][-1])}; the law holds to {number(found['error'])}"
    )
    return words, verdict(found["error"] < 1e-10)


def settled(results: Results, run: str) -> list[dict[str, Any]]:
    """The networks that came to a minimum with curvature."""
    return [one for one in results[run]["networks"] if "rank" in one]


def theorem2(results: Results) -> Finding:
    networks = settled(results, "theorem2-without-biases")
    kept = [one for one in networks if one["exact"] >= one["claimed"]]
    reached = [one for one in networks if one["counts"][-1] == one["exact"]]
    words = (
        f"true for {len(kept)} of {len(networks)} trained minima; the number of "
        f"eigenvalues that grew was the exact rank in {len(reached)}"
    )
    return words, verdict(bool(networks) and len(kept) == len(networks))


def theorem2_biases(results: Results) -> Finding:
    networks = settled(results, "theorem2-with-biases")
    lower = [one for one in networks if one["exact"] < one["claimed"]]
    words = f"fewer than r - min n can grow in {len(lower)} of {len(networks)} trained minima"
    return words, verdict(bool(lower))


def theorem2_majority(results: Results) -> Finding:
    networks = settled(results, "theorem2-deep")
    claimed = [one["claimed"] / one["parameters"] for one in networks]
    exact = [one["exact"] / one["parameters"] for one in networks]
    most = sum(share > 0.5 for share in exact)
    words = (
        f"of all eigenvalues, r - min n promises {min(claimed):.0%} to {max(claimed):.0%} "
        f"and {min(exact):.0%} to {max(exact):.0%} can grow; a majority in {most} of "
        f"{len(networks)} networks"
    )
    always = most == len(networks)
    return words, verdict(most > 0, AGREES if always else "possible, not the rule")


def ranking(results: Results) -> Finding:
    found = results["ranking"]
    pairs = [
        [spectral_norm(found[time][found[which]]) for which in ("flat", "sharp")]
        for time in ("before", "after")
    ]
    words = "{} and {} before, {} and {} after".format(
        *(number(value) for pair in pairs for value in pair)
    )
    return words, verdict(pairs[0][0] < pairs[0][1] and pairs[1][0] > pairs[1][1])


def swapped(results: Results, kind: str) -> list[int]:
    """The neighbours that pixels and another representation rank in opposite order.

    Both by more than two standard errors.
    """
    return [
        one["neighbours"]
        for one in results["representation"]["models"][1:]
        if significant(one["pixels"]) * significant(one[kind]) < 0
    ]


def significant(one: dict[str, float]) -> int:
    """The sign of a lead of more than two standard errors, else 0."""
    if abs(one["lead"]) <= 2 * one["standard error of the lead"]:
        return 0
    return 1 if one["lead"] > 0 else -1


def representation_error(results: Results) -> Finding:
    models = results["representation"]["models"][1:]
    found = {name: swapped(results, kind) for name, kind in CHANGES.items()}
    counts = [f"{name} does so for {number(n) or 'none'}" for name, n in found.items()]
    words = (
        "to put linear regression and nearest neighbours in the opposite order: "
        f"{', '.join(counts)} of the neighbours "
        f"{number([one['neighbours'] for one in models])}"
    )
    turned = [name for name, neighbours in found.items() if neighbours]
    some = f"agrees for {' and '.join(turned)} only"
    every = len(turned) == len(found)
    return words, verdict(bool(turned), AGREES if every else some)


def likelihood_spread(results: Results) -> float:
    """How far the log-likelihood ratios of one pair differ between representations."""
    base, *others = results["representation"]["models"]
    kinds = results["representation"]["log determinants"]
    spreads = []
    for one in others:
        ratios = [one[k]["log-likelihood"] - base[k]["log-likelihood"] for k in kinds]
        spreads.append(max(ratios) - min(ratios))
    return max(spreads)


def representation_likelihood(results: Results) -> Finding:
    spread = likelihood_spread(results)
    words = f"log-likelihood ratios differ by at most {number(spread)} between representations"
    return words, verdict(spread < 1e-8)


FINDINGS: dict[str, tuple[str, Callable[[Results], Finding]]] = {
    "radial-local": ("radial-map", radial_local),
    "radial-jacobian": ("radial-map", radial_jacobian),
    "radial-hessian": ("radial-map", radial_hessian),
    "orbit-same-function": ("orbit-layer", same_function),
    "orbit-large": ("orbit-layer", large),
    "orbit-small": ("smallest-trace", small),
    "volume": ("volume", volume),
    "theorem1": ("theorem1", theorem1),
    "theorem2": ("theorem2-without-biases", theorem2),
    "theorem2-biases": ("theorem2-with-biases", theorem2_biases),
    "theorem2-majority": ("theorem2-deep", theorem2_majority),
    "ranking": ("ranking", ranking),
    "representation-error": ("representation", representation_error),
    "representation-likelihood": ("representation", representation_likelihood),
}
"""Claim -> the run that it needs, and what that run says of it."""
