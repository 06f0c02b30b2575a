"""The sections of the page on the bounds and on description lengths."""

from __future__ import annotations

import math
from typing import Any

from papers.experiment import Results
from papers.page import number, table
from papers.tsuzuku2019.bits import KINDS, growth
from papers.tsuzuku2019.sections import not_run

BOUNDS = ("bounds-digits", "bounds-mnist")
SHARED = {
    "matrix": "one scale a matrix (11)",
    "node": "one a row and a column (17)",
    "entry": "one an entry",
}


def verdict(results: Results) -> str:
    """What the bounds and the description lengths say, in plain words."""
    networks = [
        one for name in BOUNDS if name in results for one in results[name]["networks"]
    ]
    parts = [f"- (1). {_said(networks)}" if networks else not_run(BOUNDS[0])]
    if "bits" in results:
        described = results["bits"]["networks"]
        parts.append(f"- (24). {_compressed(described)} {_worth(described)}\n")
    return "".join(parts)


def bounds(results: Results) -> str:
    """(1), (2) and (4) term by term."""
    made = [name for name in BOUNDS if name in results]
    if not made:
        return not_run(BOUNDS[0])
    networks = [one for name in made for one in results[name]["networks"]]
    return "\n".join(
        [
            "ReLU networks with one hidden layer of 32 units, with biases. The prior's "
            "scales come from a grid of "
            f"{_first(networks)['grid_size']} powers of 2^(1/8), fixed in advance; each "
            "scale that is chosen after training costs the logarithm of that number, in "
            "nats. λ is the best of a grid that depends on m alone, and is paid for, too; "
            "δ = 0.05. The posterior of (11) has one variance a tensor; that of (17) "
            "one a row and a column, and one an entry of each bias.\n",
            _terms(networks),
            "The error of Q is bounded from its draws, by Chernoff, before it enters the "
            "bound. The last column but one is Q's error on images that were not "
            "trained on, which the bound is about.\n",
            _said(networks),
            "### (4): the deterministic network\n",
            "(A) is the error of the network less that of Q, on unseen images; (C) is "
            "the error of Q less that of the network, on the training images; beside it "
            "what the second order of the surrogate loss gives for (C).\n",
            _decomposition(networks),
            "With true labels (A) is small where (C) is, as section 3.2 expects, because "
            "it is about −(C): noise costs as much on unseen images as on the training "
            "images.\n"
            if _opposite(networks)
            else "",
            "### (2): Ψ itself\n",
            "For the prior of (11) that each bound chose, with the training images as "
            "the whole distribution, the expectation over data sets is known and the one "
            "over the prior is a mean over draws. λ²/8m is Hoeffding's bound; the paper "
            "prints λ²/2m. A mean of exponentials of a few draws is a low guess.\n",
            table(
                ["network", "λ", "Ψ", "λ²/8m", "λ²/2m, as printed", "errors drawn"],
                [_psi(one) for one in networks],
            ),
            "### λ, fixed in advance\n",
            _sweep(networks),
        ]
    )


def bits(results: Results) -> str:
    """(24) in bits, and how the constant grows."""
    if "bits" not in results:
        return not_run("bits")
    result = results["bits"]
    networks = result["networks"]
    rows = []
    for one in networks:
        for kind in KINDS:
            found = one["kinds"][kind]
            rows.append(
                [
                    f"{one['width']} × {one['depth']}",
                    one["network"]["parameters"],
                    SHARED[kind],
                    found["tuned"],
                    *(round(found[n]) for n in ("hyperprior", "weights", "labels")),
                    round(found["total"]),
                    found["factor"],
                    found["grid"],
                ]
            )
    head = ["h × d", "weights", "noise scales", "scales", "hyperprior"]
    first = networks[0]
    wide = [one for one in networks if one["depth"] == first["depth"]]
    exponents = [
        f"{number(growth(wide[-2], wide[-1], kind), 3)} ({SHARED[kind]})"
        for kind in KINDS
    ]
    samples = first["network"]["samples"]
    return (
        f"Networks without biases on {samples} of the 8 × 8 digits, whose labels alone "
        f"take {round(first['labels_alone'])} bits. Bits-back coding sends the noisy "
        "weights for (24) bits, then the labels given these weights; the scales of the "
        "prior must be sent as well, for the logarithm of their grid's size each. All "
        "numbers are bits, at the λ (in multiples of m) and on the grid (of "
        f"{number(result['grids'])} values) with the least sum; which ones, another "
        f"{number(_choice(results), 2)} bits, is left out.\n\n"
        + table(
            [*head, "weights, (24)", "labels", "sum", "λ/m", "grid"],
            rows,
        )
        + "\nThe number of scales grows with the width, between the two widest networks "
        f"of depth {first['depth']}, with the exponents {', '.join(exponents)}, and with "
        "the depth linearly: O(d), O(hd) and O(h²d), as the paper says. "
        + _worth(networks)
        + " "
        + _compressed(networks)
        + f" At λ = m, where the second-order loss would be the whole loss, the noise is "
        f"far too large in {_too_large(networks)} of {len(networks)} networks: under it "
        "the labels alone cost more bits than without a network.\n"
    )


def _first(networks: list[dict[str, Any]]) -> dict[str, Any]:
    return next(iter(networks[0]["posteriors"].values()))


def _each(networks: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str, Any]]:
    return [(one, k, p) for one in networks for k, p in one["posteriors"].items()]


