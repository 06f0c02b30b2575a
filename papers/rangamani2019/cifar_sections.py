"""The section on CIFAR-10: Table 4 cell by cell, the trainings, and every measure."""

from __future__ import annotations

from typing import Any

from papers.experiment import Results
from papers.page import number, table
from papers.rangamani2019 import cifar_table4
from papers.rangamani2019.cifar import PROTOCOLS, SEEDS, SHAPES, sizes
from papers.rangamani2019.cifar_cells import (
    LEAST_ACCURACY,
    NOT_YET,
    Network,
    cells,
    coverage,
    sides,
    trained,
)
from papers.rangamani2019.comparison import NEAR
from papers.rangamani2019.minima import MEASURES, Cell, Measure, title_of
from papers.rangamani2019.statistics import spread

ABOUT = """\
The networks are those of the authors' public code. The AlexNet type: two padded 5 x 5
convolutions to 64 channels, each with 3 x 3 max pooling of stride 2, then 4096-384-192-10. The
VGG16 type: 13 convolutions in five blocks, then 512-512-240-10, without batch normalization.

*The authors' code*: raw pixels from 0 to 255; batches of 256 with momentum 0.9 and a learning
rate of 1e-4 that is halved every 30 epochs (50 for the VGG16 type); batches of 2000 with
momentum 0.99 and 1e-3; 150 and 500 epochs for the AlexNet type, 90 and 300 for the VGG16 type,
with a dropout of 0.5 before its last two layers. *Batch size alone*: standardized pixels, a
learning rate of 0.05 and a momentum of 0.9 for both, no dropout, linear layers of the VGG16
type started by He's rule, and each network taken at the first epoch with a training loss below
1e-3, or after 300. Here that loss decides, and batch size is all that differs. A network that
does nothing but guess for 50 epochs in a row is given up.

Networks are trained with products in bfloat16 and parameters in float32, and measured in
float32 (the VGG16 type with TF32 products) without dropout; the authors' code leaves dropout
on when it measures and when it tests. The paper's measure is taken on the first 10,000
training images, as in the paper, the others and the lines of Figure 2 on the first 2,000.
"""
VALUES = f"""\
A number "agrees" if it is within two standard deviations of the printed one, the deviations of
both taken together. Where it does not, the difference is told: in points, or as a factor,
which counts as near up to {NEAR:g}. A network whose loss is no number, or that has less than
{LEAST_ACCURACY:.0%} train accuracy, did not train and is left out, together with its pair.
"""
LOSSES = """\
![The paper's measure against the train loss](figures/losses-cifar10.svg)

One point is one trained network.
"""


def cifar(results: Results, expected: list[dict[str, Any]]) -> str:
    """The printed numbers beside ours, then what was trained and measured so far."""
    parts = [
        ABOUT,
        f"State: {coverage(results)}.\n",
        VALUES,
        cifar_table4.cells_table(results, expected),
    ]
    if sides(results):
        parts.append(_training(results))
    found = cells(results)
    if found:
        parts += [_measures(found), LOSSES]
    return "\n".join(parts)


def _training(results: Results) -> str:
    """How far the networks of each batch size were trained."""
    made = sides(results)
    quick = any(size in sizes(quick=True) for *_, size in made)
    rows = []
    for protocol in PROTOCOLS:
        for network in SHAPES:
            for size in sizes(quick):
                own = made.get((protocol, network, size), {})
                label = f"{title_of(protocol, network)}, {size}"
                rows.append([label, *_row(network, list(own.values()))])
    head = [
        "network, batch size",
        "networks",
        "did not train",
        "met the goal",
        "epochs",
    ]
    return table([*head, "train loss", "train accuracy (%)", "test accuracy (%)"], rows)


def _row(network: str, networks: list[Network]) -> list[Any]:
    if not networks:
        return [NOT_YET] + [""] * 6
    good = [one for one in networks if trained(one)]
    goal = [one["reached"] for one in networks if one["reached"] is not None]
    return [
        f"{len(networks)} of {SEEDS[network]}",
        len(networks) - len(good),
        f"{sum(goal)} of {len(goal)}" if goal else "no goal",
        _spread(good, "epochs", 1),
        _spread(good, "train_loss", 1),
        _spread(good, "train_accuracy", 100),
        _spread(good, "test_accuracy", 100),
    ]


def _spread(networks: list[Network], name: str, factor: float) -> str:
    if not networks:
        return "–"
    mean, deviation = spread([factor * one[name] for one in networks])
    return f"{number(mean)} ± {number(deviation, 2)}"


def _measures(found: list[Cell]) -> str:
    rows = []
    for measure in MEASURES:
        if any(cell.has(measure) for cell in found):
            cellwise = [_flatter(cell, measure) for cell in found]
            rows.append([measure.label, measure.unmoved_by, *cellwise])
    said = (
        "Which batch has the smaller geometric mean, in how many pairs of equal seeds the "
        "small batch has the smaller value, the p-value of the exact sign-flip test, and "
        "the ratio large / small:\n"
    )
    titles = [f"{cell.title}, {len(cell.small)} pairs" for cell in found]
    return f"{said}\n{table(['measure', 'not moved by rescaled', *titles], rows)}"


def _flatter(cell: Cell, measure: Measure) -> str:
    one = cell.compare(measure)
    if one.ratio is None:
        return "–"
    return (
        f"{one.smaller}, {one.small_is_smaller} of {one.pairs}, p = "
        f"{number(one.sign_flip, 2)}, {number(one.ratio, 3)}"
    )
