"""The passes that an objective begins with: what it averages over, and if it repeats."""

from __future__ import annotations

from collections.abc import Callable

from flatgauge.losses import CallableLoss, Loss
from flatgauge.network import Network
from flatgauge.ranks import Ranks
from flatgauge.sums import MeanLoss, Watch, check_repeats
from flatgauge.units.judge import Judge
from flatgauge.units.network import CouplingCheck
from flatgauge.vectors import Params

# The mean of a loss, under a seed, watched.
Mean = Callable[[Loss, int, Watch | None], MeanLoss]


def survey(
    mean: Mean,
    loss: Loss,
    network: Network,
    point: Params,
    ranks: Ranks,
    known: bool | None = None,
) -> tuple[Loss, bool, MeanLoss]:
    """Look at the loss in one pass; two under different random states must agree.

    Args:
        mean: makes a pass over the data.
        loss: as given.
        network: of the objective.
        point: its parameters.
        ranks: the processes that each see some of the data.
        known: whether samples influence each other's rows, if that was seen before.

    Returns:
        The loss as it turned out to be, whether the batch is the unit, and the mean.

    Raises:
        LossError: if the loss is a sum, or a mean with weights that are not known.
        NotDeterministicError: if the passes do not agree.
    """
    coupled, evaluate, dtype = False, network.evaluate, network.dtype
    while isinstance(loss, CallableLoss) and not loss.settled:
        judge = Judge(loss, evaluate, point, dtype)
        mean(loss, 0, judge.look)
        judge.join(ranks.gathered(judge.evidence))
        loss, coupled = judge.verdict(ranks), judge.coupled
    check = CouplingCheck(evaluate, point, loss, dtype)
    look = check.look if known is None else None
    first, again = mean(loss, 0, look), mean(loss, 1, None)
    check_repeats(first, again, loss, dtype, network.mode)
    if known is None:
        known = any(ranks.gathered(check.coupled))
    return loss, coupled or known, first
