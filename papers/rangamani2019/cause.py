"""The page's section on the train loss, and the verdict on Table 4."""

from __future__ import annotations

import math
from typing import Any

from papers.experiment import Results
from papers.page import NOT_RUN, number, table
from papers.rangamani2019 import cifar_cells
from papers.rangamani2019.comparison import exponent, printed_orders
from papers.rangamani2019.minima import (
    MEASURES,
    NETWORK_TITLES,
    NORMALIZED,
    PROTOCOL_TITLES,
    Cell,
    cells,
    log_loss,
    points,
    title_of,
)
from papers.rangamani2019.statistics import Line, line, line_within
from papers.rangamani2019.table4 import DIAGONAL, NETWORKS, PROTOCOLS

MANY = 3.0  # orders of magnitude; the paper's text says three to four
WIDE = 1.0  # orders of magnitude that ask for a reason
LITTLE = 0.5  # orders of magnitude, a factor of about 3


def orders_table(results: Results, expected: list[dict[str, Any]]) -> str:
    """The paper's measure, the train loss and their quotient, large over small batch."""
    made = {(cell.protocol, cell.network): cell for cell in cells(results)}
    printed = {entry.get("network"): entry for entry in expected}
    rows = []
    for protocol in PROTOCOLS:
        for network in NETWORKS:
            paper = f"{printed_orders(printed[network]):.1f}"
            row = [title_of(protocol, network), paper]
            cell = made.get((protocol, network))
            rows.append([*row, *(_orders(cell) if cell else [NOT_RUN] * 6)])
    head = ["network", "the paper's table", "our measurement", "small batch is flatter"]
    head += ["three orders or more?", "train loss", "measure / train loss"]
    return table([*head, "small batch has the smaller quotient"], rows)


def _orders(cell: Cell) -> list[Any]:
    measure, loss = cell.compare(MEASURES[0]), cell.compare_losses()
    quotient = cell.compare_quotients()
    if measure.orders is None or loss.orders is None or quotient.orders is None:
        return ["no usable pair"] * 6
    return [
        exponent(measure.orders),
        f"in {measure.small_is_smaller} of {measure.pairs} pairs",
        "yes" if measure.orders >= MANY else "no",
        exponent(loss.orders),
        exponent(quotient.orders),
        f"in {quotient.small_is_smaller} of {quotient.pairs} pairs, "
        f"p = {number(quotient.sign_flip, 3)}",
    ]


def regressions(results: Results) -> str:
    """The logarithm of the paper's measure against that of the train loss."""
    rows = []
    for network in NETWORKS:
        own = [cell for cell in cells(results) if cell.network == network]
        choices = {PROTOCOL_TITLES[cell.protocol]: [cell] for cell in own}
        if len(own) > 1:
            choices["both protocols"] = own
        for label, chosen in choices.items():
            groups = [points(side) for one in chosen for side in (one.small, one.large)]
            whole = line([point for group in groups for point in group])
            within = _line(line_within(groups))[1:]
            title = f"{NETWORK_TITLES[network]}, {label}"
            rows.append([title, *_line(whole), *within])
    if not rows:
        return "The networks were not run.\n"
    head = ["networks", "how many", "slope", "R²", "slope within groups"]
    return table([*head, "R² within groups"], rows)


def _line(found: Line | None) -> list[Any]:
    if found is None:
        return [None, None, None]
    return [found.count, f"{found.slope:.2f}", f"{found.r_squared:.3f}"]


def verdict(results: Results) -> list[str]:
    """What the runs say about Table 4, sentence by sentence, from their numbers."""
    made = [cell for cell in cells(results) if cell.compare(MEASURES[0]).pairs]
    if not made:
        return ["Table 4: not run."]
    said = [_direction(made), _size(made)]
    wide = [cell for cell in made if orders(cell) >= MANY]
    if wide and all(abs(left_over(cell)) <= LITTLE for cell in wide):
        said.append(_follows(wide))
    said += [_near(cell) for cell in made if near(cell)]
    said += [_unmet(cell) for cell in made if unmet(cell)]
    said.append(_normalized(made))
    return said


