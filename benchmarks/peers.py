"""Hessian products, eigenvalues and traces of other packages, where installed.

They live in an environment of their own; each adapter returns None if its package is
missing, and raises what the package raises.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batches = list[tuple[Tensor, Tensor]]
Flat = Callable[[Tensor], Tensor]


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def pyhessian(model: nn.Module, batches: Batches) -> object | None:
    """PyHessian's own object over a loader."""
    if not installed("pyhessian"):
        return None
    from pyhessian import hessian

    on_gpu = batches[0][0].is_cuda
    return hessian(model, nn.CrossEntropyLoss(), dataloader=batches, cuda=on_gpu)


def pyhessian_product(model: nn.Module, batches: Batches) -> Flat | None:
    own = pyhessian(model, batches)
    if own is None:
        return None
    shapes = [p.shape for p in model.parameters()]

    def product(vector: Tensor) -> Tensor:
        parts = vector.split([s.numel() for s in shapes])
        views = [part.view(s) for part, s in zip(parts, shapes, strict=True)]
        image = own.dataloader_hv_product(views)[1]
        return torch.cat([part.reshape(-1) for part in image])

    return product


def curvlinops_product(model: nn.Module, batches: Batches) -> Flat | None:
    if not installed("curvlinops"):
        return None
    from curvlinops import HessianLinearOperator

    params = [p for p in model.parameters() if p.requires_grad]
    operator = HessianLinearOperator(
        model, nn.CrossEntropyLoss(), params, batches, check_deterministic=False
    )
    return lambda vector: operator @ vector


def eigenthings_product(model: nn.Module, batches: Batches) -> Flat | None:
    if not installed("hessian_eigenthings"):
        return None
    from hessian_eigenthings.operators import HessianOperator

    operator = HessianOperator(
        model, batches, lambda m, batch: F.cross_entropy(m(batch[0]), batch[1])
    )
    return operator.matvec


PRODUCTS = {
    "PyHessian": pyhessian_product,
    "curvlinops": curvlinops_product,
    "hessian-eigenthings": eigenthings_product,
}
