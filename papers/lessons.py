"""What the papers' results come to for who chooses a measure, one lesson each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from papers.dinh2017.ranking import kept_values
from papers.experiment import Results
from papers.page import number
from papers.rangamani2019 import cifar_cells
from papers.rangamani2019.cause import MANY, loss_orders, near, orders
from papers.rangamani2019.minima import cells
from papers.tsuzuku2019.findings import bound
from papers.tsuzuku2019.generalization import PAPERS, TITLES, TRACE
from papers.tsuzuku2019.random_label_findings import correlations

Stored = Mapping[str, Results]


@dataclass(frozen=True)
class Lesson:
    """Advice, and the numbers behind it.

    Attributes:
        advice: what to do.
        needs: the runs behind it, (paper, run); a lesson from whatever was run has none.
        shown: what they gave, from the results of all papers; "" if that is nothing:
            advice without a number behind it is not given.
    """

    advice: str
    needs: Sequence[tuple[str, str]]
    shown: Callable[[Stored], str]


def listed(results: Stored) -> str:
    """All of them as a list in Markdown."""
    found = [(one.advice, _shown(one, results)) for one in LESSONS]
    return "".join(f"- **{advice}** {shown}\n" for advice, shown in found if shown)


def _shown(lesson: Lesson, results: Stored) -> str:
    there = all(run in results[paper] for paper, run in lesson.needs)
    return lesson.shown(results) if there else ""


def rescaled(results: Stored) -> str:
    """How far measures go along one orbit."""
    rows = results["dinh2017"]["orbit-layer"]["measures"]
    free = max(
        (row for row in rows if not row["claims"]), key=lambda row: row["factor"]
    )
    kept = [row for row in rows if row["claims"]]
    return (
        f"Along rescaled layers of one function `{free['measure']}` moved by a factor of "
        f"{number(free['factor'], 2)}; the {len(kept)} measures that claim not to move "
        f"moved by {number(max(row['drift'] for row in kept), 2)} (relative) at most."
    )


def elsewhere(results: Stored) -> str:
    """What radial maps leave of our measures."""
    kept, valued = kept_values(results["dinh2017"]["ranking"])
    return (
        f"In the coordinates of a radial map {len(kept)} of the {len(valued)} measures "
        "that have a value there keep it. Invariance is always under something: the "
        "[table](invariance.md) says under what."
    )


def one_loss(results: Stored) -> str:
    """Small against large batches, where losses differ and where they do not."""
    found = results["rangamani2019"]
    made = [one for one in (*cells(found), *cifar_cells.cells(found)) if one.small]
    far = [one for one in made if orders(one) >= MANY]
    close = [one for one in made if near(one)]
    said = []
    if far:
        pairs = ", ".join(
            f"10^{orders(one):.1f} with losses 10^{loss_orders(one):.1f} apart"
            for one in far
        )
        said.append(f"Large batches came out sharper by {pairs}.")
    if close:
        most = max(abs(orders(one)) for one in close)
        said.append(
            f"Where the train losses were nearly the same ({len(close)} of {len(made)} "
            "kinds of networks), small and large batches differed by a factor of "
            f"{10**most:.1f} at most."
        )
    return " ".join(said)


def exact(results: Stored) -> str:
    """What clipped probes make of (17)."""
    made = results["tsuzuku2019"]["algorithm1"]["estimates"]
    printed, products, gauss = (
        next(one for one in made if one["kind"] == kind)
        for kind in ("differences", "products", "gauss-newton")
    )
    ratios = [
        one["ratios"][one["probes"].index(10)] for one in (printed, products, gauss)
    ]
    return (
        "With 10 probes, clipped at 0, (17) came out {} times its exact value by "
        "differences and {} times by exact products; by the Gauss-Newton matrix, which has "
        "nothing to clip, {} times.".format(*(number(one, 3) for one in ratios))
    )


def bounds(results: Stored) -> str:
    """How often the PAC-Bayes bound says anything."""
    return f"The bound (1) {bound(results['tsuzuku2019'])[1]}."


def generalization(results: Stored) -> str:
    """Correlations with the accuracy gap over random labels."""
    found = correlations(results["tsuzuku2019"])
    said = "; ".join(
        f"{TITLES[pair]}: {ours.shown} for `{PAPERS}`, {trace.shown} for `{TRACE}`"
        for pair, (ours, trace) in found.items()
    )
    if not said:
        return ""
    return (
        f"Pearson's correlation with the accuracy gap over networks that fit: {said}. How "
        "many labels are random moves both, so that it says little of networks with the "
        "same labels: the paper's page has those, too."
    )


LESSONS = (
    Lesson(
        "Take a measure that your network's symmetries do not move, and audit it there.",
        [("dinh2017", "orbit-layer")],
        rescaled,
    ),
    Lesson(
        "Do not take an invariant measure for more than it claims.",
        [("dinh2017", "ranking")],
        elsewhere,
    ),
    Lesson(
        "Compare networks at the same train loss.",
        [],
        one_loss,
    ),
    Lesson(
        "Take exact diagonals or Gauss-Newton ones, not clipped probes.",
        [("tsuzuku2019", "algorithm1")],
        exact,
    ),
    Lesson(
        "Do not take a bound that holds for one that says something.",
        [("tsuzuku2019", "bounds-digits"), ("tsuzuku2019", "bounds-mnist")],
        bounds,
    ),
    Lesson(
        "Do not expect sharpness to tell which network generalizes before you have seen it "
        "on networks like yours.",
        [],
        generalization,
    ),
)
