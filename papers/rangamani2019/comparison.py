"""The page's sections on Table 4: the paper's rows, ours, and which minimum is flatter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from papers.experiment import Results
from papers.page import NOT_RUN, number, table
from papers.rangamani2019.minima import (
    MEASURES,
    PROTOCOL_TITLES,
    cells,
    logarithm,
    sides,
    title_of,
)
from papers.rangamani2019.statistics import Paired, spread
from papers.rangamani2019.table4 import NETWORKS, PAPERS_MEASURE, PROTOCOLS

NEAR = 3.0


def side_by_side(results: Results, expected: list[dict[str, Any]]) -> str:
    """Test accuracy and spectral norm of the networks of MNIST, the paper's and ours."""
    rows = []
    for entry in expected:
        for place, row in enumerate(entry["rows"] if "network" in entry else []):
            title = f"{entry['title']}, {row['batch']}"
            accuracy, norm = (plus_minus(row[key], 7) for key in ("accuracy", "norm"))
            made = {
                protocol: _side(
                    results, protocol, entry["network"], place, row["batch"]
                )
                for protocol in PROTOCOLS
            }
            rows.append(
                [
                    title,
                    accuracy,
                    *(_accuracy(made[protocol]) for protocol in PROTOCOLS),
                    norm,
                    *(_norm(made[protocol]) for protocol in PROTOCOLS),
                    _stored(made["authors"]),
                ]
            )
    ours = [PROTOCOL_TITLES[protocol] for protocol in PROTOCOLS]
    head = ["network, batch size", "test accuracy (%): the paper", *ours]
    return table(
        [
            *head,
            "spectral norm: the paper",
            *ours,
            "what the authors' code would store",
        ],
        rows,
    )


def training(results: Results) -> str:
    """How far each group of networks was trained."""
    rows = []
    for protocol in PROTOCOLS:
        for network in NETWORKS:
            for size, networks in sides(results, protocol, network):
                epochs = [one["epochs"] for one in networks]
                losses = [one["train_loss"] for one in networks]
                exact = sum(one["train_accuracy"] == 1 for one in networks)
                rows.append(
                    [
                        title_of(protocol, network),
                        size,
                        _range(epochs),
                        f"{exact} of {len(networks)}",
                        f"{number(min(losses), 2)} to {number(max(losses), 2)}",
                    ]
                )
    if not rows:
        return "The networks were not run.\n"
    head = ["network", "batch size", "epochs", "at 100 % train accuracy", "train loss"]
    return table(head, rows)


def summary(results: Results, expected: list[dict[str, Any]]) -> str:
    """For each measure and network, which minimum is flatter."""
    made = {(cell.protocol, cell.network): cell for cell in cells(results)}
    columns = [(p, n) for p in PROTOCOLS for n in NETWORKS]
    printed = {
        entry["network"]: printed_orders(entry)
        for entry in expected
        if "network" in entry
    }
    rows: list[list[Any]] = [
        [
            "the paper's table",
            "layers",
            *(f"small, 10^{printed[network]:.1f}" for _, network in columns),
        ]
    ]
    for measure in MEASURES:
        found = [
            _cell(made[one].compare(measure)) if one in made else NOT_RUN
            for one in columns
        ]
        rows.append([measure.label, measure.unmoved_by, *found])
    titles = [title_of(*one) for one in columns]
    return table(["measure", "not moved by rescaled", *titles], rows)


def details(results: Results) -> str:
    """Every number of the paired comparisons."""
    parts = []
    for cell in cells(results):
        small, large = cell.sizes
        rows = [_row(one.label, cell.compare(one)) for one in MEASURES if cell.has(one)]
        rows.append(_row("train loss", cell.compare_losses()))
        rows.append(_row("the paper's measure / train loss", cell.compare_quotients()))
        head = ["", f"batches of {small}", f"batches of {large}", "ratio"]
        head += ["orders of magnitude", "smaller", "small smaller in"]
        head += ["p, sign flips", "p, t-test", "pairs left out"]
        parts.append(
            f"<details><summary>{cell.title}</summary>\n\n{table(head, rows)}\n"
            "</details>\n"
        )
    return "\n".join(parts)


