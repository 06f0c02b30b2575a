"""What the rounding inside a user's loss does to a curvature.

A named loss keeps its digits; a function of the user's may lose them, such as 1 − p for a
sample of which the network is sure. Where a loss has lost them, the network's own
derivatives can make what is left large: no comparison in output space shows that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.losses import CallableLoss
from flatgauge.losses.loss import Loss, random_signs
from flatgauge.losses.precision import output_rounding
from flatgauge.nested import tensors_in
from flatgauge.vectors import Params, gaussian, generator, map_tensors, multiply, norm

# Random columns: one alone may be where there is no curvature.
COLUMNS = 2


@final
@dataclass(frozen=True)
class LossNoise(Loss):
    """n(f) = Σ ±e f + ½ Σ ±c (f − f₀)², as large as the rounding of another loss at f₀.

    Its slope ±e and its second derivative ±c are the errors of those of `loss` in each
    row, with random signs, so that its Hessian in θ, Σ ±e ∇²f + Jᵀ diag(±c) J, is what
    rounding may have added to that of `loss`.

    Attributes:
        loss: the user's.
        apart: whether each row has a loss of its own.
    """

    loss: CallableLoss
    apart: bool
    name = "rounding"
    classification = False

    def total(self, outputs: Any, targets: Any) -> tuple[Tensor, int]:
        """The noise, for as many rows as the loss counts."""
        return self.sum(outputs, targets), self.loss.total(outputs, targets)[1]

    def sum(self, outputs: Any, targets: Any) -> Tensor:
        """The same noise at every call."""
        if not isinstance(outputs, Tensor):
            # Structures of outputs were not looked at: no rounding is known of them.
            parts = [t for t in tensors_in(outputs) if t.is_floating_point()]
            return 0 * torch.stack([part.sum() for part in parts]).sum()
        fixed = outputs.detach()
        found = output_rounding(
            lambda free: self.loss.sum(free, targets),
            fixed.double() if self.loss.wide else fixed,
            self.apart,
        )
        random = torch.Generator().manual_seed(1)
        e, c = (
            random_signs(fixed, random) * self._entries(sizes, fixed)
            for sizes in (found.slopes, found.bends)
        )
        return (e * outputs).sum() + (c * (outputs - fixed).square()).sum() / 2

    def _entries(self, sizes: Tensor, outputs: Tensor) -> Tensor:
        """The error of each row for all of its outputs."""
        ones = [1] * (outputs.ndim - 1) if self.apart else []
        return sizes.view(-1, *ones).to(outputs) if ones else sizes.to(outputs)


def noise_share(hessian: SymmetricOperator, noise: SymmetricOperator) -> float:
    """‖D N D V‖ / ‖D H D V‖ for normal random V: the larger of D = 1 and typical sizes.

    A few columns V give norms about as large as the Frobenius norm. In units of the typical
    size of each tensor's entries, as metrics use them, tensors of small entries weigh less.
    """
    space, random = hessian.space, generator(0)
    columns = [gaussian(space, random) for _ in range(COLUMNS)]
    ones = map_tensors(torch.ones_like, space)
    return max(
        _share(hessian, noise, columns, scales)
        for scales in (ones, map_tensors(_typical, space))
    )


def _share(
    hessian: SymmetricOperator,
    noise: SymmetricOperator,
    columns: list[Params],
    scales: Params,
) -> float:
    def reach(operator: SymmetricOperator) -> float:
        images = operator.unchecked([multiply(one, scales) for one in columns])
        return math.hypot(*(float(norm(multiply(one, scales))) for one in images))

    error = reach(noise)
    if not error:
        return 0.0
    found = reach(hessian)
    return error / found if found else math.inf


def _typical(tensor: Tensor) -> Tensor:
    return tensor.double().square().mean().sqrt().to(tensor).expand_as(tensor)
