"""Twins of an objective: other parameters, the same function (or the same argmax).

For every kind of symmetry that a network can be shown to have there is a family, which
moves it along random elements of that kind. Each twin is tried: what it changes of the
outputs is measured, never assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from flatgauge.errors import FlatgaugeError, SymmetryError
from flatgauge.objective import Objective
from flatgauge.output_changes import change_beside, output_change
from flatgauge.output_layer import output_layer, output_scaling
from flatgauge.own_precision import own_precision
from flatgauge.symmetry import Group, symmetries
from flatgauge.symmetry.discover import program_of
from flatgauge.symmetry.heads import head_matrices
from flatgauge.symmetry.hidden import hidden_units
from flatgauge.symmetry.maps.attention import (
    AttentionLayout,
    transform_query_key,
    transform_value_output,
)
from flatgauge.symmetry.maps.branch import split_branches, split_layer, splittable
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.head_matrices import random_gl
from flatgauge.symmetry.maps.heads import HeadMatrices, heads_mixed_at_random
from flatgauge.symmetry.maps.hidden import (
    HiddenUnits,
    Tensors,
    flipped_at_random,
    mixed_at_random,
    permuted_at_random,
)
from flatgauge.symmetry.maps.output import Axes, scale_output, shift_output
from flatgauge.symmetry.maps.streams import Stream, can_rotate, rotated_at_random
from flatgauge.symmetry.shifts import AbsorbedShifts, absorbed_shifts
from flatgauge.symmetry.streams import streams
from flatgauge.symmetry.verify import allowed_change
from flatgauge.vectors import generator
from flatgauge.vocabulary import Kind

Move = Callable[[int, float], Objective]
MoveByUse = Callable[[Tensors, Any, int, float], Tensors]

MOST_SPLIT = 8
"""Layers that are tried until one can be split."""
TRIED = (1001, 1002)
"""Seeds of the elements that everything that was found must pass."""
SPREAD = 0.5
"""Of their log-scales."""


@dataclass(frozen=True)
class Twin:
    """An objective moved along one element of a kind of symmetry.

    `exact` is False for rescalings that hold only up to the eps of a normalization
    layer; `change` is the relative change of the outputs on all data, and `miss`
    how much of it is not what the kind says: all of it, but for shifts and scalings of
    the outputs.
    """

    kind: str
    exact: bool
    objective: Objective
    change: float
    miss: float

    @property
    def holds(self) -> bool:
        """Whether it is a twin of its kind, as precisely as the network computes."""
        return self.miss <= allowed_rounding(self.objective)


def allowed_rounding(objective: Objective) -> float:
    """The relative change of the outputs between twins that is rounding."""
    return allowed_change(rounded=own_precision(objective) != torch.float64)


@dataclass(frozen=True)
class Family:
    """All twins of one kind: a random one for each seed.

    `complete` is False where the network may have more symmetries of this kind.
    """

    kind: str
    exact: bool
    original: Objective
    move: Move
    complete: bool = True

    def twin(self, seed: int = 0, spread: float = 0.5) -> Twin:
        """Move along a random element with log-scales of this standard deviation."""
        moved = self.move(seed, spread)
        change = output_change(self.original, moved)
        miss = change_beside(self.kind, self.original, moved)
        return Twin(self.kind, self.exact, moved, change, miss)


def families(objective: Objective) -> list[Family]:
    """A family for each kind of symmetry that this network can be shown to have."""
    return [*rescalings(objective), *other_families(objective)]


def rescalings(objective: Objective) -> list[Family]:
    """The families of the network's diagonal group.

    Raises:
        SymmetryError: if it cannot be read off the network.
    """
    # Corrected running statistics are not looked at in train mode.
    train = objective.network.mode == "train"
    group = symmetries(objective, batchnorm="joint" if train else "eps-corrected")
    found = [
        Family(
            kind,
            True,
            objective,
            partial(_rescaled, objective, group, kind),
            group.complete,
        )
        for kind in group.kinds
    ]
    joint = symmetries(objective, batchnorm="joint")
    if joint.approximate_dimension > joint.dimension:
        move = partial(_rescaled, objective, joint, None)
        found.append(Family(Kind.NODE_RESCALE, False, objective, move))
    return found


def other_families(objective: Objective) -> list[Family]:
    """The families of the other kinds, which are found by use or by layout."""
    found: list[Family] = []

    def offer(kind: str, move: Move) -> None:
        found.append(Family(kind, True, objective, move))

    chain = _chain(objective)
    if chain is not None and len(chain.layers) > 1:
        offer(Kind.BRANCH_SPLIT, partial(_split, objective))
    elif path := _path_to_split(objective):
        offer(Kind.BRANCH_SPLIT, partial(_split_layer, objective, path))
    units, heads, turned = _by_use(objective)
    for kind, move, some in (
        (Kind.STREAM_ROTATION, rotated_at_random, turned),
        (Kind.ATTENTION_GL, heads_mixed_at_random, heads),
        (Kind.PERMUTATION, permuted_at_random, units),
        (Kind.SIGN_FLIP, flipped_at_random, [one for one in units if one.odd]),
        (Kind.FACTOR_GL, mixed_at_random, [one for one in units if one.untouched]),
    ):
        some = _tested(objective, move, some)
        if some:
            moved = partial(_moved_by_use, objective, move, some)
            found.append(Family(kind, True, objective, moved, chain is not None))
    attention = [] if heads else _attention_layouts(objective)
    if attention:
        offer(Kind.ATTENTION_GL, partial(_other_heads, objective, attention))
    shifts = absorbed_shifts(objective)
    absorbed = partial(_absorbed, objective, shifts)
    if shifts and _keeps(objective, absorbed):
        offer(Kind.ABSORBED_SHIFT, absorbed)
    axes = output_layer(objective)
    if axes:
        offer(Kind.OUTPUT_SHIFT, partial(_shifted, objective, axes))
    scaling = output_scaling(objective)
    if scaling:
        offer(Kind.OUTPUT_SCALE, partial(_scaled, objective, scaling))
    return found


def _rescaled(
    objective: Objective, group: Group, kind: str | None, seed: int, spread: float
) -> Objective:
    element = group.random_element(
        seed=seed, spread=spread, kind=kind, approximate=kind is None
    )
    return objective.with_model(group.act(objective.model(), element))


def _other_heads(
    objective: Objective, layouts: list[AttentionLayout], seed: int, spread: float
) -> Objective:
    params = objective.parameters
    for index, layout in enumerate(layouts):
        size = params[layout.output.weight].shape[1] // layout.heads
        first, second = (
            random_gl(layout.groups, size, 1000 * seed + 2 * index + part, spread)
            for part in (0, 1)
        )
        params = transform_query_key(params, layout, first)
        params = transform_value_output(params, layout, second)
    return objective.at(params)


def _by_use(
    objective: Objective,
) -> tuple[list[HiddenUnits], list[HeadMatrices], list[Stream]]:
    """Hidden units, heads and streams whose tensors are all measured, or buffers."""
    try:
        graph = program_of(objective)
    except SymmetryError:
        return [], [], []
    buffers = dict(objective.network.model.named_buffers())
    known = {**buffers, **objective.parameters}
    return (
        [one for one in hidden_units(graph) if one.names <= known.keys()],
        [one for one in head_matrices(graph) if one.names <= known.keys()],
        [
            one
            for one in streams(graph)
            if one.names <= known.keys() and can_rotate(known, one)
        ],
    )


def _tested(objective: Objective, move: MoveByUse, parts: Sequence[Any]) -> list[Any]:
    """Those whose random elements leave the outputs as they are.

    Units may be followed past what treats them one by one, and yet unlike, as where the
    halves of a tensor go different ways.
    """

    def keeps(some: Sequence[Any]) -> bool:
        return _keeps(objective, partial(_moved_by_use, objective, move, some))

    if not parts or keeps(parts):
        return list(parts)
    return [one for one in parts if keeps([one])]


def _keeps(objective: Objective, move: Move) -> bool:
    """Whether random elements leave the outputs as they are, on all data."""
    allowed = allowed_rounding(objective)
    return all(
        output_change(objective, move(seed, SPREAD)) <= allowed for seed in TRIED
    )


def _moved_by_use(
    objective: Objective,
    move: MoveByUse,
    parts: Sequence[Any],
    seed: int,
    spread: float,
) -> Objective:
    model = objective.model()
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    moved: Tensors = {name: tensor.detach() for name, tensor in own.items()}
    for number, one in enumerate(parts):
        moved = move(moved, one, 1000 * seed + number, spread)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(moved[name])
    return objective.with_model(model)


def _shifted(objective: Objective, axes: Axes, seed: int, spread: float) -> Objective:
    params, random, steps = objective.parameters, generator(seed), {}
    for name, tensor in params.items():
        if name in axes:
            shape = list(tensor.shape)
            shape[axes[name]] = 1
            step = torch.randn(shape, generator=random, dtype=tensor.dtype)
            size = tensor.square().mean().sqrt()
            steps[name] = spread * size * step.to(tensor.device)
    return objective.at(shift_output(params, axes, steps))


def _absorbed(
    objective: Objective, shifts: AbsorbedShifts, seed: int, spread: float
) -> Objective:
    return objective.at(shifts.moved(objective.parameters, seed, spread))


def _scaled(
    objective: Objective, names: Sequence[str], seed: int, spread: float
) -> Objective:
    draw = torch.randn((), generator=generator(seed), dtype=torch.float64)
    factor = float(torch.exp(spread * draw))
    return objective.at(scale_output(objective.parameters, names, factor))


def _split(objective: Objective, seed: int, _: float) -> Objective:
    share = float(torch.rand((), generator=generator(seed), dtype=torch.float64))
    return objective.with_model(split_branches(objective.model(), 0, share))


def _split_layer(objective: Objective, path: str, seed: int, _: float) -> Objective:
    share = float(torch.rand((), generator=generator(seed), dtype=torch.float64))
    return objective.with_model(split_layer(_measured(objective), path, share))


def _measured(objective: Objective) -> nn.Module:
    """A model whose parameters require gradients where they are measured."""
    model = objective.model()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in objective.parameters)
    return model


def _path_to_split(objective: Objective) -> str | None:
    """The first small layer, all of it measured, that is called and not looked into.

    Some networks ask a layer for the type of its weight, which two layers have not.
    """
    model, batch = _measured(objective), objective.first_batch()
    known = objective.parameters
    for path in splittable(model)[:MOST_SPLIT]:
        own = dict(model.get_submodule(path).named_parameters(path))
        if not own.keys() <= known.keys():
            continue
        twin = split_layer(model, path, 0.5)
        names = [n for n, p in twin.named_parameters() if p.requires_grad]
        try:
            network = objective.network.with_model(twin, names)
            with objective.isolated():
                network.evaluate(network.parameters, batch)
        except FlatgaugeError:
            continue
        return path
    return None


def _attention_layouts(objective: Objective) -> list[AttentionLayout]:
    modules = objective.network.model.named_modules()
    found = [
        AttentionLayout.of(module, name)
        for name, module in modules
        if isinstance(module, nn.MultiheadAttention)
    ]
    known = objective.parameters
    return [one for one in found if {one.query.weight, one.output.weight} <= set(known)]


def _chain(objective: Objective) -> Chain | None:
    """The model as a chain of layers, where it is one and all of it is measured."""
    try:
        chain = Chain.of(objective.network.model, homogeneous=False)
    except SymmetryError:
        return None
    names = {n for layer in chain.layers for n in (layer.weight, layer.bias) if n}
    return chain if names == set(objective.parameters) else None
