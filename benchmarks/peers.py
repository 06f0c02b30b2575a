"""Products, traces and diagonals of other packages, where installed.

They live in an environment of their own; each adapter returns None if its package is
missing, and raises what the package raises.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batches = list[tuple[Tensor, Tensor]]
Flat = Callable[[Tensor], Tensor]
# The trace, from a seed; and the number of products that it took.
TraceCall = Callable[[int], tuple[float, int]]

DISTRIBUTIONS = {
    "PyHessian": "pyhessian",
    "curvlinops": "curvlinops-for-pytorch",
    "hessian-eigenthings": "hessian-eigenthings",
    "BackPACK": "backpack-for-pytorch",
}
# What hessian-eigenthings takes by default; curvlinops has no default.
TRACE_PRODUCTS = 100
# curvlinops multiplies all its probes at once, and 100 of them do not fit in memory.
PROBES_TOGETHER = 10


FOLDER = ""


def use(folder: str) -> None:
    """Look for the packages in a folder, after everything else."""
    global FOLDER
    if folder:
        FOLDER = folder
        sys.path.append(folder)


def leave_out(names: list[str]) -> None:
    for name in names:
        for table in (PRODUCTS, TRACES, DIAGONALS):
            for key in [key for key in table if key.startswith(name)]:
                del table[key]


def global_precision(tf32: bool) -> None:
    """What the packages see, which have no setting of their own."""
    torch.backends.cuda.matmul.fp32_precision = "tf32" if tf32 else "ieee"
    torch.backends.cudnn.conv.fp32_precision = "tf32" if tf32 else "ieee"


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def versions() -> dict[str, str]:
    found = {}
    for name, distribution in DISTRIBUTIONS.items():
        try:
            found[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return found


def pyhessian(model: nn.Module, batches: Batches) -> Any:
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


def pyhessian_trace(model: nn.Module, batches: Batches) -> TraceCall | None:
    own = pyhessian(model, batches)
    if own is None:
        return None

    def trace(seed: int) -> tuple[float, int]:
        with seeded(seed):
            singles = own.trace(maxIter=100, tol=1e-3)
        return sum(singles) / len(singles), len(singles)

    return trace


def _curvlinops(model: nn.Module, batches: Batches) -> Any:
    if not installed("curvlinops"):
        return None
    from curvlinops import HessianLinearOperator

    params = [p for p in model.parameters() if p.requires_grad]
    return HessianLinearOperator(
        model, nn.CrossEntropyLoss(), params, batches, check_deterministic=False
    )


def curvlinops_product(model: nn.Module, batches: Batches) -> Flat | None:
    operator = _curvlinops(model, batches)
    return None if operator is None else lambda vector: operator @ vector


def curvlinops_trace(model: nn.Module, batches: Batches) -> TraceCall | None:
    operator = _curvlinops(model, batches)
    if operator is None:
        return None
    from curvlinops import hutchinson_trace

    def trace(seed: int) -> tuple[float, int]:
        turns = TRACE_PRODUCTS // PROBES_TOGETHER
        with seeded(seed):
            parts = [
                float(hutchinson_trace(operator, PROBES_TOGETHER)) for _ in range(turns)
            ]
        return sum(parts) / turns, TRACE_PRODUCTS

    return trace


def _eigenthings(model: nn.Module, batches: Batches) -> Any:
    if not installed("hessian_eigenthings"):
        return None
    from hessian_eigenthings.operators import HessianOperator

    return HessianOperator(
        model, batches, lambda m, batch: F.cross_entropy(m(batch[0]), batch[1])
    )


def eigenthings_product(model: nn.Module, batches: Batches) -> Flat | None:
    operator = _eigenthings(model, batches)
    return None if operator is None else operator.matvec


def eigenthings_trace(model: nn.Module, batches: Batches) -> TraceCall | None:
    operator = _eigenthings(model, batches)
    if operator is None:
        return None
    from hessian_eigenthings.algorithms.trace import trace as their_trace

    def trace(seed: int) -> tuple[float, int]:
        found = their_trace(operator, num_matvecs=TRACE_PRODUCTS, seed=seed)
        return found.estimate, 3 * (TRACE_PRODUCTS // 3)

    return trace


def backpack_diagonal(
    kind: str, field: str, model: nn.Module, batches: Batches
) -> Callable[[], Tensor] | None:
    """The diagonal from one backward pass with one of BackPACK's extensions."""
    if not installed("backpack"):
        return None
    from backpack import backpack, extend, extensions

    # It hooks into the modules: into a copy, then.
    own = extend(copy.deepcopy(model))
    loss = extend(nn.CrossEntropyLoss())
    extension = getattr(extensions, kind)
    count = sum(len(inputs) for inputs, _ in batches)

    def diagonal() -> Tensor:
        total = 0.0
        for inputs, targets in batches:
            own.zero_grad()
            with backpack(extension()):
                loss(own(inputs), targets).backward()
            parts = [getattr(p, field).reshape(-1) for p in own.parameters()]
            total = total + torch.cat(parts) * (len(inputs) / count)
        assert isinstance(total, Tensor)
        return total.detach()

    return diagonal


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The other packages draw from the global generators, which are put back."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


PRODUCTS: dict[str, Callable[[nn.Module, Batches], Flat | None]] = {
    "PyHessian": pyhessian_product,
    "curvlinops": curvlinops_product,
    "hessian-eigenthings": eigenthings_product,
}
TRACES: dict[str, Callable[[nn.Module, Batches], TraceCall | None]] = {
    "PyHessian": pyhessian_trace,
    "curvlinops": curvlinops_trace,
    "hessian-eigenthings": eigenthings_trace,
}
DIAGONALS: dict[str, Callable[[nn.Module, Batches], Callable[[], Tensor] | None]] = {
    "BackPACK DiagGGNExact": partial(
        backpack_diagonal, "DiagGGNExact", "diag_ggn_exact"
    ),
    "BackPACK DiagHessian": partial(backpack_diagonal, "DiagHessian", "diag_h"),
}
