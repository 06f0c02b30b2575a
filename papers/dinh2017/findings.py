"""What we found for the radial map, the orbit of one network, and the two theorems."""

from __future__ import annotations

import math
from typing import Any

from papers.dinh2017.ranking import RANKED_BY
from papers.dinh2017.verdicts import AGREES, Finding, verdict
from papers.experiment import Results
from papers.page import number


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


def theorem2_inequality(results: Results) -> Finding:
    names = ("theorem2-without-biases", "theorem2-deep", "theorem2-convolutions")
    networks = [one for name in names for one in settled(results, name)]
    kept = [one for one in networks if one["interlaced"]]
    words = (
        f"holds at every β that was tried in {len(kept)} of {len(networks)} networks"
    )
    return words, verdict(bool(networks) and len(kept) == len(networks))


def theorem2_biases(results: Results) -> Finding:
    networks = settled(results, "theorem2-with-biases")
    lower = [one for one in networks if one["exact"] < one["claimed"]]
    words = f"fewer than r - min n can grow in {len(lower)} of {len(networks)} trained minima"
    return words, verdict(bool(lower))


def theorem2_majority(results: Results) -> Finding:
    words, most, count = majority(results, "theorem2-deep")
    return words, verdict(
        most > 0, AGREES if most == count else "possible, not the rule"
    )


def theorem2_convolutions(results: Results) -> Finding:
    words, most, count = majority(results, "theorem2-convolutions")
    return words, verdict(0 < most == count)


def majority(results: Results, run: str) -> tuple[str, int, int]:
    """What share of the eigenvalues can grow; in how many of how many networks most."""
    networks = settled(results, run)
    claimed = [one["claimed"] / one["parameters"] for one in networks]
    exact = [one["exact"] / one["parameters"] for one in networks]
    most = sum(share > 0.5 for share in exact)
    words = (
        f"of all eigenvalues, r - min n promises {min(claimed):.0%} to {max(claimed):.0%} "
        f"and {min(exact):.0%} to {max(exact):.0%} can grow; a majority in {most} of "
        f"{len(networks)} networks"
    )
    return words, most, len(networks)