def orders(cell: Cell) -> float:
    """Of the paper's measure, large over small batch."""
    return cell.compare(MEASURES[0]).orders or 0.0


def loss_orders(cell: Cell) -> float:
    """Of the train loss."""
    return cell.compare_losses().orders or 0.0


def left_over(cell: Cell) -> float:
    """Of the paper's measure divided by the train loss."""
    return cell.compare_quotients().orders or 0.0


def corrected(cell: Cell) -> float | None:
    """What is left of the measure's orders with the slope found within groups, not 1."""
    slope = line_within([points(cell.small), points(cell.large)])
    return None if slope is None else orders(cell) - slope.slope * loss_orders(cell)


def near(cell: Cell) -> bool:
    """Whether every pair has nearly the same train loss, at the end of its training."""
    losses = [cell.small, cell.large]
    pairs = zip(*([log_loss(one) for one in side] for side in losses), strict=True)
    ratios = [
        None if a is None or b is None else (b - a) / math.log(10) for a, b in pairs
    ]
    alike = all(one is not None and abs(one) <= LITTLE for one in ratios)
    return alike and not unmet(cell)


def unmet(cell: Cell) -> list[dict[str, Any]]:
    """The networks that never met the goal of their training."""
    return [one for one in (*cell.small, *cell.large) if one["reached"] is False]


def _unmet(cell: Cell) -> str:
    late = unmet(cell)
    epochs = max(one["epochs"] for one in late)
    worst = min(one["train_accuracy"] for one in late)
    losses = [one["train_loss"] for one in (*cell.small, *cell.large)]
    measure, quotient = cell.compare(MEASURES[0]), cell.compare_quotients()
    return (
        f"What fell short ({cell.title}): {len(late)} of "
        f"{len(cell.small) + len(cell.large)} networks did not reach 100 % train "
        f"accuracy with a small enough loss in the {epochs} epochs that we gave them, and "
        f"were measured there, at {worst:.2%} train accuracy or more. Their "
        f"train losses lie between {number(min(losses), 2)} and "
        f"{number(max(losses), 2)}, so these pairs do not compare minima of equal loss: "
        f"the measure of the large batches is {number(measure.ratio, 3)} times that of the "
        f"small ones (p = {number(measure.sign_flip, 3)}), its quotient with the train "
        f"loss {number(quotient.ratio, 3)} times (p = {number(quotient.sign_flip, 3)})."
    )


def _direction(made: list[Cell]) -> str:
    counts = [
        f"{_count([c for c in made if c.protocol == protocol], 'measure')} "
        f"({PROTOCOL_TITLES[protocol]})"
        for protocol in PROTOCOLS
        if any(cell.protocol == protocol for cell in made)
    ]
    best = sum(
        small["test_accuracy"] > large["test_accuracy"]
        for cell in made
        for small, large in zip(cell.small, cell.large, strict=True)
    )
    every = sum(len(cell.small) for cell in made)
    return (
        "Table 4, the direction: by the paper's measure the small-batch minimum is the "
        f"flatter one in {' and in '.join(counts)}; by the measure divided by the train "
        f"loss it is in {_count(made, 'quotient')}. The small-batch network has the "
        f"better test accuracy in {best} of {every}."
    )


def _count(made: list[Cell], what: str) -> str:
    found = [
        cell.compare(MEASURES[0]) if what == "measure" else cell.compare_quotients()
        for cell in made
    ]
    flatter = sum(one.small_is_smaller for one in found)
    return f"{flatter} of {sum(one.pairs for one in found)} pairs"


def _size(made: list[Cell]) -> str:
    wide = [cell for cell in made if orders(cell) >= MANY]
    narrow = [cell for cell in made if orders(cell) < MANY]
    parts = []
    if wide:
        parts.append(f"appear with {_listed(wide)}")
    if narrow:
        parts.append(f"do not appear with {_listed(narrow)}")
    return f"The size: three or more orders of magnitude {'; they '.join(parts)}."


