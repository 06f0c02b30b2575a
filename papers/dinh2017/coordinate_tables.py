"""The parts of the page on other coordinates: of the parameters, and of the data."""

from __future__ import annotations

from typing import Any

from papers.dinh2017.findings import likelihood_spread, significant
from papers.dinh2017.ranking import MEASURES
from papers.dinh2017.representation import REPRESENTATIONS
from papers.experiment import Results
from papers.page import number, table


def ranking(results: Results, expected: dict[str, Any]) -> str:
    found = results["ranking"]
    flat, sharp = found["flat"], found["sharp"]
    rows, messages = [], []
    for name in MEASURES:
        places = [("before", sharp), ("before", flat), ("after", flat)]
        own = [found[time][network][name] for time, network in places]
        other, one, new = (item["value"] for item in own)
        rows.append([name, other, one, new, swap_words(one, other, new)])
        if new is None:
            messages.append(f"- `{name}`: {own[-1]['message']}")
    networks = found["networks"]
    head = ["measure", sharp, flat, f"{flat}, new coordinates", "ranking"]
    worst = max(one["output change"] for one in networks.values())
    return f"""\
![The ranking of two minima](figures/ranking.svg)

Two networks of one shape, trained in two ways on the same images: {accuracies(networks)}. By
the spectral norm of the Hessian, "{flat}" is flatter. We put a ball of radius
δ = {number(found["radii"]["delta"])} around it, which leaves the other network outside, and
change the coordinates inside the ball with r̂ = {number(found["radii"]["rhat"])} and
ρ = {number(found["radii"]["rho"])}. Neither network changes: outputs move by at most
{number(worst)} (relative). But in the new coordinates the Hessian of "{flat}" is
{number(found["factor"])} times as large, and the ranking is the opposite.

{table(head, rows)}
**None of those that have a value keeps it.** A radial map is not a symmetry of the network. It
is a nonlinear change of coordinates, and our measures claim to be invariant under other
things: the rescalings, permutations and similar symmetries that the network itself has. A
change of coordinates like this one is allowed in mathematics, but nobody writes a network down
in this way. So we take it as a limit of what any such number can mean, not as a reason to use
none.

A dash means that the library gives no value in the new coordinates. It says:

{chr(10).join(messages)}
"""


def swap_words(flat: float | None, sharp: float | None, new: float | None) -> str:
    if flat is None or sharp is None or new is None:
        return "does not apply"
    if new == flat:
        return "stays"
    return (
        "swapped" if (flat < sharp) != (new < sharp) else "not swapped, value changed"
    )


def accuracies(networks: dict[str, Any]) -> str:
    return "; ".join(
        f'"{name}" (train {one["train accuracy"]:.1%}, test {one["test accuracy"]:.1%})'
        for name, one in sorted(networks.items(), reverse=True)
    )


def representation(results: Results, expected: dict[str, Any]) -> str:
    found = results["representation"]
    rows = []
    for one in found["models"]:
        count = one["neighbours"]
        row: list[Any] = [f"{count} nearest" if count else "linear regression"]
        row += [mark(one[kind]) for kind in REPRESENTATIONS]
        row += [one[kind]["log-likelihood"] for kind in REPRESENTATIONS]
        rows.append(row)
    head = ["model", *(f"error, {kind}" for kind in REPRESENTATIONS)]
    head += [f"log-likelihood, {kind}" for kind in REPRESENTATIONS]
    return f"""\
![Errors and likelihoods](figures/representation.svg)

Two kinds of models predict the lower half of an image from its upper half: linear regression,
and the mean of the nearest images. We compare their mean squared errors on test images in
three representations of the same {found["pixels"]} pixels: as they are, standardized (every
pixel divided by its standard deviation), and whitened. As a density, a model is a normal
distribution around its prediction with the covariance of its training errors.

{table(head, rows)}
A star marks an error that is lower than that of linear regression by more than two standard
errors of the paired difference, a cross one that is higher. Where a row has both, the ranking
depends on the representation. The log-likelihood changes too, but for all models by the same
number, so that ratios stay (to {number(likelihood_spread(results))}).
"""


def mark(one: dict[str, float]) -> str:
    sign = {1: " *", 0: "", -1: " ×"}[significant(one)]
    return f"{number(one['mean squared error'])}{sign}"
