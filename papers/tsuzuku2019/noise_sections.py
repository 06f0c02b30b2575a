"""The section of the page on (62): its dependence on λ, and its shape."""

from __future__ import annotations

from typing import Any

from papers.experiment import Results
from papers.page import number, table
from papers.tsuzuku2019.drawings import NOISE
from papers.tsuzuku2019.noise import orders
from papers.tsuzuku2019.sections import not_run

NOISES = ("noise-1", "noise-2", "noise-3")
# A second difference this many standard errors below 0 is no accident.
CLEAR = -4.0


def noise(results: Results) -> str:
    """(62) against λ, and its shape."""
    made = [name for name in NOISES if name in results]
    if not made:
        return not_run(NOISES[0])
    networks = [results[name] for name in made]
    rows = []
    for index, first in enumerate(networks[0]["values"]):
        row: list[Any] = [f"{first['lambda']:g}"]
        for one in networks:
            value = one["values"][index]
            mark = "" if value["trusted"] else " *"
            row.append(f"{number(value['direct'])} ± {value['error']:.1g}{mark}")
        row += [number(one["values"][index]["second_order"]) for one in networks]
        rows.append(row)
    labels = [one["label"] for one in networks]
    head = ["λ", *(f"(62), {one}" for one in labels), *(f"(17), {o}" for o in labels)]
    parts = [
        f"![(62) against λ, and along the size of the noise](figures/{NOISE})\n",
        "Networks of one hidden layer of 24 units without biases, on 500 digits (the "
        "third on 100), under the cross-entropy: "
        + "; ".join(
            f"{one['label']}: loss {number(one['network']['loss'], 3)}, accuracy "
            f"{one['network']['accuracy']:.1%}"
            for one in networks
        )
        + ". Values are minima that stochastic descent found, ± standard errors; * where "
        "the library does not call them converged.\n",
        table(head, rows),
        _orders(networks),
    ]
    if "noise-profile" in results:
        parts += ["### Nonconvexity\n", _profile(results["noise-profile"])]
    return "\n".join(parts)


def _orders(networks: list[dict[str, Any]]) -> str:
    lambdas = [one["lambda"] for one in networks[0]["values"]]
    groups: dict[str, list[str]] = {}
    for lam, order in zip(lambdas, orders(networks, "direct"), strict=True):
        groups.setdefault(" < ".join(f"({one})" for one in order), []).append(
            f"{lam:g}"
        )
    found = "; ".join(f"{order} at λ = {', '.join(at)}" for order, at in groups.items())
    (second, *others) = {tuple(one) for one in orders(networks, "second_order")}
    rest = (
        f"{' < '.join(f'({one})' for one in second)} at every λ"
        if not others
        else "also not in one order"
    )
    return (
        f"From flat to sharp, (62) has {found}; where two values are within their errors "
        f"the order is open. (17) has {rest}.\n"
    )


def _profile(result: dict[str, Any]) -> str:
    rows = []
    for one in result["profiles"]:
        for found in one["lambdas"]:
            clear = found["score"] < CLEAR
            rows.append(
                [
                    one["loss"],
                    f"{found['lambda']:g}",
                    f"{found['score']:.3g}",
                    "not convex" if clear else "no sign of it",
                    found["minima_inside"],
                ]
            )
    ts = result["log_noise"]
    head = ["loss", "λ", "lowest second difference, in standard errors", "shape"]
    return (
        "All variances that are best for (17) at λ = 1 are multiplied by e^t, for t from "
        f"{ts[0]:g} to {ts[-1]:g}, with the same draws at every t. (62) along this line "
        "would be convex in t if it were convex in the logarithms of its scales; a second "
        "difference that is clearly negative shows that it is not.\n\n"
        + table([*head, "minima inside the range"], rows)
        + "\nThe normalized loss, which the paper measures with, is bounded: it saturates "
        "under large noise, which bends the curve down." + _without(result) + "\n"
    )


def _without(result: dict[str, Any]) -> str:
    """For which λ the bounded loss leads to ever more noise."""
    bounded = next(o for o in result["profiles"] if o["loss"] != "cross-entropy")
    lams = [
        f"{one['lambda']:g}" for one in bounded["lambdas"] if not one["minima_inside"]
    ]
    if not lams:
        return ""
    return (
        f" At λ = {', '.join(lams)} there is no minimum along this range at all, only "
        "ever more noise."
    )
