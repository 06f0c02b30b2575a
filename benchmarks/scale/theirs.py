"""PyHessian's rows: its own calls, with every product and the time it ended noted."""

from __future__ import annotations

import time
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks import peers
from benchmarks.scale.case import Case, Found, Note

MOST_PRODUCTS = 100


def eigenvalue(case: Case, note: Note) -> Found:
    """Its power iteration without a tolerance, so that it takes all of its products.

    Its default call is the same run up to where its own rule stops it.
    """
    return _recorded(
        case, note, lambda own: own.eigenvalues(maxIter=MOST_PRODUCTS, tol=0.0)
    )


def trace(case: Case, note: Note) -> Found:
    """Its default call."""
    return _recorded(case, note, lambda own: own.trace())


def _recorded(case: Case, note: Note, call: Any) -> Found:
    """vᵀHv of each product, and the seconds since the call when it was known."""
    own: Any = peers.pyhessian(case.model, case.batches)
    if own is None:
        raise RuntimeError("PyHessian is not installed")
    multiply = own.dataloader_hv_product
    values: list[float] = []
    seconds: list[float] = []

    def product(vector: Any) -> Any:
        value, image = multiply(vector)
        values.append(value)
        seconds.append(time.perf_counter() - started)
        if len(values) % 10 == 0:
            note({"values": values, "seconds": seconds})
        return value, image

    own.dataloader_hv_product = product
    peers.global_precision(case.precision == "tf32")
    # It differentiates twice, which fused attention does not allow.
    with peers.seeded(0), sdpa_kernel(SDPBackend.MATH):
        started = time.perf_counter()
        call(own)
    peers.global_precision(False)
    return {"values": values, "seconds": seconds}
