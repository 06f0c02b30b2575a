"""How often a measure orders two networks wrongly, in the worst environment and on average.

Dziugaite et al. 2020, "In search of robust measures of generalization".
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from flatgauge.rankings.columns import Array, Design, combined, signs
from flatgauge.rankings.statistic import Prepared

LEAST_PAIRS = 12.0
"""The fewest effective pairs of an environment, as in the paper."""
CERTAIN = 0.5
"""A pair counts what its weight exceeds this, as in the paper."""
WORST_BIAS = "the largest of several errors, each of which chance moves, is too large"


def sign_errors(of: Design, samples: int | None) -> dict[str, Prepared]:
    """The expected and the worst sign-error over environments.

    An environment moves networks from one setting to another: from one label to another,
    or, without labels, from one combination of hyperparameters to one that differs in
    exactly one of them. Over its pairs (one network of each) with weights ω,

        SE = Σ ω_ij ½ (1 − s_ij t_ij) / Σ ω_ij,

    where s_ij and t_ij are the signs of the differences of values and of targets: 0 where
    all are ordered rightly, ½ by chance. The expectation weighs environments alike.

    Where targets are means over n samples of numbers from 0 to 1, such as accuracies, a
    difference Δ of two has the right sign with probability at least
    p = (1 − 2 exp(−2n (Δ/2)²))₊², by Hoeffding's inequality: ω = (p − ½)₊, or 1 where
    `samples` is not given. Environments of fewer than 12 effective pairs, (Σω)² / Σω²,
    are left out.
    """
    environments, reason = _environments(of)
    agree, ordered = signs(of.values) * signs(of.targets), certainty(of, samples)
    parts: list[tuple[str, Array, Array, Array, Array]] = []
    few = 0
    for name, before, after in environments:
        inside = np.ix_(before, after)
        own = ordered[inside]
        squares = (own**2).sum()
        if not squares or own.sum() ** 2 / squares < LEAST_PAIRS * (1 - 1e-9):
            few += 1
            continue
        parts.append((name, before, after, own * (1 - agree[inside]) / 2, own))
    if not parts:
        few_pairs = (
            f"none of the {few} pairs of environments has {LEAST_PAIRS:g} effective pairs "
            "of networks"
        )
        none = Prepared(reason=reason or few_pairs)
        return {"mean": none, "worst": none}

    def each(weights: Array) -> Array:
        found = []
        for _, before, after, wrong, own in parts:
            drawn = weights[:, before], weights[:, after]
            sizes = ((drawn[0] @ own) * drawn[1]).sum(1)
            found.append(((drawn[0] @ wrong) * drawn[1]).sum(1) / sizes)
        return np.array(found)

    errors = each(np.ones((1, len(of.kept))))[:, 0]
    worst = int(errors.argmax())
    details = {"environments": len(parts), "with_too_few_pairs": few}
    where = {"worst": parts[worst][0]}

    def mean(weights: Array) -> Array:
        found = each(weights)
        known = np.isfinite(found)
        return np.where(known, found, 0.0).sum(0) / known.sum(0)

    def largest(weights: Array) -> Array:
        found = each(weights)
        highest = np.where(np.isfinite(found), found, -np.inf).max(0)
        return np.where(np.isfinite(highest), highest, np.nan)

    bias = WORST_BIAS if len(parts) > 1 else ""
    return {
        "mean": Prepared(mean, details=details),
        "worst": Prepared(largest, bias=bias, details={**details, **where}),
    }


def certainty(of: Design, samples: int | None) -> Array:
    """ω_ij for all pairs of networks: see `sign_errors`."""
    if samples is None:
        return np.ones((len(of.kept), len(of.kept)))
    apart = np.abs(of.targets[:, None] - of.targets[None, :]) / 2
    surely = np.maximum(1 - 2 * np.exp(-2 * samples * apart**2), 0) ** 2
    return np.maximum(surely - CERTAIN, 0)


def _environments(of: Design) -> tuple[list[tuple[str, Array, Array]], str]:
    """Name and networks of both sides of each; else why there are none."""
    if of.labels is not None:
        if len(of.names) < 2:
            return [], "there is one environment: an error is between two"
        sides = {
            name: np.flatnonzero(of.labels == number)
            for number, name in enumerate(of.names)
        }
        pairs = combinations(sides, 2)
        return [(f"{a} to {b}", sides[a], sides[b]) for a, b in pairs], ""
    if not of.settings:
        return [], "neither environments nor hyperparameters are given"
    found, count = [], len(of.kept)
    groups = combined(of.settings.values(), count)
    members = [
        np.flatnonzero(groups == one) for one in range(groups.max(initial=-1) + 1)
    ]
    for before, after in combinations(members, 2):
        moved = [
            name
            for name, column in of.settings.items()
            if column[before[0]] != column[after[0]]
        ]
        if len(moved) == 1:
            found.append((moved[0], before, after))
    reason = "" if found else "no two settings differ in exactly one hyperparameter"
    return found, reason
