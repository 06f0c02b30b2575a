"""Shifts of parameters that a layer norm or a softmax takes off again.

A layer norm subtracts the mean of what it reads, so the same amount may be added to all
coordinates of a stream that nothing but layer norms read: W + 1 vᵀ, b + s·1. A softmax does
not see what all its scores have in common, which is all that the bias of the keys makes.

What has no effect on these data alone is no shift: inputs are varied, too, and a bias is
one only where the weight beside it has an effect. Where a sequence has one position, or an
entry belongs to a word that does not occur, neither has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from flatgauge.data import Batch, map_batch
from flatgauge.errors import FlatgaugeError, SymmetryError
from flatgauge.memo import once
from flatgauge.objective import Objective
from flatgauge.symmetry.dimension import drawn_anew
from flatgauge.symmetry.discover import program_of
from flatgauge.symmetry.graph import Graph, Value, floating
from flatgauge.symmetry.linear_maps import CONVOLUTIONS
from flatgauge.vectors import Params, generator

POINTS = 12
"""Places at which derivatives must vanish: the network's own, and random ones. A ReLU that is
off on a handful of samples at one place is so at a few more, and not at all of these."""
ROUNDING = 1e4
"""Units in the last place that derivatives which cancel leave behind."""
VARIED = 0.3
"""Standard deviation of the logarithms by which inputs are varied: what is zero, infinite
or positive stays so."""
BIASED = {
    "aten::linear": (1, 2, 0), "aten::addmm": (2, 0, 1), "aten::layer_norm": (2, 3, 0),
    "aten::batch_norm": (1, 2, 0), "aten::group_norm": (2, 3, 0),
    **dict.fromkeys(CONVOLUTIONS, (1, 2, 0)),
}  # fmt: skip
"""Where operators have a weight and a bias, and the weight's axis over the bias's entries."""


@dataclass(frozen=True)
class AbsorbedShifts:
    """Directions along which parameters move without any effect.

    Attributes:
        along: Tensors, each with the dimensions along which the same may be added.
        idle: Vectors, each with a mask of the entries that have no effect at all.
    """

    along: dict[str, tuple[int, ...]]
    idle: dict[str, Tensor]

    def __bool__(self) -> bool:
        return bool(self.along or self.idle)

    def moved(self, params: Params, seed: int, spread: float) -> Params:
        """Random shifts, of `spread` times the size of each tensor's entries (or of 1)."""
        random, result = generator(seed), dict(params)
        for name in sorted({*self.along, *self.idle}):
            tensor = params[name]
            size = spread * float(tensor.square().mean().sqrt() or 1.0)
            for axis in self.along.get(name, ()):
                shape = [1 if d == axis else n for d, n in enumerate(tensor.shape)]
                result[name] = result[name] + size * _drawn(shape, random, tensor)
            if name in self.idle:
                step = size * _drawn(list(tensor.shape), random, tensor)
                result[name] = result[name] + step * self.idle[name].to(tensor)
        return result


def _drawn(shape: list[int], random: torch.Generator, like: Tensor) -> Tensor:
    return torch.randn(shape, generator=random, dtype=torch.float64).to(like)


@once
def absorbed_shifts(objective: Objective) -> AbsorbedShifts:
    """The shifts that leave the outputs as they are.

    Found by derivatives, which must vanish in these directions at the network's own
    parameters and on the data, and at random ones and on varied data.
    """
    try:
        weights = _weights(program_of(objective))
    except SymmetryError:
        return AbsorbedShifts({}, {})
    noise = ROUNDING * torch.finfo(objective.dtype).eps
    sums: dict[tuple[str, int], float] = {}
    largest: dict[str, Tensor] = {}
    found, seen = AbsorbedShifts({}, {}), 0
    for slopes in _slopes(objective):
        seen += 1
        scale = max(float(slope.abs().max()) for slope in slopes.values())
        for name, slope in slopes.items():
            share = slope.abs() / scale
            largest[name] = torch.maximum(largest.get(name, share), share)
            for axis in range(slope.ndim):
                if slope.shape[axis] > 1 and float(slope.abs().max()) > 0:
                    rest = slope.sum(axis).abs().max() / slope.abs().sum(axis).max()
                    sums[name, axis] = max(sums.get((name, axis), 0.0), float(rest))
        found = _within(noise, sums, largest, weights)
        if seen > 2 and not found:  # by then all that has an effect has shown it
            return found
    return found if seen == POINTS else AbsorbedShifts({}, {})


def _weights(graph: Graph) -> dict[str, tuple[str, int]]:
    """The weight beside each bias, and its axis that runs over the same entries."""
    names = {value: name for name, value in graph.parameters.items()}
    found = {}
    for node in graph.nodes:
        if node.name in BIASED:
            weight, bias, axis = BIASED[node.name]
            given = [*node.args, *[None] * 4]
            pair = [one if isinstance(one, Value) else None for one in given]
            if pair[weight] in names and pair[bias] in names:
                found[names[pair[bias]]] = (names[pair[weight]], axis)
    return found


def _within(
    noise: float,
    sums: dict[tuple[str, int], float],
    largest: dict[str, Tensor],
    weights: dict[str, tuple[str, int]],
) -> AbsorbedShifts:
    """What has had no effect but for noise, at all places so far."""
    live = {name for name, share in largest.items() if float(share.max()) > noise}
    along: dict[str, tuple[int, ...]] = {}
    for (name, axis), rest in sums.items():
        if name in live and rest <= noise:
            along[name] = (*along.get(name, ()), axis)
    idle = {}
    for name, (weight, axis) in weights.items():
        if name in largest and weight in largest and largest[name].ndim == 1:
            rows = largest[weight].movedim(axis, 0)
            beside = rows.reshape(len(rows), -1).amax(1)
            entries = (largest[name] <= noise) & (beside > noise)
            if bool(entries.any()):
                idle[name] = entries
    return AbsorbedShifts(along, idle)


def _slopes(objective: Objective) -> Iterator[Params]:
    """Derivatives of a random combination of all outputs, at every point."""
    random = generator(0)
    for number in range(POINTS):
        point = {
            name: (tensor if number == 0 else drawn_anew(tensor, random))
            for name, tensor in objective.parameters.items()
        }
        leaves = {n: t.detach().requires_grad_() for n, t in point.items()}
        try:
            slopes = objective.sum(partial(_slope, objective, leaves, number))
        except (FlatgaugeError, RuntimeError, IndexError):
            return  # it only works near its own point, or on its own data
        if all(bool(slope.isfinite().all()) for slope in slopes.values()):
            yield slopes


def _varied(tensor: Tensor, random: torch.Generator) -> Tensor:
    """Inputs times random factors; words, masks and places stay."""
    if not tensor.is_floating_point():
        return tensor
    return tensor * _drawn(list(tensor.shape), random, tensor).mul(VARIED).exp()


def _slope(objective: Objective, leaves: Params, number: int, batch: Batch) -> Params:
    """Jᵀw for the outputs on a batch, with random w; 0 where nothing is reached."""
    random = generator(POINTS * batch.index + number)
    given = map_batch(partial(_varied, random=random), batch) if number else batch
    outputs = floating(objective.evaluate(leaves, given)[0])
    values = torch.cat([tensor.reshape(-1) for tensor in outputs])
    weights = _drawn([values.numel()], random, values)
    found = torch.autograd.grad(
        values,
        list(leaves.values()),
        weights,
        allow_unused=True,
        materialize_grads=True,
    )
    return dict(zip(leaves, found, strict=True))
