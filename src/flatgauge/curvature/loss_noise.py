"""What the rounding inside a user's loss does to a curvature.

A named loss keeps its digits; a function of the user's may lose them, such as 1 − p for a
sample of which the network is sure. Where a loss has lost them, the network's own
derivatives can make what is left large: no comparison in output space shows that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.data import Batch
from flatgauge.errors import LossError
from flatgauge.losses import CallableLoss
from flatgauge.losses.loss import Loss, random_signs
from flatgauge.losses.precision import OutputRounding, output_rounding
from flatgauge.memo import once
from flatgauge.nested import map_nested, tensors_in
from flatgauge.objective import Objective
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
    """

    loss: CallableLoss
    name = "rounding"
    classification = False

    def total(self, outputs: Any, targets: Any) -> tuple[Tensor, int]:
        """The noise, for as many rows as the loss counts."""
        return self.sum(outputs, targets), self.loss.total(outputs, targets)[1]

    def sum(self, outputs: Any, targets: Any) -> Tensor:
        """The same noise at every call.

        Raises:
            LossError: if the outputs hold no tensors that could be looked at.
        """
        random = torch.Generator().manual_seed(1)
        parts: list[Tensor] = []
        for leaf, found in roundings(self.loss, outputs, targets):
            known = leaf.detach().isfinite()
            free = torch.where(known, leaf, 0.0)
            e, c = (
                random_signs(free, random) * by_entry(sizes, free)
                for sizes in (found.slopes, found.bends)
            )
            moved = (free - free.detach()).square()
            parts.append((e * free).sum() + (c * moved).sum() / 2)
        if not parts:
            raise LossError(
                f"the outputs that '{self.loss.name}' takes are no tensors."
            )
        return torch.stack(parts).sum()


def roundings(
    loss: CallableLoss, outputs: Any, targets: Any
) -> Iterator[tuple[Tensor, OutputRounding]]:
    """Each floating tensor of the outputs, and how a loss rounds its derivatives by it."""
    fixed = map_nested(lambda t: t.detach().clone(), outputs)
    pairs = zip(tensors_in(outputs), tensors_in(fixed), strict=True)
    for leaf, own in pairs:
        if leaf.is_floating_point() and leaf.numel():

            def value(free: Tensor, own: Tensor = own) -> Tensor:
                around = map_nested(lambda t: free if t is own else t.clone(), fixed)
                return loss.sum(around, targets)

            at = own.double() if loss.wide else own
            eps = torch.finfo(leaf.dtype).eps
            yield leaf, output_rounding(value, at, apart=False, carried=eps)


def by_entry(sizes: Tensor, outputs: Tensor) -> Tensor:
    """The error of each row for all of its entries."""
    return sizes.view(-1, *[1] * (outputs.ndim - 1)).to(outputs).expand_as(outputs)


@once
def slope_rounding(objective: Objective) -> float:
    """The rounding of ∇_f ℓ of a user's loss, as a share of its size over all data."""
    loss = objective.loss
    if not isinstance(loss, CallableLoss):
        return loss.rounding

    def sizes(batch: Batch) -> tuple[float, float]:
        outputs, targets = objective.evaluate(objective.parameters, batch)
        found = [one for _, one in roundings(loss, outputs, targets)]
        errors = sum(float(one.slopes.square().sum()) for one in found)
        return errors, sum(one.slope_size for one in found)

    error, size = objective.sum(sizes)
    if not error:
        return loss.rounding
    return max(loss.rounding, math.sqrt(error / size) if size else math.inf)


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
    share = error / found if found else math.inf
    return math.inf if math.isnan(share) else share


def _typical(tensor: Tensor) -> Tensor:
    return tensor.double().square().mean().sqrt().to(tensor).expand_as(tensor)
