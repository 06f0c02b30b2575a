"""The generator: the same network for the same numbers, and many kinds of them."""

from __future__ import annotations

import pytest
import torch

from fuzz.draw import Draw
from fuzz.kinks import derivatives_agree
from fuzz.networks import MOST_PARAMETERS
from fuzz.problems import problem
from fuzz.reference import Reference
from fuzz.unsound import WAYS, Frequency, Unsound


def states(one):
    return [
        *one.network.model.state_dict().values(),
        *(t for b in one.batches for t in b),
    ]


def test_a_network_depends_on_its_two_numbers_alone():
    torch.manual_seed(1)
    first = problem(3, 14)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again = problem(3, 14)
    assert torch.equal(torch.get_rng_state(), before)
    assert first.words == again.words
    assert all(
        torch.equal(a, b) for a, b in zip(states(first), states(again), strict=True)
    )
    assert problem(3, 15).words != first.words
    assert problem(4, 14).words != first.words


def test_many_kinds_are_drawn():
    found = [problem(0, index) for index in range(250)]
    every = "\n".join(one.words for one in found)
    for word in (
        "experts by index_add", "heads by bmm", "heads by einsum", "two layers by",
        "stack of", "tied, past: True", "weight norm", "masked", "low rank", "in place",
        "in float32", "sleeping branch", "attention", "lstm", "embedding", "time first",
        "transposed", "depthwise", "BatchNorm", "layer norm", "unsound", "frozen",
        "hardswish", "relu²", "contrastive", "hinge", "class weights", "ignored targets",
        "summed", "large first", "train", "float32", "gate of", "residual", "shared",
    ):  # fmt: skip
        assert word in every, word
    sizes = [sum(p.numel() for p in one.network.model.parameters()) for one in found]
    assert max(sizes) <= MOST_PARAMETERS
    batches = [[len(y) for _, y in one.batches] for one in found]
    assert any(len(sizes) == 1 for sizes in batches)
    assert any(len(sizes) > 2 and set(sizes) == {1} for sizes in batches)
    assert any(len(set(sizes)) > 2 for sizes in batches)


def sound_problems(count: int):
    found = (problem(1, index) for index in range(1000))
    kept = (
        one for one in found if one.network.sound and "head of zeros" not in one.words
    )
    return [one for one, _ in zip(kept, range(count), strict=False)]


def test_differences_confirm_the_references_of_sound_networks():
    # A direction may cross a kink at every step, so that another is tried.
    for one in sound_problems(12):
        assert any(
            all(derivatives_agree(Reference(one), Draw(0, attempt)))
            for attempt in range(3)
        ), one.words


@pytest.mark.parametrize("way", [*WAYS, "frequency"])
def test_differences_refute_the_unsound_ones(way):
    one = next(p for p in sound_problems(20) if p.words.startswith("vector"))
    draw = Draw(5, 5)
    part = (Frequency if way == "frequency" else Unsound)(draw, 3, 3).double()
    draw.fill(part, 1.0)
    if way != "frequency":
        part.way = way
    model = one.network.model.double()
    model.parts = torch.nn.ModuleList([part])
    model.stem.width = 3
    model.head = torch.nn.Linear(3, model.head.out_features).double()
    draw.fill(model.head, 1.0)
    one.batches = [(draw.normal(5, 3), y[:1].repeat(5, *[1] * (y.ndim - 1)))
                   for _, y in one.batches[:1]]  # fmt: skip
    one.network.sound = False
    first, second = derivatives_agree(Reference(one), Draw(0, 0))
    assert not (first and second)
    assert first == (way in ("detached backward", "numpy backward"))
