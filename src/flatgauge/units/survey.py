"""The passes that an objective begins with: what it averages over, and if it repeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from flatgauge.losses import CallableLoss, Loss
from flatgauge.passes import Pass, Watch, check_agreement
from flatgauge.units.judge import Judge
from flatgauge.units.network import CouplingCheck, Evaluate
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
    evaluate: Evaluate,
    point: Params,
    dtype: torch.dtype,
    mode: str,
) -> Survey:
    """Look at the loss in one pass; two under different random states must agree.

    Args:
        run: runs a pass.
        loss: as given.
        evaluate: outputs and targets of a batch at some parameters.
        point: the parameters.
        dtype: their floating type.
        mode: the network's.

    Raises:
        LossError: if the loss is a sum, or a mean with weights that are not known.
        NotDeterministicError: if the passes do not agree.
    """
    coupled = False
    while isinstance(loss, CallableLoss) and not loss.settled:
        judge = Judge(loss, evaluate, point, dtype)
        run(loss, 0, judge.look)
        loss, coupled = judge.verdict(), judge.coupled
    check = CouplingCheck(evaluate, point, loss, dtype)
    first, again = run(loss, 0, check.look), run(loss, 1, None)
    check_agreement(first, again, loss, dtype, mode)
    return Survey(loss, first.value, first.sizes, coupled or check.coupled)
