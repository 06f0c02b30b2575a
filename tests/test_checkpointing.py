"""Activation checkpointing inside a model is off while it is measured."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.utils.checkpoint
from support.cases import assert_close, mlp
from support.sound import data
from torch import nn
from torch.utils.checkpoint import (
    CheckpointFunction,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import flatgauge as fg
from flatgauge.errors import ModelError
from flatgauge.isolation import CHECKPOINT_RECORDERS, isolated

X, Y = data(0)
SELECTIVE = partial(
    create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default]
)
KINDS = {
    "reentrant": partial(checkpoint, use_reentrant=True),
    "other": partial(checkpoint, use_reentrant=False),
    "selective": partial(checkpoint, use_reentrant=False, context_fn=SELECTIVE),
    "sequential": lambda part, x: checkpoint_sequential(part, 2, x, use_reentrant=True),
    "class": lambda part, x: CheckpointFunction.apply(part, True, x),
    "none": lambda part, x: part(x),
}


class Net(nn.Module):
    def __init__(self, kind: str):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first = nn.Linear(6, 5)
            self.part = nn.Sequential(mlp(5, 4, 5, activation=nn.Tanh), nn.Tanh())
            self.last = nn.Linear(5, 3)
        self.kind = kind

    def forward(self, x):
        return self.last(KINDS[self.kind](self.part, self.first(x)))


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"none"}))
def test_models_with_checkpointing_inside(kind):
    plain, own = Net("none").double(), Net(kind).double()
    right, objective = fg.Objective(plain, (X, Y)), fg.Objective(own, (X, Y))
    assert objective.derivatives == "checked"
    assert_close(objective.gradient(), right.gradient())
    assert_close(fg.Hessian(objective).to_dense(), fg.Hessian(right).to_dense())
    found, expected = (fg.measure(o, "hessian-trace") for o in (objective, right))
    value = expected["hessian-trace"].value
    assert found["hessian-trace"].value == pytest.approx(value, rel=1e-12)


def lookups() -> tuple:
    return (
        "apply" in vars(CheckpointFunction),
        [vars(torch.utils.checkpoint).get(name) for name in CHECKPOINT_RECORDERS],
    )


def test_torch_is_as_it_was_afterwards():
    before = lookups()

    def fail():
        with isolated(torch.device("cpu")), isolated(torch.device("cpu")):
            assert lookups()[0]
            raise KeyboardInterrupt

    with isolated(torch.device("cpu")):
        inside = lookups()
        with isolated(torch.device("cpu")):
            pass
        assert lookups() == inside
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert lookups() == before
    x = torch.ones(1, 6, requires_grad=True)
    Net("reentrant")(x).sum().backward()
    assert x.grad is not None


def test_errors_in_a_checkpointed_part_are_the_models_own():
    class Broken(nn.Linear):
        def forward(self, x):
            return checkpoint(self.fail, super().forward(x), use_reentrant=False)

        def fail(self, x):
            raise ValueError("broken on purpose")

    with pytest.raises(ModelError, match="ValueError: broken on purpose"):
        fg.Objective(Broken(6, 3), (X, Y))


def test_checkpointing_that_cannot_be_turned_off():
    """One that holds torch's function itself recomputes with other parameters."""
    older, newer = (vars(torch.utils.checkpoint).get(n) for n in CHECKPOINT_RECORDERS)
    contexts = torch.utils.checkpoint.noop_context_fn

    class Held(Net):
        def forward(self, x):
            h = self.first(x)
            recorder = (
                older(self.part, True, contexts, "default", False, True, h)
                if newer is None
                else newer(self.part, (h,), {})
            )
            next(recorder)
            h = self.part(h)
            next(recorder, None)
            return self.last(h)

    with pytest.raises(ModelError, match="turn activation checkpointing off"):
        fg.Objective(Held("none"), (X, Y))
