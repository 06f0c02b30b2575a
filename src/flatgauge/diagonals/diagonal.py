"""The diagonal of the Hessian: exact where that is possible, honest where it is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flatgauge.curvature.curvature_operator import finer
from flatgauge.curvature.hessian import Hessian, loss_rounding
from flatgauge.curvature.operator import rounding_of
from flatgauge.deadline import OutOfTime
from flatgauge.diagonals.exact import basis_diagonal, exact_diagonal
from flatgauge.diagonals.finite_difference import finite_difference_diagonal
from flatgauge.diagonals.hutchinson import hutchinson
from flatgauge.diagonals.output_probes import probe_diagonal
from flatgauge.diagonals.per_sample import samples_stand_alone
from flatgauge.errors import ModelError, OptionError
from flatgauge.losses import RowLoss, row_loss
from flatgauge.memo import once
from flatgauge.objective import Objective
from flatgauge.piecewise.affine import is_affine_in_each_tensor
from flatgauge.results import Status
from flatgauge.vectors import Params, check_finite, dealt_like, map_tensors, size

CLIPPED = (
    "Each entry is unbiased, but clipping negative entries inflates sums: use "
    "curvature='ggn' or fewer parameters for an exact diagonal."
)
METHODS = ("auto", "exact", "probes", "hutchinson", "finite-difference", "basis")
# Backward passes up to which the exact diagonal is preferred to random probes.
EXACT_PASSES = 128
# Parameters up to which one product for each of them is affordable.
BASIS_PARAMETERS = 4096
# The rounding of a loss, relative to its size, that is not worth a word, and the one
# that leaves nothing to call exact.
SLIGHT, ROUGH = 1e-6, 1e-3


@dataclass(frozen=True)
class Diagonal:
    """diag(H), or diag(G) for the Gauss-Newton matrix.

    `uncertainty` holds a standard error for each entry of a random estimate. It is None
    for an exact one, unless the loss rounds its own second derivatives: then it is what
    that can amount to. `method` is the one that was used.

    Raises:
        NonFiniteError: if a value is NaN or infinite.
    """

    values: Params
    uncertainty: Params | None
    method: str
    exact: bool
    status: Status
    message: str
    rounding: Params | None = None

    def __post_init__(self) -> None:
        check_finite(self.values, "diagonal of the curvature")


def hessian_diagonal(
    objective: Objective,
    method: str = "auto",
    *,
    probes: int = 30,
    seed: int = 0,
    scale_probes: bool = True,
    relative_step: float = 1e-2,
    hessian: Hessian | None = None,
) -> Diagonal:
    """The diagonal h = diag(∇²L).

    For networks that are piecewise affine in each parameter tensor, h is the diagonal
    of the Gauss-Newton matrix, h = (1/N) Σ_rows Σ_k s_k (Jᵀ c_k)² with ∇²_f ℓ =
    Σ_k s_k c_k c_kᵀ: exact with one backward pass for each of the K outputs. The
    precondition is checked on the model at hand.

    Args:
        objective: model, data, loss and the point.
        method: "exact" (as above); "probes" (the same from random vectors in output
            space, for many outputs); "basis" (one Hessian product per parameter, exact
            for every network); "hutchinson" (ε ∘ H ε with random signs); the
            "finite-difference" estimator of Tsuzuku et al. 2019, Algorithm 1; or
            "auto": exact where it applies and is affordable; basis for few parameters;
            probes for a piecewise-affine network; else hutchinson.
        probes: random vectors of the three estimators.
        seed: for the random vectors.
        scale_probes: for "hutchinson": scale them by |W|, so that rescaling the
            network rescales the estimate.
        relative_step: for "finite-difference": the step in units of each tensor's
            root mean square; it is part of that estimator's definition.
        hessian: of the same objective, for "basis" and "hutchinson": what it has
            prepared serves again, and it counts the products.

    Returns:
        A `Diagonal`.

    Raises:
        ModelError: if "exact" or "probes" is asked for where it is not diag(H).
    """
    if method not in METHODS:
        known = ", ".join(f"'{name}'" for name in METHODS)
        raise OptionError(f"the method '{method}' is not known: use {known}.")
    _check_probes(probes)
    given = method
    if method == "auto":
        method = choose_method(objective)
    on_shards = method == "hutchinson" or (
        method == "basis" and not objective.fits_whole
    )
    if objective.sharded and not on_shards:
        # Gradients of single samples would be added up over processes.
        options = {"probes": probes, "seed": seed, "relative_step": relative_step}
        whole = hessian_diagonal(objective.whole(), method, **options)
        return _cut(whole, objective.parameters)
    if given in ("exact", "probes") and not _gauss_newton_is_exact(objective):
        raise ModelError(
            f"method='{method}' gives the Gauss-Newton diagonal, which is not the "
            "Hessian's for this network and loss: use method='auto', or "
            "gauss_newton_diagonal."
        )
    if hessian is not None and hessian.objective is not objective:
        raise OptionError("hessian= is of another objective: build it from this one.")
    if method in ("exact", "probes"):
        return _gauss_newton(objective, method, probes, seed)
    if method == "basis":
        if hessian is None:
            hessian = Hessian(objective, expect=size(objective.parameters))
        values, rounding = basis_diagonal(hessian)
        return replace(_exact(values, method, objective), rounding=rounding)
    if method == "hutchinson":
        if hessian is None:
            hessian = Hessian(objective, expect=probes)
        (moments,), stop = hutchinson(hessian, probes, [seed], scale_probes)
        if stop is not None:
            raise stop
        estimate = moments.estimate()
    else:
        estimate = finite_difference_diagonal(objective, probes, seed, relative_step)
    return Diagonal(*estimate, method, False, *_estimated(objective))


def hutchinson_diagonals(
    hessian: Hessian, probes: int, seeds: Sequence[int]
) -> tuple[list[Diagonal], OutOfTime | None]:
    """Independent estimates by method="hutchinson", without standard errors.

    Those that have no probe when time runs out are left out.
    """
    found, stop = hutchinson(hessian, probes, seeds, scaled=True)
    parts = (None, "hutchinson", False, *_estimated(hessian.objective))
    return [Diagonal(one.mean, *parts) for one in found if one.count], stop


def gauss_newton_diagonal(
    objective: Objective, method: str = "auto", *, probes: int = 30, seed: int = 0
) -> Diagonal:
    """diag(G) of the Gauss-Newton matrix, for any network.

    Args:
        objective: model, data, a named loss and the point.
        method: "exact", "probes", or "auto" (exact up to 128 backward passes per batch).
        probes: random vectors for "probes".
        seed: for the random vectors.
    """
    if method not in ("auto", "exact", "probes"):
        raise OptionError(
            f"the method '{method}' is not known: use 'auto', 'exact', 'probes'."
        )
    _check_probes(probes)
    if objective.sharded:
        whole = objective.whole()
        found = gauss_newton_diagonal(whole, method, probes=probes, seed=seed)
        return _cut(found, objective.parameters)
    if method == "auto":
        method = choose_gauss_newton_method(objective)
    return _gauss_newton(objective, method, probes, seed)


def choose_gauss_newton_method(objective: Objective) -> str:
    """What method="auto" means for the Gauss-Newton diagonal of this objective."""
    objective = objective.whole()
    few = backward_passes(objective) <= EXACT_PASSES
    return "exact" if few and samples_stand_alone(objective) else "probes"


def can_be_exact(objective: Objective) -> bool:
    """Whether the diagonal of the Hessian can be had without estimates at a fair price."""
    if size(objective.parameters) <= BASIS_PARAMETERS:
        return True
    if not objective.fits_whole:
        return False
    objective = objective.whole()
    named = isinstance(objective.loss, RowLoss)
    few = named and backward_passes(objective) <= EXACT_PASSES
    return few and choose_method(objective) == "exact"


def choose_method(objective: Objective) -> str:
    """What method="auto" means for this objective.

    Of sharded parameters that do not fit whole, only products can be had.
    """
    few = size(objective.parameters) <= BASIS_PARAMETERS
    if not objective.fits_whole:
        return "basis" if few else "hutchinson"
    objective = objective.whole()
    affine = _gauss_newton_is_exact(objective)
    if affine and choose_gauss_newton_method(objective) == "exact":
        return "exact"
    if few:
        return "basis"
    return "probes" if affine else "hutchinson"


def _check_probes(probes: int) -> None:
    if probes < 2:
        raise OptionError(f"probes= is {probes}: give at least 2.")


def _gauss_newton_is_exact(objective: Objective) -> bool:
    return isinstance(objective.loss, RowLoss) and is_affine_in_each_tensor(objective)


def backward_passes(objective: Objective) -> int:
    """Backward passes per batch: outputs times the rows of one sample."""
    return math.prod(output_layout(objective))


@once
def output_layout(objective: Objective) -> tuple[int, int]:
    """The number of outputs of a row, and of rows of a sample, on the first batch."""
    loss = row_loss(objective.loss, "the Gauss-Newton diagonal needs")
    with objective.isolated():
        batch = objective.first_batch()
        rows = objective.ranks.together(
            lambda: loss.rows(*objective.evaluate(objective.parameters, batch))
        )
    longest = int(rows.samples.bincount().max()) if rows.samples.numel() else 0
    return rows.outputs.shape[1], longest


def _gauss_newton(
    objective: Objective, method: str, probes: int, seed: int
) -> Diagonal:
    if method == "exact":
        return _exact(exact_diagonal(objective), method, objective)
    estimate = probe_diagonal(objective, probes, seed)
    message = "Unbiased, with a standard error per entry that falls as 1/√probes."
    return Diagonal(*estimate, method, False, Status.ESTIMATED, message)


def _cut(found: Diagonal, space: Params) -> Diagonal:
    """The same, sharded as a space is."""

    def dealt(part: Params | None) -> Params | None:
        return None if part is None else dealt_like(part, space)

    uncertainty, rounding = dealt(found.uncertainty), dealt(found.rounding)
    values = dealt_like(found.values, space)
    return replace(found, values=values, uncertainty=uncertainty, rounding=rounding)


def _exact(values: Params, method: str, objective: Objective) -> Diagonal:
    rounding = loss_rounding(objective)
    if rounding <= max(SLIGHT, rounding_of(objective.dtype)):
        return Diagonal(values, None, method, True, Status.EXACT, Status.EXACT.value)
    uncertainty = map_tensors(lambda h: rounding * h.abs(), values)
    message = _rounded(objective, rounding)
    status = Status.EXACT if rounding <= ROUGH else Status.NOT_CONVERGED
    return Diagonal(values, uncertainty, method, True, status, message)


def lost_digits(objective: Objective) -> str:
    """What is said of estimates of which a user's loss loses too much; "" of others."""
    rounding = loss_rounding(objective)
    return "" if rounding <= ROUGH else _rounded(objective, rounding)


def _estimated(objective: Objective) -> tuple[Status, str]:
    """The status and the message of random estimates of a Hessian's diagonal."""
    lost = lost_digits(objective)
    return (Status.NOT_CONVERGED, lost) if lost else (Status.BIASED, CLIPPED)


def _rounded(objective: Objective, rounding: float) -> str:
    return (
        f"The loss '{objective.loss.name}' rounds its own second derivatives by "
        f"{rounding:.1e} of their size: {finer(objective)}."
    )
