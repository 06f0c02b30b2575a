"""Attention heads by use: fused, grouped and separate projections, with and without RoPE."""

from __future__ import annotations

import pytest
import torch
from support.models import Attend, images
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.errors import SymmetryError
from flatgauge.symmetry.capture import read
from flatgauge.symmetry.graph import Example
from flatgauge.symmetry.heads import head_matrices
from flatgauge.symmetry.maps.head_matrices import random_gl
from flatgauge.symmetry.maps.heads import heads_mixed_at_random, mix_heads
from flatgauge.twins import families


def partly_rotated(x: Tensor) -> Tensor:
    """The first and the last of three coordinates turned by positions, as rotary does."""
    angles = torch.arange(x.shape[-2])[:, None].to(x)
    first, rest, last = x[..., :1], x[..., 1:2], x[..., 2:]
    return torch.cat(
        [
            first * angles.cos() - last * angles.sin(),
            rest,
            last * angles.cos() + first * angles.sin(),
        ],
        -1,
    )


class Heads(nn.Module):
    """Four query heads of size 3 that share `groups` key-value heads."""

    def __init__(
        self,
        groups: int = 4,
        rotary: bool = False,
        out: bool = True,
        partly: bool = False,
        by_hand: bool = False,
    ) -> None:
        super().__init__()
        self.groups, self.rotary, self.partly = groups, rotary, partly
        self.by_hand = by_hand
        self.query = nn.Linear(5, 12)
        self.key, self.value = (nn.Linear(5, 3 * groups) for _ in range(2))
        self.out = nn.Linear(12, 3) if out else None

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            made.unflatten(-1, (-1, 3)).transpose(1, 2)
            for made in (self.query(x), self.key(x), self.value(x))
        )
        if self.rotary:
            steps = torch.arange(x.shape[1])[:, None].to(x)
            query, key = (
                t * steps.cos() + t.roll(1, -1) * steps.sin() for t in (query, key)
            )
        elif self.partly:
            query, key = (partly_rotated(t) for t in (query, key))
        if self.groups < 4:
            key, value = (
                t[:, :, None].expand(-1, -1, 4 // self.groups, -1, -1).flatten(1, 2)
                for t in (key, value)
            )
        if self.by_hand:
            mixed = (query @ key.mT).softmax(-1) @ value
        else:
            mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        mixed = mixed.transpose(1, 2).flatten(2)
        return mixed.mean(1) if self.out is None else self.out(mixed).mean(1)


class Fused(nn.Module):
    """One projection that is cut in three, laid out as in GPT-2."""

    def __init__(self, rotary: bool = False) -> None:
        super().__init__()
        self.rotary = rotary
        self.weight = nn.Parameter(torch.randn(4, 12))
        self.bias, self.out = nn.Parameter(torch.randn(12)), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        made = torch.addmm(self.bias, x.reshape(-1, 4), self.weight)
        query, key, value = (
            part.unflatten(-1, (2, 2)).transpose(1, 2)
            for part in made.reshape(*x.shape[:2], 12).split(4, dim=-1)
        )
        if self.rotary:
            query, key = query + query.roll(1, -1), key + key.roll(1, -1)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).flatten(2)).mean(1)


class SharedKeys(Heads):
    """Keys that are values, too, and are read once more: nothing can come between."""

    def forward(self, x: Tensor) -> Tensor:
        query, key = (
            made.unflatten(-1, (-1, 3)).transpose(1, 2)
            for made in (self.query(x), self.key(x))
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, key)
        return mixed.transpose(1, 2).flatten(2).mean(1) + self.key(x).relu().mean(1)


class KeysAreValues(Heads):
    """What the keys are multiplied by is seen in the values."""

    def forward(self, x: Tensor) -> Tensor:
        query, key = (
            made.unflatten(-1, (-1, 3)).transpose(1, 2)
            for made in (self.query(x), self.key(x))
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, key)
        return self.out(mixed.transpose(1, 2).flatten(2)).mean(1)


