"""The terms of the PAC-Bayes bound, as functions of numbers.

For a loss in [0, 1], m independent samples, a prior P that was fixed before they were
seen, and λ > 0: with probability at least 1 − δ, for every posterior Q at once,
L_D(Q) ≤ L_S(Q) + (KL[Q‖P] + ln(1/δ) + Ψ(λ, m)) / λ (Tsuzuku et al. 2019, (1) to (4)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy import optimize, special
from torch import Tensor

from flatgauge.errors import OptionError

PSI = {"tight": 8.0, "paper": 2.0}
# Prior scales lie between 2^-RANGE and 2^RANGE.
RANGE = 64


def gaussian_kl(
    squared_norm: float, count: int, prior_variance: float, posterior_variance: float
) -> float:
    """KL[N(w, σ_Q² I) ‖ N(0, σ_P² I)] in nats, for `count` entries.

    It is n ln(σ_P/σ_Q) + (‖w‖² + n σ_Q²) / (2 σ_P²) − n/2: equation (6) of Tsuzuku et
    al. 2019 with the factors n that belong there.

    >>> round(gaussian_kl(0.875, 3, 0.25, 0.0625), 12)
    2.70444154168
    """
    ratio = posterior_variance / prior_variance
    spread = ratio - 1 - math.log(ratio)
    return 0.5 * (squared_norm / prior_variance + count * spread)


def least_kl(squared_norm: float, count: int, posterior_variance: float) -> float:
    """The minimum of `gaussian_kl` over the prior's variance.

    It is (n/2) ln(1 + ‖w‖² / (n σ_Q²)), reached at σ_P² = ‖w‖²/n + σ_Q².

    >>> round(least_kl(0.875, 3, 0.0625), 12)
    2.601901583082
    """
    return 0.5 * count * math.log1p(squared_norm / (count * posterior_variance))


def psi_bound(lam: float, samples: int, kind: str = "tight") -> float:
    """An upper bound of Ψ(λ, m): λ²/8m ("tight", Hoeffding) or λ²/2m ("paper", (3)).

    >>> psi_bound(5.0, 10, "tight"), psi_bound(5.0, 10, "paper")
    (0.3125, 1.25)
    """
    if kind not in PSI:
        raise OptionError(f"psi= is '{kind}': use 'tight' or 'paper'.")
    return lam**2 / (PSI[kind] * samples)


def risk_bound(risk: float, kl: float, delta: float, lam: float, psi: float) -> float:
    """L_S(Q) + (KL + ln(1/δ) + Ψ) / λ, the right side of (1).

    Args:
        risk: L_S(Q).
        kl: KL[Q‖P], with what choosing the prior costs.
        delta: the probability of failure.
        lam: λ, fixed in advance.
        psi: Ψ(λ, m) or a bound of it.

    >>> round(risk_bound(0.1, 2.0, 1.0, 10.0, 0.5), 12)
    0.35
    """
    return risk + (kl - math.log(delta) + psi) / lam


def lambda_grid(samples: int) -> list[float]:
    """The λ over which a union bound is taken: √m, 2√m, 4√m, ... up to 4m.

    It depends on the number of samples alone. Below it the term ln(1/δ)/λ is large;
    above it Ψ/λ is: √(8mA) > 4m only where A > 2m, and then the bound exceeds 1.

    >>> lambda_grid(16)
    [4.0, 8.0, 16.0, 32.0, 64.0]
    """
    root = math.sqrt(samples)
    return [root * 2.0**k for k in range(1 + int(math.log2(4 * root) + 1e-9))]


def mean_upper_bound(mean: float, draws: int, delta: float) -> float:
    """The largest q with kl(mean‖q) ≤ ln(1/δ) / n: Chernoff's bound, inverted.

    It exceeds the expectation of a variable in [0, 1] with probability at least 1 − δ,
    given the mean of n independent draws.

    >>> round(mean_upper_bound(0.0, 10, 0.5), 12) == round(1 - 0.5**0.1, 12)
    True
    """
    room = -math.log(delta) / draws

    def excess(q: float) -> float:
        return (
            float(special.rel_entr(mean, q) + special.rel_entr(1 - mean, 1 - q)) - room
        )

    end = math.nextafter(1.0, 0.0)
    if mean >= end or excess(end) <= 0:
        return 1.0
    return optimize.root_scalar(excess, bracket=(mean, end), xtol=1e-15).root


@dataclass(frozen=True)
class ScaleGrid:
    """The values that a prior's σ_P may take: powers of a ratio from 2^-64 to 2^64.

    The grid is fixed in advance; a uniform hyperprior over it costs ln|grid| for each
    σ_P that is chosen after training (Tsuzuku et al. 2019, section 4.1).

    >>> grid = ScaleGrid(2.0)
    >>> grid.count, round(grid.price, 12) == round(math.log(129), 12)
    (129, True)
    """

    ratio: float

    def __post_init__(self) -> None:
        if not 1 < self.ratio <= 2.0**RANGE:
            raise OptionError(
                f"grid_ratio= is {self.ratio}: give a number above 1, such as 1.1."
            )

    @property
    def steps(self) -> int:
        """The largest exponent."""
        return int(RANGE * math.log(2) / math.log(self.ratio) + 1e-9)

    @property
    def count(self) -> int:
        """The number of values."""
        return 2 * self.steps + 1

    @property
    def price(self) -> float:
        """What one chosen σ_P costs, in nats."""
        return math.log(self.count)

    @property
    def spacing(self) -> float:
        """The distance of neighbours in ln σ_P²."""
        return 2 * math.log(self.ratio)

    @property
    def variances(self) -> tuple[float, float]:
        """The smallest and the largest σ_P²."""
        reach = self.steps * self.spacing
        return math.exp(-reach), math.exp(reach)

    @property
    def resolution(self) -> float:
        """The most that an entry's divergence can rise when its σ_P is rounded."""
        half = self.spacing / 2
        return 0.5 * (math.expm1(half) - half)

    def round(self, mean_square: Tensor) -> Tensor:
        """The ln σ_P² on the grid at which ln σ_P² + mean_square / σ_P² is smallest."""
        target = mean_square.log()
        below = torch.floor(target / self.spacing)
        above = below + 1
        costs = [
            k * self.spacing + torch.exp(target - k * self.spacing)
            for k in (below, above)
        ]
        best = torch.where(costs[0] <= costs[1], below, above)
        return best.clamp(-self.steps, self.steps) * self.spacing
