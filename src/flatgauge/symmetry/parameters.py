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

from flatgauge.symmetry.graph import Graph, Node, Value
from flatgauge.symmetry.labels import Scale, settle, unscaled
from flatgauge.symmetry.rules.contraction import CONTRACTIONS
from flatgauge.symmetry.rules.normalization import BATCH_NORMS
from flatgauge.symmetry.site import Findings, Pin
from flatgauge.symmetry.system import ZERO, Gauge, System
from flatgauge.uses import Matrices
from flatgauge.uses.matrices import regular

MOST_ENTRIES = 2**20
"""Contracted parameters with more entries than this are not scaled entry by entry."""
STATISTICS_END = {"parameters": 3, "eval-only": 4, "joint": 5, "eps-corrected": 5}
"""By variant: where those arguments of a batch norm end, from 3, that may be rescaled."""


def parameter_scales(
    graph: Graph,
    system: System,
    fixed: Mapping[str, str],
    used: Mapping[str, Matrices],
    findings: Findings,
) -> dict[str, Scale]:
    """Variables for every parameter but those that `fixed` gives a reason for."""
    scales: dict[str, Scale] = {}
    for name, value in graph.parameters.items():
        if name in fixed:
            scales[name] = unscaled(value.shape)
            continue
        if name in used:
            scales[name] = _used(name, value.shape, used[name], system)
            continue
        large = value.shape.numel() > MOST_ENTRIES
        reader = _reader(graph, value) if large else None
        if reader is not None:
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
    movable: set[Value] = set()
    for node in graph.nodes:
        if node.name in BATCH_NORMS:
            statistics = node.args[3 : STATISTICS_END[batchnorm]]
            movable.update(value for value in statistics if value is not None)
    return {
        name: _elements(value.shape, system)
        for name, value in graph.buffers.items()
        if value in movable and name not in fixed
    }


def _reader(graph: Graph, value: Value) -> Node | None:
    """The first contraction, else look-up, of what is computed from a parameter alone."""
    constant = {*graph.parameters.values(), *graph.constants}
    own, table = {value}, None
    for node in graph.nodes:
        inputs = node.inputs
        reads = not own.isdisjoint(inputs)
        if reads and node.name in CONTRACTIONS:
            return node
        if reads and node.name == "aten::embedding":
            table = table or node
        if constant.issuperset(inputs):
            made = {output for output in node.outputs if output is not None}
            constant |= made
            own |= made if reads else set()
    return table


def _used(name: str, shape: torch.Size, used: Matrices, system: System) -> Scale:
    """Row and column variables for each matrix, and one for each entry in none."""
    plain = len(shape) == 2 and used.parts[0].key == regular(*shape).parts[0].key
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
