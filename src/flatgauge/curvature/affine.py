"""Whether a network is piecewise affine in each of its parameter tensors.

For such networks (ReLU, leaky ReLU, max-pooling, eval-mode BatchNorm, residuals) the
diagonal blocks of the Hessian are those of the Gauss-Newton matrix, exactly. That is
checked on the model at hand, never assumed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.data import Batch, map_nested, tensors_in
from flatgauge.objective import Objective
from flatgauge.vectors import gaussian, generator

SAMPLES = 16


def is_affine_in_each_tensor(objective: Objective) -> bool:
    """Check that ∂²⟨u, f⟩/∂W² v = 0 for every tensor W, with random u and v.

    A product that is zero for random u and v is zero for all, with probability one, on
    the samples looked at: the first few of the first batch.
    """
    with objective.isolated():
        batch = next(objective.batches())
        point = objective.leaves()
        outputs = objective.evaluate(point, few_samples(batch, SAMPLES))[0]
        if not isinstance(outputs, Tensor):
            return False
        random = generator(0)
        weights = gaussian({"u": outputs.detach()}, random)["u"]
        directions = gaussian(point, random)
        slopes = torch.autograd.grad(
            outputs,
            list(point.values()),
            weights,
            create_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        for (name, tensor), slope in zip(point.items(), slopes, strict=True):
            if not slope.requires_grad:
                continue
            bend = torch.autograd.grad(
                slope,
                tensor,
                directions[name],
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )[0]
            size = float(tensor.detach().square().mean().sqrt()) or 1.0
            noise = 1e3 * torch.finfo(tensor.dtype).eps * float(slope.detach().norm())
            if float(bend.norm()) * size > noise:
                return False
    return True


def few_samples(batch: Batch, count: int) -> Batch:
    """The first samples of a batch, or the whole where its layout is not plain."""
    tensors = tensors_in(batch.whole)
    lengths = {tensor.shape[0] for tensor in tensors if tensor.ndim}
    if len(lengths) != 1 or any(tensor.ndim == 0 for tensor in tensors):
        return batch
    parts = [
        map_nested(lambda t: t[:count], part)
        for part in (batch.whole, batch.inputs, batch.targets)
    ]
    return Batch(batch.index, *parts)
