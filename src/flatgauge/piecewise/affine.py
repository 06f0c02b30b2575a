"""Whether a network is piecewise affine in each of its parameter tensors.

For such networks (ReLU, leaky ReLU, max-pooling, eval-mode BatchNorm, residuals) the
diagonal blocks of the Hessian are those of the Gauss-Newton matrix, exactly. That is
checked on the model at hand and on every batch, never assumed.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor
from torch.autograd.function import BackwardCFunction

from flatgauge.data import Batch, few_samples
from flatgauge.memo import once_per_network
from flatgauge.objective import Objective
from flatgauge.piecewise.degrees import DegreeWatcher
from flatgauge.vectors import (
    Params,
    check_twice_differentiable,
    derivative_errors,
    gaussian,
    generator,
    gradient_of,
    graph_nodes,
)

# Samples times tensors that are looked at, and the fewest and most samples.
WORK = 96
FEWEST, MOST = 2, 16
# Tensors of one kind that are looked at, about.
OF_A_KIND = 8


@once_per_network
def is_affine_in_each_tensor(objective: Objective) -> bool:
    """Whether the outputs are piecewise affine in each tensor.

    Looks at all operations, and at the second derivatives of a few samples. Derivatives
    alone could not tell: a curved function has straight stretches, and the first samples
    may lie on one. Operations alone would trust our list of them.
    """
    with objective.isolated(), derivative_errors("second derivative"):
        first = objective.first_batch()
        seems = objective.ranks.together(
            lambda: (
                _has_affine_operations(objective, first)
                and _is_straight(objective, first)
            )
        )
        if not seems:
            return False
        return objective.holds(partial(_has_affine_operations, objective))


def _has_affine_operations(objective: Objective, batch: Batch) -> bool:
    """Whether every operation that a batch met keeps the outputs piecewise affine."""
    point = objective.leaves()
    with DegreeWatcher(point) as watcher:
        outputs = objective.evaluate(point, batch)[0]
    if not isinstance(outputs, Tensor):
        return False
    # What a user's own derivative rule computes is not always seen as operations.
    if any(isinstance(node, BackwardCFunction) for node in graph_nodes([outputs])):
        return False
    return max(watcher.degrees([outputs]).values(), default=0) <= 1


def _is_straight(objective: Objective, batch: Batch) -> bool:
    """Check that ∂²⟨u, f⟩/∂W² v = 0 for tensors W of every kind, with random u and v.

    A product that is zero for random u and v is zero for all, with probability one, on
    the first few samples of a batch. Piecewise-affine operations give an exact 0 here,
    and no threshold would do: small weights make every network nearly affine, and yet
    its Gauss-Newton diagonal is not the Hessian's.
    """
    point = objective.leaves()
    count = min(max(WORK // len(point), FEWEST), MOST)
    outputs = objective.evaluate(point, few_samples(batch, count))[0]
    if not isinstance(outputs, Tensor):
        return False
    if not outputs.requires_grad:
        return True
    random = generator(0)
    weights = gaussian({"u": outputs.detach()}, random)["u"]
    directions = gaussian(point, random)
    slopes = gradient_of((outputs * weights).sum(), point, create_graph=True)
    check_twice_differentiable(slopes.values())
    for name in _of_every_kind(point):
        along = (slopes[name] * directions[name]).sum()
        own = gradient_of(along, {name: point[name]}, keep_graph=True)
        if bool(own[name].any()):
            return False
    return True


def _of_every_kind(point: Params) -> list[str]:
    """Some of the tensors that have one last name and rank, from first to last.

    They are used by the same operations, and a deep network has hundreds.
    """
    kinds: dict[tuple[str, int], list[str]] = {}
    for name, tensor in point.items():
        kinds.setdefault((name.rpartition(".")[2], tensor.ndim), []).append(name)
    return [
        name
        for names in kinds.values()
        for name in names[:: max(1, len(names) // OF_A_KIND)]
    ]
