"""What the measures of one run share, so that no work is done twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from flatgauge.curvature.hessian import Hessian
from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.deadline import OutOfTime
from flatgauge.diagonals.diagonal import (
    Diagonal,
    can_be_exact,
    choose_gauss_newton_method,
    choose_method,
    gauss_newton_diagonal,
    hessian_diagonal,
    hutchinson_diagonals,
    lost_digits,
    output_layout,
)
from flatgauge.diagonals.hutchinson import block_traces
from flatgauge.draws import while_time_lasts
from flatgauge.errors import OptionError
from flatgauge.geometry.connection import LeviCivita
from flatgauge.geometry.metric import resolve_metric
from flatgauge.losses import NormalizedCrossEntropy
from flatgauge.measures.curvatures import Curvature, combined
from flatgauge.measures.forgetting import forget_vectors
from flatgauge.measures.registry import NORMALIZED_LOSS
from flatgauge.measures.traces import Traces
from flatgauge.memo import Facts, once
from flatgauge.objective import Objective
from flatgauge.output_layer import output_layer
from flatgauge.results import Status
from flatgauge.shards import number
from flatgauge.solvers.lanczos import Extremes, largest_eigenvalue
from flatgauge.symmetry import Group, symmetries
from flatgauge.symmetry.maps import output
from flatgauge.uses import Matrices, Uses, uses_of
from flatgauge.vectors import Params, dealt_like

REPLICATES = 5
# About what the spectral norms of the default set take together.
EXPECTED_PRODUCTS = 60
EXACT_METHODS = ("exact", "basis")


class NotApplicable(Exception):
    """Raised by a measure that is not defined here; the text is the reason."""


class Workbench:
    """One objective, one seed, and what was computed already: see `flatgauge.memo`."""

    def __init__(self, objective: Objective, seed: int = 0):
        self.objective = objective
        self.seed = seed
        # Whether plans may look at the model, which takes some gradients.
        self.may_look = True
        self.facts: Facts = {}
        self._operators: list[Hessian] = []

    @once
    def whole(self) -> Workbench:
        """The workbench of the whole objective, which counts here, too."""
        if not self.objective.sharded:
            return self
        other = Workbench(self.objective.whole(), self.seed)
        other.may_look, other._operators = self.may_look, self._operators
        return other

    @property
    def products(self) -> int:
        """Hessian products so far."""
        return sum(operator.products for operator in self._operators)

    def counts(self) -> list[int]:
        """Hessian products so far, by operator."""
        return [operator.products for operator in self._operators]

    def routes_since(self, counts: list[int]) -> dict[str, Any]:
        """By loss: the last route of each Hessian that was multiplied since, and others."""
        found = {}
        new = [0] * (len(self._operators) - len(counts))
        for operator, before in zip(self._operators, [*counts, *new], strict=True):
            if operator.products > before and operator.planned is not None:
                found[operator.objective.loss.name] = operator.planned.to_dict()
        return {"routes": found} if found else {}

    @once
    def surrogate(self, choice: str) -> Objective:
        """The objective that a surrogate names.

        "auto" takes the normalized cross-entropy for a classification with three
        classes or more, whose value no rescaling of the outputs can change;
        "objective" takes the objective's own loss.
        """
        if choice not in ("auto", "objective"):
            raise OptionError(f"surrogate= is '{choice}': use 'auto' or 'objective'.")
        loss = self.objective.loss
        if choice == "objective" or loss.name == NORMALIZED_LOSS:
            return self.objective
        if not loss.classification or output_layout(self.objective)[0] < 3:
            return self.objective
        return self.objective.with_loss(NormalizedCrossEntropy(loss.ignored))

    def hessian(self, objective: Objective) -> Hessian:
        """The Hessian, whose prepared batches serve every measure.

        Others give up theirs where there is no room for both, and so do vectors of
        earlier measures.
        """
        forget_vectors(self.facts, self.objective)
        found = self._hessian(objective)
        for other in self._operators:
            if other is not found:
                other.make_room()
        return found

    @once
    def _hessian(self, objective: Objective) -> Hessian:
        hessian = Hessian(objective, expect=EXPECTED_PRODUCTS)
        self._operators.append(hessian)
        return hessian

    @once
    def gradient(self, objective: Objective) -> Params:
        """∇L under that objective's loss."""
        return objective.gradient()

    def uses(self) -> Uses:
        """What the parameters are used as."""
        objective = self.objective
        return uses_of(objective.whole() if objective.fits_whole else objective)

    def matrices(self) -> dict[str, Matrices]:
        """The parameters that are used as matrices.

        Raises:
            NotApplicable: if there are none.
        """
        found = self.uses()
        if not found.matrices:
            reason = f"the model uses no parameter as a matrix. {found.note}"
            raise NotApplicable(reason.strip())
        return found.matrices

    @once
    def point(self, center_output: bool) -> Params:
        """θ, with the mean over classes taken out of the output layer if that is wanted.

        Adding the same number to all class scores changes no softmax, but it changes the
        norms of the layer that makes them; centring fixes that freedom.
        """
        point = self.objective.parameters
        if not center_output:
            return point
        whole = self.objective.whole()
        axes = output_layer(whole)
        if not axes:
            raise NotApplicable(
                "center_output=True is for classifiers with a layer whose shift moves all "
                "class scores alike, and found none."
            )
        centered = output.center_output(whole.parameters, axes)
        return dealt_like(centered, point)

    @once
    def group(self) -> Group:
        """The rescalings of the parameters that the Hessian can see."""
        return symmetries(self.objective.whole(), batchnorm="parameters")

    def vertical(self, kind: str) -> Sequence[Params]:
        """The directions along the orbit of one kind of rescaling."""
        return self.group().vertical(self.objective.parameters, kind)

    def exact_diagonal(self, objective: Objective) -> Curvature | None:
        """diag(H) where it can be had exactly, else None."""
        if not can_be_exact(objective):
            return None
        return self.diagonal(objective, "hessian", probes=0)

    def diagonal(self, objective: Objective, curvature: str, probes: int) -> Curvature:
        """diag(H) for curvature="hessian", diag(G) for "ggn"."""
        if self.method(objective, curvature) in EXACT_METHODS:
            # One result for all numbers of probes.
            probes = 0
        return self._diagonal(objective, curvature, probes)

    @once
    def _diagonal(self, objective: Objective, curvature: str, probes: int) -> Curvature:
        method = self.method(objective, curvature)
        if objective.sharded and objective.fits_whole and method != "hutchinson":
            whole = self._diagonal(objective.whole(), curvature, probes)
            return whole.cut(objective.parameters)
        each = max(2, probes // REPLICATES)
        seeds = range(REPLICATES * self.seed, REPLICATES * (self.seed + 1))

        def compute(seed: int) -> Diagonal:
            if curvature == "ggn":
                return gauss_newton_diagonal(objective, method, probes=each, seed=seed)
            hessian = self.hessian(objective)
            return hessian_diagonal(
                objective, method, probes=each, seed=seed, hessian=hessian
            )

        if method in EXACT_METHODS:
            return combined([compute(self.seed)])
        if method == "hutchinson":
            hessian = self.hessian(objective)
            return combined(*hutchinson_diagonals(hessian, each, seeds))
        return combined(*while_time_lasts(map(compute, seeds)))

    def traces(self, objective: Objective, curvature: str, probes: int) -> Traces:
        """The trace of every tensor's block, for measures that need no more.

        Where the Hessian's diagonal is estimated entry by entry, sums of its entries
        have far more noise than traces that are estimated as such.
        """
        method = self.method(objective, curvature)
        if method == "hutchinson":
            samples, stop = self._block_traces(objective, probes)
            why = "" if stop is None else stop.after_products(len(samples))
            return Traces.averaged(samples, method, why or lost_digits(objective))
        diagonal = self.diagonal(objective, curvature, probes)
        sums = [tensor_sums(one) for one in [diagonal.mean, *diagonal.replicates]]
        if len(sums) > 1:
            ended = diagonal.status is Status.NOT_CONVERGED
            return Traces.averaged(sums[1:], method, diagonal.message if ended else "")
        found = Traces(sums[0], [], method, diagonal.status, diagonal.message)
        if diagonal.rounding is None:
            return found
        noise = {
            name: number(r.double().norm()) for name, r in diagonal.rounding.items()
        }
        return replace(found, rounding=tensor_sums(diagonal.rounding), noise=noise)

    @once
    def _block_traces(
        self, objective: Objective, probes: int
    ) -> tuple[list[dict[str, float]], OutOfTime | None]:
        return block_traces(self.hessian(objective), probes, self.seed)

    def tensor_means(
        self, objective: Objective, curvature: str, probes: int
    ) -> Curvature:
        """The diagonal for measures that sum it over tensors.

        Where it is estimated, every entry is the mean of its tensor's.
        """
        traces = self.traces(objective, curvature, probes)
        if not traces.samples:
            return self.diagonal(objective, curvature, probes)
        mean = {
            name: torch.full_like(tensor, traces.mean[name] / tensor.numel())
            for name, tensor in objective.parameters.items()
        }
        return Curvature(mean, [], traces.method, traces.status, traces.message)

    @once
    def method(self, objective: Objective, curvature: str) -> str:
        """How the diagonal is best computed for this objective."""
        choices = {"hessian": choose_method, "ggn": choose_gauss_newton_method}
        if curvature not in choices:
            raise OptionError(f"curvature= is '{curvature}': use 'hessian' or 'ggn'.")
        return choices[curvature](objective)

    @once
    def extremes(
        self,
        objective: Objective,
        metric: str,
        *,
        connection: str = "flat",
        point: Params | None = None,
        tol: float,
        max_steps: int,
        both: bool = False,
    ) -> Extremes:
        """The largest eigenvalue of S H S, and the smallest from the same run.

        Args:
            objective: whose Hessian.
            metric: "euclidean", "layer" or "node".
            connection: "flat" or "levi-civita".
            point: where the metric is taken; the objective's own point if None.
            tol: the relative residual of the largest.
            max_steps: the most products.
            both: whether the smallest must meet the tolerance too.
        """
        operator = self.whitened(objective, metric, connection, point)
        return largest_eigenvalue(operator, tol, max_steps, self.seed, both)

    def whitened(
        self, objective: Objective, metric: str, connection: str, point: Params | None
    ) -> SymmetricOperator:
        """The Riemannian Hessian in whitened coordinates."""
        chosen = resolve_metric(metric)
        hessian = self.hessian(objective)
        if hessian.reads_matrix:
            hessian.as_matrix(instead_of=EXPECTED_PRODUCTS)
        where = objective.parameters if point is None else point
        if connection == "flat":
            return chosen.whiten(hessian, where)
        if connection == "levi-civita":
            return LeviCivita(hessian, chosen, where, self.gradient(objective))
        raise OptionError(
            f"connection= is '{connection}': use 'flat' or 'levi-civita'."
        )


def tensor_sums(diagonal: Params) -> dict[str, float]:
    """The sum over each tensor, in float64."""
    return {name: number(h.double().sum()) for name, h in diagonal.items()}
