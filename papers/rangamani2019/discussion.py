"""The page's discussion: are large-batch minima sharper, and what does the gap go with?"""

from __future__ import annotations

from typing import Any

from papers.experiment import Results
from papers.page import number
from papers.rangamani2019 import cifar, cifar_cells, equal_loss, gaps, trust
from papers.rangamani2019.cause import LITTLE
from papers.rangamani2019.comparison import exponent, printed_orders
from papers.rangamani2019.gaps import Gap
from papers.rangamani2019.minima import MEASURES, NETWORK_TITLES, Cell
from papers.rangamani2019.table4 import BOUNDS

TITLE = "Are minima of large batches sharper?"
LINK = "#are-minima-of-large-batches-sharper"
ORDER = 1.0  # of magnitude: a gap that asks for an account

EQUAL = """\
### At the same train loss

Only networks that were trained to the same loss, with both batch sizes, can be asked this:
those of MNIST as printed, and those of CIFAR-10 where nothing but the batch size differs. A
pair of equal seeds counts where both networks reached their goal and their losses differ by
less than half an order of magnitude. Each cell gives large over small batch (geometric means)
and in how many pairs the small batch has the smaller value; then all pairs are taken as one
sample, for which the sign-flip test has more choices of signs, and its p-values are corrected
for the number of measures by Holm's rule. "Not told apart" is no proof of a difference of
zero. A larger product of spectral norms means larger weights, not a sharper loss.
"""
ACCOUNT = """\
### The loss level, the learning rate, the batch size

A gap is log10 of large over small by the paper's measure, mean ± standard deviation over the
pairs; orders of magnitude add up. The train losses make a part of it: as much as they differ
themselves, if the measure is in proportion to the loss, or that times the slope found among
networks of one batch size. The slopes come from few networks, so that the truth about what is
left may be outside of the two numbers. With a fixed number of epochs a large batch makes fewer
steps, so that the loss level is itself an effect of the batch size; what is asked is how much
there is beside it. The last column names what the two trainings do not
have in common, besides the batch size and what follows from it.
"""


def section(results: Results, expected: list[dict[str, Any]]) -> str:
    """Both questions, with tables and with sentences made from them."""
    found = equal_loss.alike(results)
    parts = [EQUAL]
    if found:
        parts += [_bullets(equal_loss.sentences(found))]
        parts += [equal_loss.measures_table(found), _uncertain(found)]
    else:
        parts += [f"{_none(results)}\n"]
    parts += [equal_loss.left_out(results), ACCOUNT]
    parts += [gaps.gaps_table(results, _printed(expected))]
    parts += [_bullets(accounts(results))]
    return "\n".join(part for part in parts if part)


def _uncertain(found: list[Cell]) -> str:
    error = trust.largest_error(found, BOUNDS)
    if not error:
        return ""
    return (
        f"The PAC-Bayes bounds are estimates, known to {error:.2%} of their values; "
        "smaller differences of theirs may be noise.\n"
    )


def accounts(results: Results) -> list[str]:
    """What each part of the gap comes to, sentence by sentence."""
    made = gaps.gaps(results)
    said = [
        _loss_level(one)
        for (protocol, _), one in made.items()
        if protocol == "authors" or abs(one.gap[0]) >= ORDER
    ]
    rate = _rate(list(made.values()))
    said += [rate] if rate else []
    said += [_together(one) for one in made.values() if one.others]
    said += [_alone(results, network) for network in cifar.SHAPES]
    said += [
        _split(made["authors", network], made["clean", network])
        for network in cifar.SHAPES
        if ("authors", network) in made and ("clean", network) in made
    ]
    return said


def verdict(results: Results) -> str:
    """The discussion in a sentence or two, for the top of the page."""
    return f"{answer(results)} See [below]({LINK})."


def answer(results: Results) -> str:
    """The same without the way to it."""
    found = equal_loss.alike(results)
    said = equal_loss.sentences(found)[0] if found else _none(results)
    return f"{said} CIFAR-10: {cifar_cells.coverage(results)}."


def _loss_level(found: Gap) -> str:
    left = found.left
    further = left if found.gap[0] > 0 else -left
    if abs(left) <= LITTLE:
        judged = (
            "so the loss level alone can account for the gap to within "
            f"{LITTLE:g} orders of magnitude"
        )
    elif further > 0:
        judged = "so the loss level does not account for all of the gap"
    else:
        judged = "so the loss level would make a larger gap than there is"
    slope = (
        "; the slope within groups is not known"
        if found.left_by_slope is None
        else f"; with the slope within groups, {found.slope:.2f}, "
        f"{exponent(found.left_by_slope)} are left"
    )
    return (
        f"The loss level ({found.cell.title}): the gap is "
        f"{gaps.plus_minus(found.gap)} orders of magnitude, and the train losses are "
        f"{gaps.plus_minus(found.loss)} apart. In proportion to the loss that leaves "
        f"{exponent(left)}, {judged}{slope}."
    )