def exponent(orders: float) -> str:
    """Orders of magnitude with two digits, never as -0.00.

    >>> exponent(5.874), exponent(-0.001)
    ('5.87', '0.00')
    """
    return f"{round(orders, 2) + 0.0:.2f}"


def printed_orders(entry: dict[str, Any]) -> float:
    """The orders of magnitude between the two rows that the paper prints."""
    small, large = (row["norm"][0] for row in entry["rows"])
    return math.log10(large / small)


def printed(expected: list[dict[str, Any]]) -> str:
    """The orders of magnitude of every network that the paper prints."""
    return ", ".join(
        f"10^{printed_orders(entry):.1f} for {entry['title']}" for entry in expected
    )


def near_the_paper(results: Results, expected: list[dict[str, Any]]) -> str:
    """How many of our mean norms are within a factor of NEAR of the printed ones."""
    near, made = 0, 0
    for entry in expected:
        for place, row in enumerate(entry["rows"] if "network" in entry else []):
            for protocol in PROTOCOLS:
                found = _usable(
                    _side(results, protocol, entry["network"], place, row["batch"])
                )
                if found:
                    made += 1
                    mean, _ = spread([_value(one) for one in found])
                    near += 1 / NEAR <= mean / row["norm"][0] <= NEAR
    if not made:
        return "The networks were not run."
    return (
        f"Of our {made} mean norms, {near} are within a factor of {NEAR:.0f} of the "
        "printed one."
    )


def plus_minus(pair: Sequence[float], digits: int = 3) -> str:
    """A mean with its standard deviation.

    >>> plus_minus((98.64, 0.12))
    '98.6 ± 0.12'
    """
    mean, deviation = pair
    return f"{number(mean, digits)} ± {number(deviation, digits)}"


def _side(
    results: Results, protocol: str, network: str, place: int, batch: int
) -> list[dict[str, Any]]:
    """The networks for a row of the table; the quick form has other batch sizes."""
    made = sides(results, protocol, network)
    return made[place][1] if len(made) == 2 else dict(made).get(batch, [])


def _accuracy(networks: list[dict[str, Any]]) -> str:
    if not networks:
        return NOT_RUN
    mean, deviation = spread([100 * one["test_accuracy"] for one in networks])
    return f"{mean:.2f} ± {deviation:.2f}"


def _norm(networks: list[dict[str, Any]]) -> str:
    return _spread(networks, _value)


def _value(network: dict[str, Any]) -> float:
    return network["measures"][PAPERS_MEASURE]["value"]


def _usable(networks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in networks if logarithm(one, MEASURES[0]) is not None]


def _stored(networks: list[dict[str, Any]]) -> str:
    return _spread(networks, lambda one: one["stored_by_authors"])


def _spread(networks: list[dict[str, Any]], value: Callable[[Any], float]) -> str:
    """The mean over the networks whose spectral norm can be used."""
    if not networks:
        return NOT_RUN
    usable = _usable(networks)
    left_out = len(networks) - len(usable)
    note = f" ({left_out} left out)" if left_out else ""
    if not usable:
        return f"–{note}"
    return plus_minus(spread([value(one) for one in usable])) + note


def _range(values: list[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def _cell(found: Paired) -> str:
    if found.orders is None:
        return "no usable pair" if found.left_out else NOT_RUN
    wins = found.small_is_smaller
    if found.smaller == "large":
        wins = found.pairs - wins
    left_out = f", {found.left_out} left out" if found.left_out else ""
    return (
        f"{found.smaller}, {wins} of {found.pairs}{left_out}, "
        f"p = {number(found.sign_flip, 3)}, 10^{exponent(found.orders)}"
    )


def _row(label: str, found: Paired) -> list[Any]:
    return [
        label,
        number(found.small, 3),
        number(found.large, 3),
        number(found.ratio, 3),
        None if found.orders is None else exponent(found.orders),
        found.smaller,
        f"{found.small_is_smaller} of {found.pairs}",
        number(found.sign_flip, 3),
        number(found.t_test, 2),
        found.left_out,
    ]
