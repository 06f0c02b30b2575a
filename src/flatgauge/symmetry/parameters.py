"""How each parameter may be scaled: entry by entry, or by rows and columns.

A matrix that takes part in a contraction can only be scaled as W'[o, i] =
exp(a[o] - b[i]) W[o, i]: from A[m, k] + B[k, n] = C[m, n] for all k it follows that A
and B are sums of a function of the first and one of the second index. Shifting a and b
together changes nothing; this *gauge* is fixed at the first contraction. A parameter
that is used as several matrices has rows and columns for each. What is not used as
matrices is scaled entry by entry, which is always enough.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from flatgauge.symmetry.graph import Graph, Node, Value
from flatgauge.symmetry.labels import Scale, settle, unscaled
from flatgauge.symmetry.site import Findings, Pin
from flatgauge.symmetry.system import ZERO, Gauge, System
from flatgauge.uses import Matrices
from flatgauge.uses.matrices import regular

CONVOLUTIONS = {
    "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution",
    "aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d",
}  # fmt: skip
CONTRACTIONS = CONVOLUTIONS | {
    "aten::linear", "aten::addmm", "aten::mm", "aten::bmm", "aten::baddbmm",
    "aten::matmul", "aten::einsum", "aten::mv", "aten::dot", "aten::addmv", "aten::vdot",
}  # fmt: skip
MOST_ENTRIES = 2**20
"""Contracted parameters with more entries than this are not scaled entry by entry."""
BATCH_NORMS = {
    "aten::batch_norm", "aten::_native_batch_norm_legit_no_training",
    "aten::native_batch_norm", "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit_functional", "aten::cudnn_batch_norm",
}  # fmt: skip


def parameter_scales(
    graph: Graph,
    system: System,
    fixed: Mapping[str, str],
    used: Mapping[str, Matrices],
    findings: Findings,
) -> dict[str, Scale]:
    """Variables for every parameter but those that `fixed` gives a reason for."""
    derived = _parameter_values(graph)
    scales: dict[str, Scale] = {}
    for name, value in graph.parameters.items():
        if name in fixed:
            scales[name] = unscaled(value.shape)
            continue
        if name in used:
            scales[name] = _used(name, value.shape, used[name], system)
            continue
        reader = _first_reader(graph, value, derived)
        if reader is not None and value.shape.numel() > MOST_ENTRIES:
            reason = f"'{name}' is used as no matrix and too large to go entry by entry"
            findings.coarse[Pin(reader.name, reader.module, reason)] += 1
            scales[name] = _expanded(
                system.variables([1] * len(value.shape)), value.shape
            )
        else:
            scales[name] = _elements(value.shape, system)
    return scales


def buffer_scales(
    graph: Graph, system: System, batchnorm: str, fixed: Mapping[str, str]
) -> dict[str, Scale]:
    """Variables for the running statistics that the batch-norm variant may rescale."""
    means: set[Value] = set()
    variances: set[Value] = set()
    for node in graph.nodes:
        if node.name in BATCH_NORMS:
            means.update(v for v in node.args[3:4] if v is not None)
            variances.update(v for v in node.args[4:5] if v is not None)
    movable: set[Value] = set()
    if batchnorm != "parameters":
        movable |= means
    if batchnorm in ("joint", "eps-corrected"):
        movable |= variances
    return {
        name: _elements(value.shape, system)
        for name, value in graph.buffers.items()
        if value in movable and name not in fixed
    }


def fixed_tensors(graph: Graph, model: nn.Module) -> dict[str, str]:
    """Parameters and buffers that cannot be rescaled, with the reason."""
    reasons: dict[str, str] = {}
    for name, value in graph.parameters.items():
        if not value.floating:
            reasons[name] = "not a real floating tensor"
        elif value not in graph.uses:
            reasons[name] = "not used by the forward pass"
    spans = sorted(
        (tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, name)
        for walk in (model.named_parameters, model.named_buffers)
        for name, tensor in walk()
        if tensor.numel()
    )
    reach, owner = 0, ""
    for start, stop, name in spans:
        if start < reach:
            reasons[name] = reasons[owner] = "shares its memory with another tensor"
        if stop > reach:
            reach, owner = stop, name
    return reasons


def _parameter_values(graph: Graph) -> set[Value]:
    """Values computed from parameters and constants alone."""
    derived = {*graph.parameters.values(), *graph.constants}
    for node in graph.nodes:
        if all(value in derived for value in node.inputs):
            derived.update(value for value in node.outputs if value is not None)
    return derived


def _first_reader(graph: Graph, value: Value, derived: set[Value]) -> Node | None:
    """The contraction or table look-up that a parameter first takes part in."""
    stack, seen, table = [value], {value}, None
    while stack:
        for node in graph.uses.get(stack.pop(), []):
            if node.name in CONTRACTIONS:
                return node
            if node.name == "aten::embedding":
                table = node
            for output in node.outputs:
                if output in derived and output not in seen:
                    seen.add(output)
                    stack.append(output)
    return table


def _used(name: str, shape: torch.Size, used: Matrices, system: System) -> Scale:
    """Row and column variables for each matrix, and one for each entry in none."""
    plain = len(shape) == 2 and used.parts[0].key == regular(*shape).parts[0].key
    if plain and used.table:
        return _expanded(system.variables((1, shape[1])), shape)
    if plain:
        return _matrix(name, shape, system)
    first = torch.full((shape.numel(),), ZERO)
    second = torch.full((shape.numel(),), ZERO)
    first[used.rest] = system.variables((used.rest.numel(),))
    start = system.count
    for part in used.parts:
        entries = part.entries()
        rows, columns = entries.shape[:2]
        if not used.table:
            first[entries] = system.variables((rows, 1, 1)).expand(entries.shape)
        second[entries] = system.variables((1, columns, 1)).expand(entries.shape)
    if not used.table:
        system.open_gauges[name] = Gauge(len(used.parts), start, system.count)
    terms = tuple(
        (sign, settle(labels.reshape(shape)))
        for sign, labels in ((1.0, first), (-1.0, second))
    )
    return Scale(shape, terms, gauges=frozenset({name}))


def convolution_layout(node: Node) -> tuple[int, bool]:
    """The number of groups of a convolution, and whether it is transposed."""
    if node.name == "aten::convolution":
        return node.args[8], node.args[6]
    given = node.args[6] if len(node.args) > 6 else node.kwargs.get("groups", 1)
    return given, "transpose" in node.name


def _matrix(name: str, shape: torch.Size, system: System) -> Scale:
    start = system.count
    first, second = system.variables((shape[0], 1)), system.variables((1, shape[1]))
    system.open_gauges[name] = Gauge(1, start, system.count)
    terms = ((1.0, first.expand(shape)), (-1.0, second.expand(shape)))
    return Scale(shape, terms, gauges=frozenset({name}))


def _elements(shape: torch.Size, system: System) -> Scale:
    return _expanded(system.variables(shape), shape)


def _expanded(labels: torch.Tensor, shape: torch.Size) -> Scale:
    return Scale(shape, ((1.0, labels.expand(shape)),))
