"""Sharpness in units of each tensor's own norm."""

from __future__ import annotations

from flatgauge.measures import effort
from flatgauge.measures.curvatures import shown
from flatgauge.measures.options import Count, DiagonalOf, Surrogate
from flatgauge.measures.registry import Outcome, measure, output_claims
from flatgauge.measures.workbench import Workbench
from flatgauge.shards import number
from flatgauge.vocabulary import RENAMINGS, Kind


def _claims(options, loss: str) -> set[Kind]:
    claims = {Kind.LAYER_RESCALE, *RENAMINGS, Kind.BRANCH_SPLIT}
    return claims | output_claims(options, loss)


@measure(
    name="matrix-normalized-sharpness",
    title="Matrix-normalized sharpness",
    formula="Σ_l ‖W_l‖_F √max(Σ_i h_i, 0), h = diag ∇²L, over tensors l",
    reference="Tsuzuku et al. 2019, equation (13)",
    invariant_to=_claims,
    flatter="smaller",
    cost="one diagonal of the Hessian",
    effort=effort.of_sharpness,
    on_shards=True,
)
def matrix_normalized_sharpness(
    work: Workbench,
    *,
    surrogate: Surrogate = "auto",
    curvature: DiagonalOf = "hessian",
    probes: Count = 30,
    center_output: bool = False,
) -> Outcome:
    """A tensor's curvatures are summed first and clipped at 0 then; biases count.

    Where the diagonal cannot be had exactly, the traces of the tensors' blocks are
    estimated themselves, without bias, and not as sums of estimated entries.

    Args:
        work: what the measures share.
        surrogate: "auto" (the normalized cross-entropy for three classes or more) or
            "objective".
        curvature: "hessian", or "ggn" for the Gauss-Newton diagonal.
        probes: random vectors, where the traces must be estimated.
        center_output: take the mean over classes out of the output layer first.
    """
    objective = work.surrogate(surrogate)
    traces = work.traces(objective, curvature, probes)
    point = work.point(center_output)
    norms = {name: number(tensor.double().norm()) for name, tensor in point.items()}
    found = traces.root_sum(norms)
    message = traces.message
    if found.vanishing:
        remedy = (
            "told from zero, and the uncertainty holds what their roots may be: raise "
            "probes="
            if traces.samples
            else "told from zero by rounding and count as 0; the error bound holds what "
            "their roots may be"
        )
        message += (
            f" The traces of {len(found.vanishing)} tensors (see the details) cannot be "
            f"{remedy}."
        )
    caution = {}
    if all(traces.mean[name] < 0 for name, norm in norms.items() if norm):
        caution["caution"] = (
            "the trace of every tensor is negative here and was clipped to 0, so that this "
            "0 says nothing about flatness: train further, or use curvature='ggn'."
        )
    error = found.error
    if error is not None and not traces.samples:
        error = shown(error, found.value, objective.dtype)
    return Outcome(
        found.value,
        traces.status,
        message,
        error,
        {
            "layers": found.layers,
            "weights_only": sum(
                v for n, v in found.layers.items() if point[n].ndim >= 2
            ),
            "clipped_tensors": [n for n, trace in traces.mean.items() if trace < 0],
            "vanishing_tensors": found.vanishing,
            "method": traces.method,
            **caution,
        },
        objective.loss.name,
    )
