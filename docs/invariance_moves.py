"""The maps of the parameters that are the rows of the table of invariances."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from networks import Attention, convolutional, mlp, normal, normalized, seeded
from torch import nn

import flatgauge as fg
from flatgauge.symmetry.discover import program_of
from flatgauge.symmetry.hidden import hidden_units
from flatgauge.symmetry.maps.attention import (
    AttentionLayout,
    Projection,
    transform_query_key,
)
from flatgauge.symmetry.maps.batchnorm import (
    NormalizedLayer,
    rescale_gain,
    rescale_normalized_rows,
)
from flatgauge.symmetry.maps.branch import split_branches
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.head_matrices import random_gl
from flatgauge.symmetry.maps.hidden import flip_signs, mix_hidden
from flatgauge.symmetry.maps.output import (
    axes_of,
    scale_output,
    shift_output,
)
from flatgauge.symmetry.maps.permute import permute_units
from flatgauge.symmetry.maps.rescale import rescale_layers, rescale_nodes
from flatgauge.symmetry.shifts import absorbed_shifts


@dataclass(frozen=True)
class Move:
    """A row: an objective before and after; `evaluation` is the same in eval mode."""

    row: str
    before: fg.Objective
    after: fg.Objective
    evaluation: tuple[fg.Objective, fg.Objective] | None = None


def moves() -> Iterator[Move]:
    """Every row of the table."""
    yield from chain_moves()
    yield from batch_norm_moves()
    yield from output_moves()
    yield from absorbed_moves()
    yield from discrete_moves()
    yield from attention_moves()


def problem(model: nn.Module, loss: str = "cross-entropy", **options) -> fg.Objective:
    """Random inputs; the targets are predictions, so that curvatures are not negative."""
    if isinstance(model, Attention):
        inputs = normal(8, 5, 6, seed=4)
    else:
        inputs = normal(12, *((1, 6, 6) if has_kernels(model) else (3,)), seed=1)
    with torch.no_grad():
        targets = copy.deepcopy(model).eval()(inputs).argmax(1)
    return fg.Objective(model, (inputs, targets), loss, **options)


def has_kernels(model: nn.Module) -> bool:
    return any(isinstance(module, nn.Conv2d) for module in model.modules())


def chain_moves() -> Iterator[Move]:
    alphas = (4.0, 0.5, 0.5)
    for bias, row in ((False, "no biases"), (True, "with biases")):
        start = problem(seeded(lambda bias=bias: mlp(3, 6, 5, 4, bias=bias)))
        moved = rescale_layers(start.parameters, Chain.of(start.model()), alphas)
        yield Move(f"layers scaled, {row}", start, start.at(moved))
    for row, model in (
        ("nodes scaled", seeded(lambda: mlp(3, 6, 5, 4))),
        ("channels scaled", seeded(convolutional)),
    ):
        start, chain = problem(model), Chain.of(model)
        units = [start.parameters[one.weight].shape[0] for one in chain.layers[:-1]]
        scales = [normal(n, seed=i).mul(2).exp() for i, n in enumerate(units)]
        moved = rescale_nodes(start.parameters, chain, scales)
        yield Move(row, start, start.at(moved))


def batch_norm_moves() -> Iterator[Move]:
    model = seeded(lambda: normalized(eps=1e-30)).train()
    block = NormalizedLayer.of(model, "1")
    start = problem(model, mode="train")
    for row, scales in (
        ("one factor", torch.full((5,), 3.0, dtype=torch.float64)),
        ("separately", normal(5, seed=2).mul(2).exp()),
    ):
        moved = rescale_normalized_rows(start.parameters, block, scales)
        yield Move(
            f"rows before a train-mode batch norm, {row}",
            start,
            start.at(moved),
            (problem(model), problem(with_statistics(model, scales))),
        )
    start, scales = problem(model), torch.full((5,), 3.0, dtype=torch.float64)
    moved = rescale_gain(start.parameters, block, scales)
    yield Move("batch norm's (γ, β)·c, next W/c", start, start.at(moved))


def with_statistics(model: nn.Module, scales: torch.Tensor) -> nn.Module:
    """The rows scaled, and the running statistics along with them."""
    twin = seeded(lambda: normalized(eps=1e-30))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state["0.weight"] *= scales[:, None]
    state["1.running_mean"] *= scales
    state["1.running_var"] *= scales**2
    twin.load_state_dict(state)
    return twin


def output_moves() -> Iterator[Move]:
    model = seeded(lambda: mlp(3, 6, 4))
    last = Chain.of(model).layers[-1]
    axes = axes_of(last)
    for loss in ("normalized-cross-entropy", "cross-entropy"):
        start = problem(model, loss)
        name = loss.replace("-cross", " cross")
        moved = scale_output(start.parameters, axes, 3.0)
        yield Move(f"outputs ×c, {name}", start, start.at(moved))
    step = torch.tensor([2.0], dtype=torch.float64)
    moved = shift_output(start.parameters, axes, {last.bias: step})
    yield Move("outputs shifted by the last bias", start, start.at(moved))
    step = normal(1, 6, seed=3)
    moved = shift_output(start.parameters, axes, {last.weight: step})
    yield Move("outputs shifted by the last weight", start, start.at(moved))


def absorbed_moves() -> Iterator[Move]:
    layers = (lambda: nn.Linear(3, 5), lambda: nn.LayerNorm(5), lambda: nn.Linear(5, 4))
    start = problem(seeded(lambda: nn.Sequential(*(layer() for layer in layers))))
    moved = absorbed_shifts(start).moved(start.parameters, seed=3, spread=1.0)
    yield Move("a layer norm's inputs shifted", start, start.at(moved))


def discrete_moves() -> Iterator[Move]:
    start = problem(seeded(lambda: mlp(3, 6, 4, activation=nn.Tanh)))
    signs = torch.tensor([1, -1, -1, 1, -1, 1], dtype=torch.float64)
    (units,) = hidden_units(program_of(start))
    flipped = flip_signs(start.parameters, units, signs)
    yield Move("signs flipped (tanh)", start, start.at(flipped))
    model = seeded(lambda: mlp(3, 6, 4))
    start = problem(model)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    moved = permute_units(start.parameters, Chain.of(model), 0, order)
    yield Move("units permuted", start, start.at(moved))
    start = problem(seeded(lambda: nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 4))))
    (units,) = hidden_units(program_of(start))
    moved = mix_hidden(start.parameters, units, random_gl(1, 5, seed=8, spread=2.0)[0])
    yield Move("the factors of a product, any matrix", start, start.at(moved))
    # Only the layer that is split, so that the factors ½ and 2 are seen undiluted.
    split, merged = (
        problem(split_branches(model, 0, share), params=lambda n: n.startswith("0."))
        for share in (0.5, 1.0)
    )
    yield Move("branches merged (27) → (30)", split, merged)


def attention_moves() -> Iterator[Move]:
    start = problem(seeded(Attention))
    layout = AttentionLayout(
        Projection("query.weight"),
        Projection("key.weight"),
        Projection("value.weight"),
        Projection("output.weight"),
        heads=2,
    )
    identity = torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
    for row, matrices in (
        ("scalar", 3 * identity),
        ("diagonal", torch.diag_embed(normal(2, 3, seed=5).mul(2).exp())),
        ("orthogonal", random_gl(2, 3, seed=6, spread=0.0)),
        ("any matrix", random_gl(2, 3, seed=7, spread=2.0)),
    ):
        moved = transform_query_key(start.parameters, layout, matrices)
        yield Move(f"query and key, {row}", start, start.at(moved))
