"""Recurrent layers: one linear map of the input and one of the state, at every step.

The state has one scale over all steps, and is its own input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flatgauge.symmetry.labels import Scale, unscaled
from flatgauge.symmetry.rules.contraction import add_bias, contract
from flatgauge.symmetry.rules.registry import scale_rule
from flatgauge.symmetry.site import Integers, Site


@dataclass(frozen=True)
class _Call:
    """The arguments that a recurrent layer has in all of its forms."""

    x: Scale
    state: Any
    weights: Sequence[Scale]
    biases: bool
    layers: int
    directions: int

    @classmethod
    def of(cls, arguments: Sequence[Any]) -> _Call:
        """Of a plain sequence, or of a packed one, which has its lengths second."""
        if isinstance(arguments[1], Integers):
            arguments = [arguments[0], *arguments[2:]]
        x, state, weights, biases, layers, _dropout, _train, both = arguments[:8]
        return cls(x, state, weights, biases, layers, 1 + both)

    def cells(self) -> list[Sequence[Scale]]:
        """The tensors of each layer and direction, in order."""
        each = len(self.weights) // (self.layers * self.directions)
        return [
            self.weights[start : start + each]
            for start in range(0, len(self.weights), each)
        ]


def _entries(site: Site, x: Scale) -> Scale:
    """The scales of the last dimension, [n], the same everywhere."""
    common = site.uniform(x, range(len(x.shape) - 1))
    return common.reshape([x.shape[-1]])


def _joined(site: Site, parts: Sequence[Scale]) -> Scale:
    """The scales of both directions, one after the other, [n]."""
    if len(parts) == 1:
        return parts[0]
    single = [site.system.collapse(part) for part in parts]
    labels = torch.cat([part.terms[0][1] for part in single])
    return Scale(labels.shape, ((1.0, labels),), any(part.zeros for part in single))


def _walk(site: Site, call: _Call, step: Any) -> tuple[Scale, list[Scale]]:
    """The scales of the last layer's outputs, and of every cell's state."""
    x, states = _entries(site, call.x), []
    cells = call.cells()
    for start in range(0, len(cells), call.directions):
        states += [step(x, cell) for cell in cells[start : start + call.directions]]
        x = _joined(site, states[-call.directions :])
    return x, states


def _final(site: Site, states: Sequence[Scale], given: Scale) -> Scale:
    """Every state starts from the given one, and ends as one of its kind."""
    found = []
    for index, state in enumerate(states):
        begin = given.map(lambda labels, i=index: labels.narrow(0, i, 1))
        site.equal(_entries(site, begin), state)
        shape = torch.Size([1, *given.shape[1:-1], state.shape[-1]])
        found.append(site.system.collapse(state.expand(shape)))
    labels = torch.cat([one.terms[0][1] for one in found])
    return Scale(labels.shape, ((1.0, labels),), any(one.zeros for one in found))


def _as_recorded(site: Site, finals: list[Scale]) -> Iterator[Scale]:
    """Final states in the shapes of the graph: torch 2.11's has a dimension of 1 too many."""
    for final, output in zip(finals, site.node.outputs[1:], strict=True):
        yield final if output is None else final.reshape(output.shape)


@scale_rule("aten::rnn_relu", "aten::rnn_tanh")
def simple(site: Site, *arguments: Any) -> Any:
    """The layer h ← f(W x + b + U h + c); tanh fixes what it is applied to."""
    call = _Call.of(arguments)

    def step(x: Scale, cell: Sequence[Scale]) -> Scale:
        own, again, *biases = cell
        state = contract(site, "Z,YZ->Y", x, own).expand([own.shape[0]])
        for bias in biases:
            state = add_bias(site, state, bias)
        if site.node.name == "aten::rnn_tanh":
            state = site.pin(state, "a nonlinearity with a scale of its own")
        site.equal(state, contract(site, "Z,YZ->Y", state, again))
        return state

    x, states = _walk(site, call, step)
    return x.expand(site.shape), _final(site, states, call.state)


@scale_rule("aten::lstm", "aten::gru")
def gated(site: Site, *arguments: Any) -> Any:
    """Gates fix the scales of all sums; a projection makes the state's its own."""
    call = _Call.of(arguments)
    plain = 4 if call.biases else 2

    def step(x: Scale, cell: Sequence[Scale]) -> Scale:
        own, again = cell[:2]
        rows = [own.shape[0]]
        state = unscaled([again.shape[1]])
        if len(cell) > plain:
            bounded = unscaled([cell[-1].shape[1]])
            state = contract(site, "Z,YZ->Y", bounded, cell[-1])
            state = state.expand([again.shape[1]])
        for entries, matrix in ((x, own), (state, again)):
            total = contract(site, "Z,YZ->Y", entries, matrix).expand(rows)
            site.pin(total, "a gate with a scale of its own")
        for bias in cell[2:plain]:
            site.pin(bias, "a gate with a scale of its own")
        return state

    x, states = _walk(site, call, step)
    given = call.state if isinstance(call.state, list | tuple) else [call.state]
    finals = [_final(site, states, given[0])]
    for inner in given[1:]:
        bounded = [unscaled(inner.shape[-1:]) for _ in states]
        finals.append(_final(site, bounded, inner))
    return x.expand(site.shape), *_as_recorded(site, finals)


@scale_rule("aten::bilinear")
def bilinear(
    site: Site, left: Scale, right: Scale, weight: Scale, bias: Scale | None = None
) -> Scale:
    """The sums Σ_ij x_i W_oij y_j + b_o."""
    half = contract(site, "X,YXZ->YZ", _entries(site, left), weight)
    whole = contract(site, "Z,YZ->Y", _entries(site, right), half)
    return add_bias(site, whole.expand([weight.shape[0]]), bias).expand(site.shape)


@scale_rule("aten::_trilinear")
def trilinear(
    site: Site, first: Scale, second: Scale, third: Scale, *dims: Any, **_: Any
) -> Scale:
    """The sum over some dimensions of a product whose factors lack others."""
    *missing, summed = dims[:4]
    total = unscaled(())
    for factor, places in zip((first, second, third), missing, strict=True):
        shape = list(factor.shape)
        for place in sorted(places):
            shape.insert(place, 1)
        total = total + factor.reshape(shape)
    return site.uniform(total, summed).reshape(site.shape)
