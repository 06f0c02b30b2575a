"""The dense Hessian of a tiny model: obviously right, and slow.

It takes the loss of a batch as one function of one flat vector and knows nothing of routes
or kept graphs; tests, docs and papers compare everything with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.data import Batch
from flatgauge.errors import OptionError
from flatgauge.objective import Objective
from flatgauge.shapes import Float
from flatgauge.vectors import ravel, size, unravel

LIMIT = 5000


def dense_hessian(objective: Objective) -> Float[Tensor, "n n"]:
    """∇²L as a matrix, from the Jacobian of the gradient, row by row."""
    space = objective.parameters
    if size(space) > LIMIT:
        raise OptionError(
            f"a dense matrix of {size(space)} parameters was asked for, above {LIMIT}: use "
            "the operators, or choose fewer parameters."
        )
    flat = ravel(space)

    def curvature(batch: Batch) -> Tensor:
        def loss(point: Tensor) -> Tensor:
            return objective.batch_total(unravel(point, space), batch)

        found = torch.autograd.functional.hessian(loss, flat)
        assert isinstance(found, Tensor)
        return found

    return objective.sum(curvature) / objective.sample_count


def dense_eigenvalues(matrix: Float[Tensor, "n n"]) -> Float[Tensor, " n"]:
    """All eigenvalues of a symmetric matrix, in ascending order."""
    return torch.linalg.eigvalsh((matrix + matrix.mT) / 2)