def _rate(made: list[Gap]) -> str:
    """Where the learning rate has no part in a large gap, because it is the same."""
    same = [
        one
        for one in made
        if abs(one.gap[0]) >= ORDER and "learning rate" not in one.others
    ]
    if not same:
        return ""
    listed = "; ".join(
        f"{one.cell.title} ({gaps.plus_minus(one.gap)}, of which the loss level leaves "
        f"{_left(one)} to the batch size)"
        for one in same
    )
    return (
        "The learning rate: it is the same for both batch sizes, so that no part of the "
        f"gap is its own, with {listed}."
    )


def _left(found: Gap) -> str:
    """What is left in proportion, or by the slope within groups."""
    by_slope = found.left_by_slope
    if by_slope is None:
        return exponent(found.left)
    return f"{exponent(found.left)} or {exponent(by_slope)}"


def _together(found: Gap) -> str:
    quotient = found.cell.compare_quotients()
    measure = found.cell.compare(MEASURES[0])
    return (
        f"More than the batch size changes ({found.cell.title}: "
        f"{gaps.others_text(found)}), which cannot be told apart there. With losses "
        f"{gaps.plus_minus(found.loss)} orders of magnitude apart, they come with "
        f"{number(measure.ratio, 3)} times the measure (p = "
        f"{number(measure.sign_flip, 3)}), and with {number(quotient.ratio, 3)} times its "
        f"quotient with the loss (p = {number(quotient.sign_flip, 3)})."
    )


def _alone(results: Results, network: str) -> str:
    title = f"The batch size alone ({NETWORK_TITLES[network]}, CIFAR-10)"
    own = [
        cell
        for cell in equal_loss.alike(results)
        if (cell.protocol, cell.network) == ("clean", network)
    ]
    found = own[0].compare(MEASURES[0]) if own else None
    if found is None or found.ratio is None:
        return f"{title}: {_missing(results, network)}."
    tested = f"p = {number(found.sign_flip, 3)}, {found.pairs} pairs"
    said = f"{title}: at the same train loss, rate and momentum the large batches"
    if found.sign_flip is None or found.sign_flip >= equal_loss.LEVEL:
        times = number(found.ratio, 3)
        return f"{said} cannot be told from the small ones: {times} times ({tested})."
    word, times = (
        ("sharper", found.ratio) if found.ratio > 1 else ("flatter", 1 / found.ratio)
    )
    return f"{said} are {word}, by {number(times, 3)} times ({tested})."


def _none(results: Results) -> str:
    """Why no pair can be asked: nothing was run, or nothing is alike."""
    if not any(cell.small for cell in equal_loss.asked(results)):
        return "At the same train loss: not run yet."
    return (
        "At the same train loss: of what was run, no pair met its goal at a like loss."
    )


def _missing(results: Results, network: str) -> str:
    made = [cell for cell in cifar_cells.cells(results) if cell.protocol == "clean"]
    if any(cell.network == network for cell in made):
        return "no pair at the same loss"
    return cifar_cells.state(results, "clean", network)


def _split(authors: Gap, clean: Gap) -> str:
    """The gap of the authors' protocol, taken apart with the help of the clean one."""
    rest = authors.left - clean.left
    return (
        f"{NETWORK_TITLES[authors.cell.network]}, taken together: of the gap of "
        f"{exponent(authors.gap[0])} orders of magnitude with the authors' code, "
        f"{exponent(authors.loss[0])} are the loss level's if the measure is in "
        f"proportion to it, {exponent(clean.left)} come with the batch size alone, and "
        f"{exponent(rest)} with what else the authors change "
        f"({gaps.others_text(authors)}). The two protocols also differ in how pixels "
        "are scaled and, for the VGG16 type, in dropout and in the start of the linear "
        "weights, so that this is an account and not an experiment."
    )


def _printed(expected: list[dict[str, Any]]) -> dict[str, float]:
    return {
        entry.get("network") or entry["cifar"]: printed_orders(entry)
        for entry in expected
    }


def _bullets(said: list[str]) -> str:
    return "\n".join(f"- {one}" for one in said) + "\n" if said else ""