def _listed(made: list[Cell]) -> str:
    return ", ".join(f"{cell.title} (10^{exponent(orders(cell))})" for cell in made)


def _follows(wide: list[Cell]) -> str:
    losses = [f"10^{exponent(loss_orders(cell))}" for cell in wide]
    rest = max((left_over(cell) for cell in wide), key=abs)
    fitted = [one for cell in wide if (one := corrected(cell)) is not None]
    return (
        "Where they appear, the train losses are as far apart "
        f"({', '.join(losses)}): divided by the train loss, the measure differs by a "
        f"factor of at most {number(10 ** abs(rest), 2)}. That takes the measure to be in "
        "proportion to the loss. With the slopes found among networks of the same batch "
        f"size instead, {_listed_orders(fitted)} orders of magnitude are left. So most of "
        "the difference goes with how far the networks were trained."
    )


def _listed_orders(left: list[float]) -> str:
    return " and ".join(exponent(one) for one in left) if left else "unknown"


def _near(cell: Cell) -> str:
    measure, loss = cell.compare(MEASURES[0]), cell.compare_losses()
    quotient = cell.compare_quotients()
    return (
        f"At nearly equal train losses ({cell.title}: {number(loss.small, 2)} and "
        f"{number(loss.large, 2)}) the measure of the large batches is "
        f"{number(measure.ratio, 3)} times that of the small ones (p = "
        f"{number(measure.sign_flip, 3)}), and the quotient "
        f"{number(quotient.ratio, 3)} times (p = {number(quotient.sign_flip, 3)})."
    )


def _normalized(made: list[Cell]) -> str:
    measures = [
        one for one in MEASURES if one.loss == NORMALIZED and one.request in DIAGONAL
    ]
    parts = []
    for cell in made:
        ratios = [number(cell.compare(one).ratio, 3) for one in measures]
        parts.append(f"{' and '.join(ratios)} ({cell.title})")
    return (
        "Under the normalized loss, which does not notice the size of the outputs, the "
        "large batches have these multiples of the small ones, by normalized and by "
        f"matrix-normalized sharpness: {', '.join(parts)}."
    )


def in_plain_words(results: Results) -> str:
    """The conclusion, only where the runs that it rests on were made and bear it out.

    Three things must hold: where the measures are orders of magnitude apart, most of it
    goes with the train loss; some networks have nearly equal losses in every pair; their
    measures differ by less than an order of magnitude.
    """
    every = [*cells(results), *cifar_cells.cells(results)]
    wide = [cell for cell in every if orders(cell) >= WIDE]
    equal = [cell for cell in every if near(cell)]
    borne_out = (
        len(cells(results)) == len(PROTOCOLS) * len(NETWORKS)
        and wide
        and equal
        and all(abs(left_over(cell)) <= LITTLE for cell in wide)
        and all(abs(orders(cell)) < WIDE for cell in equal)
    )
    if not borne_out:
        return ""
    factor = 10 ** max(abs(orders(cell)) for cell in equal)
    against = [cell.title for cell in equal if orders(cell) < 0]
    return IN_PLAIN_WORDS.format(
        where="; ".join(cell.title for cell in equal),
        factor=number(factor, 2),
        direction=f", and not always in the same direction ({', '.join(against)})"
        if against
        else "",
        cifar=cifar_cells.coverage(results),
    )


IN_PLAIN_WORDS = """\
**In plain words.** The measure does what the paper says: it does not notice rescaled layers.
The main result, that small batches find minima that are flatter by orders of magnitude, comes
out only where the train losses differ by as many orders of magnitude. With a fixed number of
epochs small batches make many more steps, so they end at a far smaller loss, and the curvature
of the cross-entropy shrinks with the loss. At nearly the same train loss ({where}) the two
kinds of minima differ, by the paper's measure, by a factor of at most {factor} on
average{direction}. So our networks do not bear out the orders of magnitude as a fact about
batch sizes. Of the train losses behind its values the paper says only that they are "in the
order of" 1e-4. The networks of CIFAR-10: {cifar}.
"""
