from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.cases import CASES, assert_close
from support.fifty import Table, X, Y, net, plain
from support.untouched import global_state
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import flatgauge as fg
from flatgauge.errors import (
    LossError,
)


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, first, second, shift=0.0):
        return {"scores": self.net(first + second["x"]) + shift, "extra": first}


def test_a_map_style_dataset():
    model = net()
    objective = fg.Objective(model, Table(), batch_size=16)
    assert objective.value() == pytest.approx(plain(model, X, Y)[0], rel=1e-12)
    assert objective.batch_count == 4


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader(shuffle):
    model = net()
    loader = DataLoader(TensorDataset(X, Y), batch_size=16, shuffle=shuffle)
    objective = fg.Objective(model, loader)
    value, gradient = plain(model, X, Y)
    assert objective.value() == pytest.approx(value, rel=1e-12)
    assert_close(objective.gradient(), gradient)


@pytest.mark.slow
def test_a_loader_with_a_worker():
    model = net()
    loader = DataLoader(TensorDataset(X, Y), batch_size=16, num_workers=1, shuffle=True)
    before = global_state()
    objective = fg.Objective(model, loader)
    assert_close(objective.gradient(), plain(model, X, Y)[1])
    assert global_state() == before


def test_nested_inputs_and_dictionary_outputs():
    model = Several()
    expected = float(F.cross_entropy(model.net(X + X), Y).detach())

    def loss(outputs, targets):
        return F.cross_entropy(outputs["scores"], targets)

    tuples = fg.Objective(model, ((X, {"x": X}), Y), loss, batch_size=16)
    mapping = [{"first": X, "second": {"x": X}, "labels": Y}]
    assert tuples.value() == pytest.approx(expected, rel=1e-12)
    assert fg.Objective(model, mapping, loss).value() == pytest.approx(
        expected, rel=1e-12
    )
    picked = fg.Objective(
        model,
        mapping,
        forward=lambda m, batch: m(batch["first"], batch["second"])["scores"],
    )
    assert picked.value() == pytest.approx(expected, rel=1e-12)
    with pytest.raises(LossError, match="pass forward= to pick the class scores"):
        fg.Objective(model, mapping)


def test_logits_of_a_mapping_are_found():
    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x):
            return {"logits": self.net(x), "hidden": x}

    expected = fg.Objective(net(), (X, Y)).value()
    found = fg.Objective(Logits(), (X, Y)).value()
    assert found == pytest.approx(expected, rel=1e-14)


def test_a_differential_equation_without_targets():
    """u'' + u = 0 by a small network: derivatives inside forward, no targets."""
    model = CASES["tanh"].model()

    def residual(model, batch):
        points = batch.clone().requires_grad_()
        u = model(points).sum(1)
        slope = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
        bend = torch.autograd.grad(slope.sum(), points, create_graph=True)[0]
        return bend.sum(1) + u

    def loss(outputs, batch):
        return outputs.square().mean()

    parts = [X[:30], X[30:48], X[48:]]
    uneven = fg.Objective(model, parts, loss, forward=residual)
    whole = fg.Objective(model, [X], loss, forward=residual)
    scalar = fg.Objective(
        model,
        parts,
        lambda value, batch: value,
        forward=lambda m, batch: residual(m, batch).square().mean(),
    )
    assert uneven.value() == pytest.approx(whole.value(), rel=1e-12)
    assert scalar.value() == pytest.approx(whole.value(), rel=1e-12)
    vector = whole.gradient()
    assert_close(fg.Hessian(uneven) @ vector, fg.Hessian(whole) @ vector)


def test_targets_that_are_tuples():
    targets = (Y, X[:, :1])
    objective = fg.Objective(
        net(),
        [(X, targets)],
        lambda f, t: F.cross_entropy(f, t[0]) + (f[:, :1] - t[1]).square().mean(),
    )
    assert objective.sample_count == 50
