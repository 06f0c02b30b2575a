"""What the networks with random labels say of section 6, of Figures 1, 3 and 4."""

from __future__ import annotations

from flatgauge.rankings import RankStatistic
from flatgauge.vocabulary import Association
from papers.completeness import (
    ABSENT,
    IN_PART,
    REFUTED,
    REPRODUCED,
    Check,
    Finding,
    judged,
)
from papers.experiment import Results
from papers.page import NOT_RUN
from papers.tsuzuku2019.generalization import PAPERS, TITLES, TRACE, order, pairs

HEADLINE = "cifar10-wrn"
# Figure 1 prints it in percent.
PRINTED = 0.911
# An interval wider than this says little.
WIDE = 0.3
NOT_YET = f"{NOT_RUN} yet; training needs a GPU"


def correlations(results: Results) -> dict[str, tuple[RankStatistic, RankStatistic]]:
    """Pearson's correlation of (17) and of the trace with the gap, where networks fit."""
    found = {}
    for pair, networks in pairs(results):
        fitted = order([one for one in networks if one["fitted"]])
        if fitted is not None:
            ours, trace = (
                fitted.found[name][Association.PEARSON] for name in (PAPERS, TRACE)
            )
            found[pair] = ours, trace
    return found


def normalized(results: Results) -> Finding:
    """The headline: how (17) goes with the accuracy gap."""
    found = {pair: ours for pair, (ours, _) in correlations(results).items()}
    if not found:
        return _nothing(results)
    if HEADLINE not in found:
        return IN_PART, f"{_listed(found)}; {TITLES[HEADLINE]}: {_missing(results)}"
    one = found[HEADLINE]
    if one.value is None or one.low is None or one.high is None:
        return IN_PART, _listed(found)
    if one.low > 0 and one.high >= PRINTED:
        # The interval has the printed number in it, or lies above.
        narrow = one.high - one.low <= WIDE
        return (REPRODUCED if narrow else IN_PART), _listed(found)
    return judged(False), _listed(found)


def trace(results: Results) -> Finding:
    """Whether the trace goes with the gap less than (17) does."""
    found = correlations(results)
    if not found:
        return _nothing(results)
    less = [pair for pair, (ours, other) in found.items() if _below(other, ours)]
    more = [pair for pair, (ours, other) in found.items() if _below(ours, other)]
    words = _listed({pair: other for pair, (_, other) in found.items()})
    words += (
        f"; less than (17) in {len(less)} of {len(found)} pairs and more in {len(more)}, "
        "by intervals that do not meet"
    )
    if HEADLINE not in found:
        return IN_PART, f"{words}; {TITLES[HEADLINE]}: {_missing(results)}"
    if len(more) == len(found):
        return REFUTED, words
    return REPRODUCED if len(less) == len(found) == len(TITLES) else IN_PART, words


def _below(one: RankStatistic, other: RankStatistic) -> bool:
    """Whether one interval ends before the other begins."""
    return one.high is not None and other.low is not None and one.high < other.low


def _nothing(results: Results) -> Finding:
    trained = any(pairs(results))
    return ABSENT, "too few networks fit their labels" if trained else NOT_YET


def _missing(results: Results) -> str:
    """Why the headline's networks have no correlation."""
    trained = HEADLINE in dict(pairs(results))
    return "too few networks fit their labels" if trained else NOT_RUN


def training(results: Results) -> Finding:
    """How many networks were trained, and how many of them fit."""
    said = [
        f"{TITLES[pair]}: {len(networks)}, {sum(one['fitted'] for one in networks)} of "
        "which fit"
        for pair, networks in pairs(results)
    ]
    if not said:
        return ABSENT, NOT_YET
    return IN_PART, f"until they fit, not for all epochs; {'; '.join(said)}"


def _listed(found: dict[str, RankStatistic]) -> str:
    said = ", ".join(f"{one.shown} ({TITLES[pair]})" for pair, one in found.items())
    return f"Pearson's correlation over the networks that fit: {said}"


CHECKS = {
    "random labels": Check((), normalized),
    "random labels, trace": Check((), trace),
    "random labels, training": Check((), training),
}
"""Key in expected.json -> how the verdict follows from the networks that were trained."""
