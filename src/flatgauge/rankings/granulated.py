"""Kendall's coefficient where only one hyperparameter changes at a time.

Jiang et al. 2020, "Fantastic generalization measures and where to find them", section 2.2.2.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flatgauge.rankings.columns import Array, Design, combined, signs
from flatgauge.rankings.statistic import Prepared, quadratic

TARGETS_TIE = "the networks that differ in nothing else all have the same target"


def along(of: Design, axis: str) -> Prepared:
    """ψ_i: the mean of Kendall's coefficient over the settings of all other hyperparameters.

    In each group of networks that share the others, τ = Σ s_ij t_ij / Σ 1 over its pairs
    with different settings of hyperparameter i; s_ij and t_ij are the signs of the
    differences of values and of targets. A tie counts as 0: a measure that does not see
    the hyperparameter at all has ψ_i = 0.
    """
    others = [column for name, column in of.settings.items() if name != axis]
    own = of.settings[axis]
    if len(np.unique(own)) < 2:
        return Prepared(reason=f"all networks have the same {axis}")
    found = _mean_of_groups(of, combined(others, len(own)), signs(own) != 0)
    if found is None:
        return Prepared(
            reason=f"no two networks differ in {axis} alone: there are none with two "
            f"settings of {axis} that share all others"
        )
    return found


def at_fixed_settings(of: Design) -> Prepared:
    """The mean of Kendall's coefficient over groups that share all hyperparameters.

    It says whether a measure sees more than the hyperparameters: pairs are of networks
    that differ in what is none, such as their seed. Ties count as 0.
    """
    if not of.settings:
        return Prepared(reason="no hyperparameters are given")
    count = len(of.kept)
    apart = ~np.eye(count, dtype=bool)
    found = _mean_of_groups(of, combined(of.settings.values(), count), apart)
    if found is None:
        return Prepared(reason="no two networks share all hyperparameters")
    return found


def granulated(axes: Mapping[str, Prepared]) -> Prepared:
    """Ψ = 1/n Σ_i ψ_i, the mean over the hyperparameters that have a ψ_i."""
    known = {name: one for name, one in axes.items() if one.of is not None}
    if not axes:
        return Prepared(reason="no hyperparameters are given")
    if not known:
        return Prepared(reason="; ".join(one.reason for one in axes.values()))

    def weighted(weights: Array) -> Array:
        each = np.array([one.of(weights) for one in known.values() if one.of])
        return _mean(each)

    left_out = {name: one.reason for name, one in axes.items() if one.of is None}
    return Prepared(weighted, details={"over": list(known), "left_out": left_out})


def _mean_of_groups(of: Design, groups: Array, apart: Array) -> Prepared | None:
    """The mean of τ over groups, with the pairs that are `apart`; None without pairs."""
    agree = signs(of.values) * signs(of.targets)
    ordered = signs(of.targets) != 0
    parts: list[tuple[Array, Array, Array]] = []
    pairs, untied = 0, False
    for group in range(groups.max(initial=-1) + 1):
        members = np.flatnonzero(groups == group)
        inside = np.ix_(members, members)
        chosen = apart[inside].astype(float)
        if chosen.any():
            parts.append((members, agree[inside] * chosen, chosen))
            pairs += int(chosen.sum()) // 2
            untied |= bool((ordered[inside] & apart[inside]).any())
    if not parts:
        return None
    if not untied:
        return Prepared(reason=TARGETS_TIE)

    def weighted(weights: Array) -> Array:
        each = []
        for members, own, chosen in parts:
            drawn = weights[:, members]
            each.append(quadratic(drawn, own) / quadratic(drawn, chosen))
        return _mean(np.array(each))

    return Prepared(weighted, details={"groups": len(parts), "pairs": pairs})


def _mean(each: Array) -> Array:
    """The mean of those that are defined in a resample; nan without any."""
    known = np.isfinite(each)
    return np.where(known, each, 0.0).sum(0) / known.sum(0)
