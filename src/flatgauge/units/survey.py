"""The passes that an objective begins with: what it averages over, and if it repeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flatgauge.losses import CallableLoss, Loss
from flatgauge.network import Network
from flatgauge.passes import Pass, Watch, check_agreement
from flatgauge.units.judge import Judge
from flatgauge.units.network import CouplingCheck
from flatgauge.vectors import Params

# One pass with a loss, under a seed, watched.
RunPass = Callable[[Loss, int, Watch | None], Pass]


@dataclass(frozen=True)
class Survey:
    """What the first passes found.

    Attributes:
        loss: the loss as it turned out to be.
        value: the mean loss.
        sizes: the rows of each batch.
        coupled: whether the batch is the unit.
    """

    loss: Loss
    value: float
    sizes: tuple[int, ...]
    coupled: bool


def survey(
    run: RunPass,
    loss: Loss,
    network: Network,
    point: Params,
) -> Survey:
    """Look at the loss in one pass; two under different random states must agree.

    Args:
        run: runs a pass.
        loss: as given.
        network: of the objective.
        point: its parameters.

    Raises:
        LossError: if the loss is a sum, or a mean with weights that are not known.
        NotDeterministicError: if the passes do not agree.
    """
    coupled, evaluate, dtype = False, network.evaluate, network.dtype
    while isinstance(loss, CallableLoss) and not loss.settled:
        judge = Judge(loss, evaluate, point, dtype)
        run(loss, 0, judge.look)
        loss, coupled = judge.verdict(), judge.coupled
    check = CouplingCheck(evaluate, point, loss, dtype)
    first, again = run(loss, 0, check.look), run(loss, 1, None)
    check_agreement(first, again, loss, dtype, network.mode)
    return Survey(loss, first.value, first.sizes, coupled or check.coupled)