# Network, width of the inputs, and (matrices, size) of query-key and of value-output.
CASES = {
    "separate": (Heads, 5, [(4, 3), (4, 3)]),
    "grouped": (lambda: Heads(groups=2), 5, [(2, 3), (2, 3)]),
    "one key-value head": (lambda: Heads(groups=1), 5, [(1, 3), (1, 3)]),
    "rotary": (lambda: Heads(groups=2, rotary=True), 5, [(2, 3), (2, 3)]),
    "rotary in part": (lambda: Heads(groups=2, partly=True), 5, [(2, 3), (2, 3)]),
    "by hand": (lambda: Heads(by_hand=True), 5, [(4, 3), (4, 3)]),
    "by hand, rotary": (
        lambda: Heads(groups=2, partly=True, by_hand=True),
        5,
        [(2, 3), (2, 3)],
    ),
    # What is read by no linear map leaves query and key.
    "no output": (lambda: Heads(out=False), 5, [(4, 3)]),
    "shared": (SharedKeys, 5, []),
    "keys are values": (KeysAreValues, 5, []),
    "fused": (Fused, 4, [(2, 2), (2, 2)]),
    "fused, rotary": (lambda: Fused(rotary=True), 4, [(2, 2), (2, 2)]),
    "torch": (lambda: Attend(bias=True), 4, [(2, 2), (2, 2)]),
}


def prepared(name: str):
    build, width, expected = CASES[name]
    torch.manual_seed(0)
    model, x = build().double(), images(6, 5, width).double()
    graph = read(model, Example((x,), {}, lambda result: result)).graph
    tensors = {n: t.detach() for n, t in model.named_parameters()}
    return model, x, head_matrices(graph), tensors, expected


@pytest.mark.parametrize("name", CASES)
def test_matrices_cancel_between_the_two_sides(name):
    model, x, found, tensors, expected = prepared(name)
    assert [(one.count, one.size) for one in found] == expected
    with torch.no_grad():
        before = model(x)
        for heads in found:
            moved = heads_mixed_at_random(tensors, heads, seed=1, spread=1.0)
            both = torch.func.functional_call(model, moved, (x,))
            assert float((both - before).norm() / before.norm()) < 1e-13
            first = heads.blocks[0].name
            if sum(block.name == first for block in heads.blocks) == 1:
                one = torch.func.functional_call(model, {first: moved[first]}, (x,))
                assert float((one - before).norm() / before.norm()) > 1e-3


def test_matrices_that_do_not_fit():
    _, _, (heads, _), tensors, _ = prepared("separate")
    with pytest.raises(SymmetryError, match="give one for each"):
        mix_heads(tensors, heads, random_gl(3, 3, seed=0))
    with pytest.raises(SymmetryError, match="singular"):
        mix_heads(tensors, heads, torch.ones(4, 3, 3).double())


def test_what_commutes_with_rotations():
    _, _, (heads, _), tensors, _ = prepared("rotary in part")
    pair, rest = heads.allowed
    assert pair.places.tolist() == [0, 2]
    assert len(pair.basis) == 2  # a scale and an angle
    assert rest.places.tolist() == [1]
    assert rest.basis is None
    with pytest.raises(SymmetryError, match="commute"):
        mix_heads(tensors, heads, random_gl(2, 3, seed=0))
    turn = torch.eye(3).double()
    turn[0, 2], turn[2, 0] = -0.5, 0.5
    mix_heads(tensors, heads, turn.expand(2, 3, 3))


def test_its_twins_move_what_does_not_claim_it():
    model, x, *_ = prepared("grouped")
    objective = fg.Objective(model, (x, torch.arange(6) % 3))
    (family,) = (one for one in families(objective) if one.kind == "attention-gl")
    twin = family.twin(seed=1, spread=1.0)
    assert twin.change < 1e-13
    for name, claimed in (("fisher-rao-norm", True), ("hessian-trace", False)):
        before, after = (
            fg.measure(o, name)[name].value for o in (objective, twin.objective)
        )
        assert before is not None
        assert after is not None
        assert (abs(after / before - 1) < 1e-9) == claimed