def _terms(networks: list[dict[str, Any]]) -> str:
    rows = []
    for one, kind, p in _each(networks):
        lam = p["lambda"]
        rows.append(
            [
                f"{one['label']}, m = {one['network']['samples']}",
                "(11)" if kind == "matrix" else "(17)",
                number(lam),
                p["posterior_error_bound"],
                p["B"],
                p["hyperprior"] / lam,
                (p["lambda_price"] + p["log_inverse_delta"]) / lam,
                p["psi"] / lam,
                p["value"],
                p["paper"],
                p["unseen_error"],
                p["tuned_scales"],
            ]
        )
    head = ["network", "posterior", "λ", "L_S(Q)", "KL/λ", "hyperprior/λ"]
    head += ["λ's choice and δ, /λ", "Ψ/λ", "bound (1)", "with λ²/2m for Ψ"]
    return table([*head, "Q on unseen images", "scales chosen"], rows)


def _said(networks: list[dict[str, Any]]) -> str:
    """Whether the bounds hold, whether they say anything, and what they pay for."""
    every = _each(networks)
    held = sum(p["unseen_error"] <= p["value"] for _, _, p in every)
    useful = [one["label"] for one, _, p in every if p["value"] < 1]
    vacuous = len(every) - len(useful)
    dearer = sum(
        one["posteriors"]["node"]["hyperprior"] > one["posteriors"]["node"]["kl"]
        for one in networks
    )
    better = sum(
        one["posteriors"]["node"]["value"] < one["posteriors"]["matrix"]["value"]
        for one in networks
    )
    named = f" ({', '.join(dict.fromkeys(useful))})" if useful else ""
    return (
        f"The bound holds in {held} of {len(every)} cases. It is below 1, so that it says "
        f"anything, in {len(useful)}{named}; in the other {vacuous} it is vacuous. The "
        "posterior of (17) has the smaller divergence, but with its hyperprior the "
        f"smaller bound in {better} of {len(networks)} networks: what the paper "
        "calls a constant is larger than the divergence itself in "
        f"{dearer} of {len(networks)}.\n"
    )


def _decomposition(networks: list[dict[str, Any]]) -> str:
    rows = [
        [
            one["label"],
            "(11)" if kind == "matrix" else "(17)",
            p["training_error"],
            one["unseen_error"],
            p["A"],
            p["C"],
            p["C_second_order"],
            p["value"] + p["A"],
        ]
        for one, kind, p in _each(networks)
    ]
    head = ["network", "posterior", "L_S(f)", "f on unseen images", "(A)", "(C)"]
    return table([*head, "(C), second order", "right side of (4)"], rows)


def _opposite(networks: list[dict[str, Any]]) -> bool:
    """Whether (A) is −(C) to a third, where the labels are true."""
    true = [p for one, _, p in _each(networks) if one["network"]["accuracy"] > 0.9]
    return bool(true) and all(abs(p["A"] + p["C"]) < p["C"] / 3 for p in true)


def _psi(one: dict[str, Any]) -> list[Any]:
    found = one["deviation"]
    risks = f"{number(found['least_risk'], 3)} to {number(found['largest_risk'], 3)}"
    lam = one["posteriors"]["matrix"]["lambda"]
    return [one["label"], lam, found["found"], found["tight"], found["printed"], risks]


def _sweep(networks: list[dict[str, Any]]) -> str:
    """The bound for λ that are fixed multiples of m."""
    swept = [one for one in networks if one["sweep"]]
    if not swept:
        return not_run("bounds-digits")
    rows = []
    for one in swept:
        for kind in one["posteriors"]:
            mine = [s for s in one["sweep"] if s["kind"] == kind]
            rows.append([one["label"], kind, *(s["value"] for s in mine)])
    m = swept[0]["network"]["samples"]
    factors = [s["lambda"] / m for s in swept[0]["sweep"] if s["kind"] == "matrix"]
    return (
        "The paper speaks of the λ that attains the infimum; a bound is valid for a λ "
        "that was fixed before the data were seen, or at the price of a choice. For one "
        "fixed in advance:\n\n"
        + table(["network", "posterior", *(f"λ = {f:g} m" for f in factors)], rows)
    )


def _worth(networks: list[dict[str, Any]]) -> str:
    """Whether the scales of (17) save what they cost."""
    saved = [
        one["kinds"]["matrix"]["total"] - one["kinds"]["node"]["total"]
        for one in networks
    ]
    gains = sum(one > 0 for one in saved)
    naive = sum(
        one["kinds"]["node"]["total"] < one["kinds"]["entry"]["total"]
        for one in networks
    )
    return (
        "Scales for rows and columns make "
        f"the whole description shorter than one scale a matrix in {gains} of "
        f"{len(networks)} networks, and shorter than one scale an entry in {naive}."
    )


def _compressed(networks: list[dict[str, Any]]) -> str:
    shorter = {
        kind: sum(o["kinds"][kind]["total"] < o["labels_alone"] for o in networks)
        for kind in KINDS
    }
    said = "; ".join(f"in {n} with {SHARED[kind]}" for kind, n in shorter.items())
    return (
        f"Of {len(networks)} networks, network and labels together take fewer bits than "
        f"the labels alone {said}."
    )


def _too_large(networks: list[dict[str, Any]]) -> int:
    return sum(
        all(k["at_m"]["labels"] > one["labels_alone"] for k in one["kinds"].values())
        for one in networks
    )


def _choice(results: Results) -> float:
    """The bits that say which λ and which grid were taken."""
    tried = results.records["bits"]["settings"]["factors"]
    return math.log2(len(tried) * len(results["bits"]["grids"]))
