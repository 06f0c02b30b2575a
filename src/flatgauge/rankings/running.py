"""All statistics of one column of values, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flatgauge.errors import OptionError
from flatgauge.rankings.columns import Array, Column, Design, design
from flatgauge.rankings.correlations import kendall, pearson, spearman
from flatgauge.rankings.granulated import along, at_fixed_settings, granulated
from flatgauge.rankings.mutual_information import conditional_mutual_information
from flatgauge.rankings.result import RankStatistic, RankStatistics
from flatgauge.rankings.sign_error import sign_errors
from flatgauge.rankings.statistic import Prepared
from flatgauge.vocabulary import Association, Status

FEW = 10
"""Resamples of fewer networks than this say too little of their spread."""
DEFINED = 0.9
"""The share of resamples that must have a value for an interval."""


def rank_statistics(
    values: Column,
    targets: Column,
    hyperparameters: Mapping[str, Column] | None = None,
    environments: Column | None = None,
    *,
    samples: int | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> RankStatistics:
    """How well values order networks by a target, with intervals.

    Kendall's τ_b, Spearman's and Pearson's correlation; Kendall's coefficient where one
    hyperparameter changes alone, and where none does, and the conditional mutual
    information of both orders (Jiang et al. 2020); the sign-error over environments
    (Dziugaite et al. 2020). The formulas are in the docstrings of `flatgauge.rankings`.
    Intervals are percentiles of the statistic over resamples: as many networks, drawn
    with replacement.

    Args:
        values: a number for each network, or a `Measurement`. None, nan and measurements
            that cannot be trusted are left out, with a count.
        targets: what the order is compared with, such as the gap in accuracy.
        hyperparameters: columns of settings by name, which say what networks share; none
            (None or nan) is a setting as others are.
        environments: a label for each network, or None or nan where it is in none: errors
            are those between two labels.
            Without it environments are settings that differ in one hyperparameter.
        samples: how many samples each target was measured on, if it is a mean of numbers
            from 0 to 1: pairs that chance may have ordered then count less in sign-errors.
        resamples: how often networks are drawn.
        level: what share of the resamples an interval holds.
        seed: of the draws.

    Returns:
        The statistics by name; what the design cannot identify is NOT_APPLICABLE, with
        the reason.

    >>> found = rank_statistics([1, 2, 3, 4], [1, 3, 2, 4])
    >>> round(found["kendall"].value, 9), found["granulated-kendall"].status.word
    (0.666666667, 'not applicable')
    """
    if resamples < 1 or not 0 < level < 1:
        raise OptionError(
            f"resamples= is {resamples} and level= {level}: give at least 1, and a share "
            "between 0 and 1."
        )
    if samples is not None and samples < 1:
        raise OptionError(
            f"samples= is {samples}: give the number of samples that each target was "
            "measured on, or leave it out."
        )
    of = design(values, targets, hyperparameters, environments)
    prepared = _prepared(of, samples, seed)
    drawn = _resamples(of.count, resamples, seed)[:, of.kept]
    found, draws = {}, {}
    for name, one in prepared.items():
        found[name], draws[name] = _statistic(name, one, of, drawn, level)
    return RankStatistics(
        statistics=found,
        networks=len(of.kept),
        left_out=of.left_out,
        level=level,
        resamples=resamples,
        seed=seed,
        draws=draws,
    )


def _prepared(of: Design, samples: int | None, seed: int) -> dict[str, Prepared]:
    if len(of.kept) < 2:
        reason = "there are fewer than two networks with both numbers"
        return {str(name): Prepared(reason=reason) for name in Association}
    axes = {name: along(of, name) for name in of.settings}
    errors = sign_errors(of, samples)
    return {
        Association.KENDALL: kendall(of),
        Association.SPEARMAN: spearman(of),
        Association.PEARSON: pearson(of),
        Association.FIXED: at_fixed_settings(of),
        Association.GRANULATED: granulated(axes),
        **{f"{Association.GRANULATED}[{name}]": one for name, one in axes.items()},
        Association.INFORMATION: conditional_mutual_information(of, seed),
        Association.MEAN_ERROR: errors["mean"],
        Association.WORST_ERROR: errors["worst"],
    }


def _resamples(count: int, resamples: int, seed: int) -> Array:
    """How often each network is drawn in each resample, [resamples, networks]."""
    if not count:
        return np.zeros((resamples, 0))
    random = np.random.default_rng(seed)
    even = np.full(count, 1 / count)
    return random.multinomial(count, even, size=resamples).astype(float)


def _statistic(
    name: str, prepared: Prepared, of: Design, drawn: Array, level: float
) -> tuple[RankStatistic, Array]:
    if prepared.of is None:
        nothing = np.full(len(drawn), np.nan)
        status, message = Status.NOT_APPLICABLE, f"{prepared.reason}."
        return RankStatistic(name, None, None, None, status, message), nothing
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(prepared.of(np.ones((1, len(of.kept))))[0])
        draws = prepared.of(drawn)
    known = draws[np.isfinite(draws)]
    low = high = None
    cautions = [prepared.bias] if prepared.bias else []
    if len(known) >= DEFINED * len(draws):
        edges = (1 - level) / 2, (1 + level) / 2
        low, high = (float(one) for one in np.quantile(known, edges))
    else:
        cautions.append(
            f"no interval, since {len(known)} of {len(draws)} resamples have a value"
        )
    if len(of.kept) < FEW:
        cautions.append(f"the interval of fewer than {FEW} networks is too narrow")
    status = Status.BIASED if cautions else Status.ESTIMATED
    message = f"{'; '.join(cautions)}." if cautions else status.value
    one = RankStatistic(name, value, low, high, status, message, prepared.details)
    return one, draws
