"""The product of the layers' spectral norms, as a logarithm."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.measures import effort
from flatgauge.measures.registry import Outcome, measure
from flatgauge.measures.workbench import NotApplicable, Workbench
from flatgauge.results import Status
from flatgauge.shards import joined
from flatgauge.vocabulary import RENAMINGS, Kind


@measure(
    name="spectral-norm-product",
    title="Product of spectral norms (logarithm)",
    formula="Σ_l ln ‖W_l‖₂",
    reference="Tsuzuku et al. 2019, section 5.1, on why matrix norms do not suffice",
    invariant_to=lambda options, loss: {*RENAMINGS, Kind.STREAM_ROTATION},
    flatter="smaller",
    cost="one singular value a matrix; no data",
    effort=effort.of_spectral_norms,
    logarithmic=True,
    on_shards=True,
)
def spectral_norm_product(work: Workbench) -> Outcome:
    """Over all matrices that parameters are used as; kernels as [out, in × positions].

    The details give Frobenius norm, spectral norm and stable rank of each.
    """
    layers = {}
    for name, used in work.matrices().items():
        tensor = joined(work.objective.parameters[name]).double()
        for index, part in enumerate(used.parts):
            matrix = part.of(tensor).flatten(1)
            deadline.check()
            spectral = _spectral_norm(matrix)
            frobenius = float(matrix.norm())
            label = name if len(used.parts) == 1 else f"{name}[{index}]"
            layers[label] = {
                "spectral": spectral,
                "frobenius": frobenius,
                "stable_rank": (frobenius / spectral) ** 2 if spectral else 0.0,
            }
    zero = [name for name, norms in layers.items() if norms["spectral"] == 0]
    if zero:
        raise NotApplicable(f"'{zero[0]}' is zero, so the product has no logarithm.")
    value = sum(math.log(norms["spectral"]) for norms in layers.values())
    return Outcome(value, Status.EXACT, Status.EXACT.value, details={"layers": layers})


def _spectral_norm(matrix: Tensor) -> float:
    """‖W‖₂ as the root of the largest eigenvalue of WᵀW or WWᵀ.

    Of the largest singular value that has all digits, and for a matrix with far more
    rows than columns it takes a small part of the time of a decomposition.
    """
    largest = float(matrix.abs().max()) if matrix.numel() else 0.0
    if largest == 0:
        return 0.0
    scaled = matrix / largest
    square = scaled @ scaled.T if len(matrix) < matrix[0].numel() else scaled.T @ scaled
    return largest * math.sqrt(float(torch.linalg.eigvalsh(square)[-1]))
