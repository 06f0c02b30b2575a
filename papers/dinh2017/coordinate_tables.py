"""The parts of the page on other coordinates: of the parameters, and of the data."""

from __future__ import annotations

from typing import Any

from papers.dinh2017.ranking import MEASURES, RANKED_BY, fates, kept_values
from papers.dinh2017.representation import REPRESENTATIONS
from papers.dinh2017.representation_findings import (
    CHANGES,
    likelihood_spread,
    significant,
    swapped,
)
from papers.experiment import Results
from papers.page import number, table


def ranking(results: Results, expected: dict[str, Any]) -> str:
    found = results["ranking"]
    flat, sharp = found["flat"], found["sharp"]
    rows, messages = [], []
    for name, fate in fates(found, MEASURES).items():
        places = [(time, one) for time in ("before", "after") for one in (sharp, flat)]
        own = [found[time][network][name] for time, network in places]
        rows.append([name, *map(shown, own), fate])
        if own[-1]["value"] is None:
            messages.append(f"- `{name}`: {own[-1]['message']}")
    networks = found["networks"]
    head = [
        "measure",
        sharp,
        flat,
        *(f"{one}, new" for one in (sharp, flat)),
        "ranking",
    ]
    opposite = fates(found, [RANKED_BY])[RANKED_BY] == "swapped"
    worst = max(one["output change"] for one in networks.values())
    return f"""\
![The ranking of two minima](figures/ranking.svg)

Two networks of one shape, trained in two ways on the same
images{pooled(results)}: {accuracies(networks)}. By
the spectral norm of the Hessian, "{flat}" is flatter. We put a ball of radius
δ = {number(found["radii"]["delta"])} around it, which leaves the other network outside, and
change the coordinates inside the ball with r̂ = {number(found["radii"]["rhat"])} and
ρ = {number(found["radii"]["rho"])}. Neither network changes: outputs move by at most
{number(worst)} (relative). But in the new coordinates the Hessian of "{flat}" is
{number(found["factor"])} times as large, and by the spectral norm the ranking is
{"the opposite" if opposite else "what it was"}. "New" are the new coordinates.

{table(head, rows)}
{outside(found)}

**{kept_words(found)}** A radial map is not a symmetry of the network. It
is a nonlinear change of coordinates, and our measures claim to be invariant under other
things: the rescalings, permutations and similar symmetries that the network itself has. A
change of coordinates like this one is allowed in mathematics, but nobody writes a network down
in this way. So we take it as a limit of what any such number can mean, not as a reason to use
none.

{unvalued(messages)}"""


def pooled(results: Results) -> str:
    """How the images were made smaller, and why."""
    pool = results.records["ranking"]["settings"]["pool"]
    if pool == 1:
        return ""
    return (
        f" ({pool} × {pool} pixels taken as one, so that the networks are small enough "
        "for exact diagonals)"
    )


def shown(one: dict[str, Any]) -> str:
    """A value, with its uncertainty where it was estimated."""
    if one["status"] != "ESTIMATED" or one["uncertainty"] is None:
        return number(one["value"])
    return f"{number(one['value'])} ± {number(one['uncertainty'], 2)}"


def outside(found: dict[str, Any]) -> str:
    """What became of the values of the network that the map does not move."""
    sharp, drifts = found["sharp"], []
    for name in MEASURES:
        old, new = (found[time][sharp][name]["value"] for time in ("before", "after"))
        if old is not None and new is not None:
            drifts.append(abs(new / old - 1))
    return (
        f'"{sharp}" lies where the two coordinates are the same: its values change by at '
        f"most {number(max(drifts), 2)} (relative)."
    )


def kept_words(found: dict[str, Any]) -> str:
    """How many of the measures have the same value in the new coordinates."""
    kept, valued = kept_values(found)
    if not kept:
        return "None of those that have a value keeps it."
    return f"{len(kept)} of the {len(valued)} that have a value keep it: {', '.join(kept)}."


def unvalued(messages: list[str]) -> str:
    if not messages:
        return ""
    head = (
        "A dash means that the library gives no value in the new coordinates. It says:"
    )
    return "\n".join([head, "", *messages, ""])


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
depends on the representation. {weakest(results)}The log-likelihood
changes too, but for all models by the same number, so that ratios stay (to
{number(likelihood_spread(results))}).
"""


def weakest(results: Results) -> str:
    """How far from chance the rows are that a change of representation turns around."""
    models = results["representation"]["models"][1:]
    parts = []
    for name, kind in CHANGES.items():
        turned = swapped(results, kind)
        if turned:
            leads = [
                abs(one[k]["lead"] / one[k]["standard error of the lead"])
                for one in models
                if one["neighbours"] in turned
                for k in ("pixels", kind)
            ]
            parts.append(f"{number(min(leads), 2)} standard errors by {name}")
    if not parts:
        return ""
    return (
        f"The weakest lead in such a row is {' and '.join(parts)}; with {len(models)} rows, "
        "one of little more than two could be chance. "
    )


def mark(one: dict[str, float]) -> str:
    sign = {1: " *", 0: "", -1: " ×"}[significant(one)]
    return f"{number(one['mean squared error'])}{sign}"
