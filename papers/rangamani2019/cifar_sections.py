"""The section on CIFAR-10: how far networks were trained, and which batch is flatter."""

from __future__ import annotations

from typing import Any

from papers.experiment import Results
from papers.page import NOT_RUN, number, table
from papers.rangamani2019.cifar import PROTOCOLS, SHAPES, sizes
from papers.rangamani2019.minima import MEASURES, Cell
from papers.rangamani2019.statistics import spread

TITLES = {"alexnet": "AlexNet type", "vgg16": "VGG16 type"}
PROTOCOL_TITLES = {"authors": "the authors' code", "clean": "batch size alone"}
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
1e-3, or after 300. Here that loss decides, and batch size is all that differs.

Networks are trained with products in bfloat16 and parameters in float32, and measured in
float32 (the VGG16 type with TF32 products) without dropout; the authors' code leaves dropout
on when it measures. The paper's measure is taken on the first 10,000 training images, as in
the paper, the others on the first 2,000.
"""
Network = dict[str, Any]


def cifar(results: Results) -> str:
    """What was trained so far."""
    found = cells(results)
    if not found:
        return f"{ABOUT}\n{NOT_RUN.capitalize()} yet.\n"
    return "\n".join([ABOUT, _training(found), _measures(found)])


def cells(results: Results) -> list[Cell]:
    """Pairs of equal seeds, by protocol and network, where both batch sizes were run."""
    networks: dict[tuple[str, str, int], dict[int, Network]] = {}
    for name in results:
        if name.startswith("cifar10-"):
            _, protocol, network, size, seed = name.split("-")
            own = networks.setdefault((protocol, network, int(size)), {})
            own[int(seed)] = results[name]["networks"][0]
    found = []
    for protocol in PROTOCOLS:
        for network in SHAPES:
            for small, large in (sizes(quick=False), sizes(quick=True)):
                one = networks.get((protocol, network, small), {})
                other = networks.get((protocol, network, large), {})
                seeds = [seed for seed in one if seed in other]
                if seeds:
                    parts = ([side[seed] for seed in seeds] for side in (one, other))
                    found.append(Cell(protocol, network, (small, large), *parts))
    return found


def title(cell: Cell) -> str:
    """Such as "VGG16 type, the authors' code"."""
    return f"{TITLES[cell.network]}, {PROTOCOL_TITLES[cell.protocol]}"


def _training(found: list[Cell]) -> str:
    rows = [
        [
            f"{title(cell)}, {size}",
            len(networks),
            *(
                _spread(networks, name, factor)
                for name, factor in (
                    ("epochs", 1),
                    ("train_loss", 1),
                    ("train_accuracy", 100),
                    ("test_accuracy", 100),
                )
            ),
            _stored(networks),
        ]
        for cell in found
        for size, networks in zip(cell.sizes, (cell.small, cell.large), strict=True)
    ]
    head = [
        "network, batch size",
        "seeds",
        "epochs",
        "train loss",
        "train accuracy (%)",
    ]
    head += ["test accuracy (%)", "what the authors' code would store"]
    return table(head, rows)


def _spread(networks: list[Network], name: str, factor: float) -> str:
    mean, deviation = spread([factor * one[name] for one in networks])
    return f"{number(mean)} ± {number(deviation, 2)}"


def _stored(networks: list[Network]) -> str:
    """The mean of the numbers that there are."""
    values = [one["stored_by_authors"] for one in networks]
    known = [one for one in values if one is not None]
    if not known:
        return "–"
    mean, deviation = spread(known)
    return f"{number(mean)} ± {number(deviation, 2)}"


def _measures(found: list[Cell]) -> str:
    rows = []
    for measure in MEASURES:
        if any(cell.has(measure) for cell in found):
            cellwise = [_flatter(cell, measure) for cell in found]
            rows.append([measure.label, measure.unmoved_by, *cellwise])
    said = (
        "Which batch has the smaller geometric mean, in how many pairs of equal seeds, the "
        "p-value of the exact sign-flip test, and the ratio large / small:\n"
    )
    head = ["measure", "not moved by rescaled", *map(title, found)]
    return f"{said}\n{table(head, rows)}"


def _flatter(cell: Cell, measure: Any) -> str:
    one = cell.compare(measure)
    if one.ratio is None:
        return "–"
    return (
        f"{one.smaller}, {one.small_is_smaller} of {one.pairs}, p = "
        f"{number(one.sign_flip, 2)}, {number(one.ratio, 3)}"
    )
