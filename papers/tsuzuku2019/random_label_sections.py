"""The sections on random labels: what was trained, which measures follow the gap, prices."""

from __future__ import annotations

import statistics
from typing import Any

from flatgauge.vocabulary import Association
from papers.experiment import Results
from papers.page import NOT_RUN, number, table
from papers.tsuzuku2019.generalization import (
    PAPERS,
    SHOWN,
    TITLES,
    TRACE,
    Network,
    Order,
    order,
    pairs,
)
from papers.tsuzuku2019.random_labels import COSTLY, PAIRS

HEADS = {
    Association.PEARSON: "Pearson",
    Association.SPEARMAN: "Spearman",
    Association.KENDALL: "Kendall",
    Association.FIXED: "Kendall at one label ratio",
}
WHAT = """\
Networks are trained on labels of which a share, from 0 to 1 in steps of 0.1, was drawn anew
from all classes, with Adam (learning rate 1e-3, batches of 128) and no regularization, until
99 % of the training labels are fitted or all epochs are over ({epochs}, and 200 for
WRN-16-4). The paper trains for 50 to 200 epochs whatever the accuracy. The accuracy gap is
the accuracy on the training labels less that on the test part. Every number is of the first
10,000 training images with the labels that the network was trained on, with exact
diagonals; the loss is the
cross-entropy, and the normalized one for sharpnesses without `surrogate=objective`.
"""
COLOURS = """\
Colours are shares of random labels, from dark (none) to light (all); hollow points did not
fit. Values are rescaled to [0, 1] by their extremes, as in the paper's figures 3 and 4.
"""
READING = """\
Intervals hold 95 % of 1000 resamples of the networks. The best by each statistic is bold,
and "=" marks those whose distance from it is within what resamples of the same networks
show. The last column compares networks that have the same share of random labels: what a
measure sees beyond that share.
"""


def random_labels(results: Results) -> str:
    """All that is known of the pairs that were trained, at least in part."""
    epochs = ", ".join(
        f"{one['epochs']} for {TITLES[pair]}" for pair, one in PAIRS.items()
    )
    parts = [WHAT.format(epochs=epochs)]
    trained = dict(pairs(results))
    for pair, title in TITLES.items():
        if pair not in trained:
            parts.append(f"### {title}\n\n{NOT_RUN.capitalize()} yet.\n")
            continue
        parts += [f"### {title}\n", *_of_pair(trained[pair])]
    if trained:
        parts += [
            "![The accuracy gap against normalized sharpness](figures/figure3.svg)\n",
            "![The accuracy gap against the trace](figures/figure4.svg)\n",
            COLOURS,
        ]
    records = results.records.values()
    # Those of the quick form say nothing of the full one.
    if trained and not any(one["provenance"]["quick"] for one in records):
        parts += ["### Prices\n", _prices(results)]
    return "\n".join(parts)


def verdict(results: Results) -> str:
    """One sentence for each pair: which order the paper's measure and the trace give."""
    said = []
    for pair, networks in pairs(results):
        fitted = [one for one in networks if one["fitted"]]
        found = order(fitted)
        if found is None:
            said.append(f"- {TITLES[pair]}: too few networks fit their labels.\n")
            continue
        said.append(
            f"- {TITLES[pair]}, the {found.networks} networks of {len(networks)} that fit: "
            f"{_compared(found)}.\n"
        )
    return "".join(said)


def _compared(found: Order) -> str:
    parts = []
    for statistic in (Association.PEARSON, Association.KENDALL):
        ours = found.found[PAPERS][statistic]
        trace = found.found[TRACE][statistic]
        best = next(one for one in found.places if one.statistic == statistic)
        parts.append(
            f"{HEADS[statistic]} {ours.shown} for {PAPERS} against {trace.shown} for "
            f"{TRACE}, the best {best.column} "
            f"({number(found.found[best.column][statistic].value, 3)})"
        )
    return "; ".join(parts)


def _of_pair(networks: list[Network]) -> list[str]:
    fitted = [one for one in networks if one["fitted"]]
    costly = [one for one in networks if COSTLY[0] in one["measures"]]
    parts = [_training(networks), READING]
    for title, found in (
        (f"All {len(networks)} networks", order(networks)),
        (f"The {len(fitted)} that fit", order(fitted)),
        (
            f"The {len(costly)} on which the costly measures were taken",
            order(networks, costly=True) if costly else None,
        ),
        (
            "Those of them that fit",
            order(fitted, costly=True) if costly else None,
        ),
    ):
        if found is not None:
            parts += [f"**{title}**\n", _ranking(found)]
    return parts


def _training(networks: list[Network]) -> str:
    rows = []
    for ratio in sorted({one["ratio"] for one in networks}):
        own = [one for one in networks if one["ratio"] == ratio]
        rows.append(
            [
                number(ratio),
                f"{sum(one['fitted'] for one in own)} of {len(own)}",
                *(
                    number(statistics.mean(one[name] for one in own), 3)
                    for name in (
                        "epochs",
                        "train_accuracy",
                        "train_loss",
                        "test_accuracy",
                        "gap",
                    )
                ),
            ]
        )
    head = [
        "random labels",
        "networks that fit",
        "epochs",
        "train accuracy",
        "train loss",
        "test accuracy",
        "gap",
    ]
    return table(head, rows)


def _ranking(found: Order) -> str:
    rows = [
        [f"`{request}`", *(_cell(found, request, statistic) for statistic in SHOWN)]
        for request in found.found
    ]
    return table(["measure", *(HEADS[one] for one in SHOWN)], rows)


def _cell(found: Order, request: str, statistic: str) -> str:
    one, place = found.found[request][statistic], found.place(statistic, request)
    if place is None:
        return one.shown
    if place.place == 1:
        return f"**{one.shown}**"
    return f"{one.shown} =" if place.tied else one.shown


def _prices(results: Results) -> str:
    """Seconds of each measure on one network, the mean over a pair's networks."""
    spent: dict[str, dict[str, list[float]]] = {}
    for pair in TITLES:
        for name in results:
            if not name.startswith(f"random-labels-{pair}-"):
                continue
            networks = results[name]["networks"]
            times: dict[str, Any] = results.records[name]["times"]["of"]
            for request, seconds in times.items():
                own = spent.setdefault(request, {}).setdefault(pair, [])
                of = [n for n in networks if request in ("training", *n["measures"])]
                own.append(seconds / len(of))
    made = [pair for pair, _ in pairs(results)]
    rows = [
        [
            f"`{request}`" if request != "training" else "training",
            *(
                f"{statistics.mean(own[pair]):.2f}" if pair in own else "–"
                for pair in made
            ),
        ]
        for request, own in spent.items()
    ]
    said = (
        "Seconds for each network: of training, and of each measure with what it shares "
        "with those before it not counted again.\n"
    )
    return f"{said}\n{table(['', *(TITLES[pair] for pair in made)], rows)}"
