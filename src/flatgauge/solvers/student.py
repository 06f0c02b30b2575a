"""Standard errors from few independent estimates, which may be skewed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri, stdtrit

# The normal quantile of a two-sided interval of 95 %.
NORMAL = float(ndtri(0.975))


def student(freedom: float) -> float:
    """Student's quantile over the normal one, for an interval of 95 %.

    >>> round(student(9.0), 3), round(student(1e9), 6)
    (1.154, 1.0)
    """
    return float(stdtrit(freedom, 0.975)) / NORMAL


def skewness(singles: np.ndarray) -> np.ndarray:
    """How far the skewness of m estimates widens the 95 % interval of their mean.

    Of skewed estimates, those that came out low also spread little. To first order the
    quantile z of the mean over its standard error moves by γ (2 z² + 1) / (6 √m), with γ
    the skewness (Johnson 1978): the factor is 1 + |γ| (2 z² + 1) / (6 z √m). For the
    squares of 32 normal numbers the interval then holds in 95 % of all draws, not 91 %.
    The skewness of few numbers comes out too small, and is raised by √(m (m − 1)) / (m − 2).

    Args:
        singles: the estimates, along the first axis.
    """
    apart = singles - singles.mean(axis=0)
    largest = np.abs(apart).max(axis=0)
    apart = np.divide(apart, largest, out=np.zeros_like(apart), where=largest > 0)
    variance = np.where(largest > 0, (apart**2).mean(axis=0), 1.0)
    gamma = np.abs((apart**3).mean(axis=0)) / variance**1.5
    count = len(singles)
    if count > 2:
        gamma = gamma * math.sqrt(count * (count - 1)) / (count - 2)
    factor = (2 * NORMAL**2 + 1) / (6 * NORMAL * math.sqrt(count))
    return np.asarray(1 + gamma * factor)


def standard_error(singles: Sequence[float] | np.ndarray) -> np.ndarray:
    """The standard error of the mean of independent estimates, over the first axis.

    The standard deviation of few numbers is too small more often than not, so that the
    mean ± 2 std/√m of m = 10 holds in 92 % of all draws. The error that is returned is
    widened for their number (Student's t) and their skewness, such that two of them hold
    in about 95 %.

    >>> round(float(standard_error([1.0, 2.0, 3.0])), 3)
    1.267
    """
    values = np.asarray(singles, dtype=np.float64)
    plain = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    return np.asarray(plain * student(len(values) - 1.0) * skewness(values))
