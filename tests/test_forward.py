"""Symmetries, audits and twins look through the user's own forward."""

from __future__ import annotations

import pytest
import torch
from support.dense import dense_hessian
from support.forwards import (
    Cube,
    Force,
    contrastive,
    diffusion,
    draw,
    flow,
    heat_by_autograd,
    heat_by_func,
    physics,
    variational,
)
from support.models import mlp
from torch import nn

import flatgauge as fg

CASES = {
    "diffusion": (diffusion, 8, 10),
    "contrastive": (contrastive, 8, 10),
    "variational": (variational, 10, 10),
    "flow": (flow, 16, 16),
    "autograd": (lambda: physics(heat_by_autograd, Cube()), 5, 5),
    "torch.func": (lambda: physics(heat_by_func, Cube()), 5, 5),
    "smooth": (lambda: physics(heat_by_autograd, nn.Tanh()), 0, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_symmetries_are_counted_through_forward(name):
    build, exact, every = CASES[name]
    group = fg.symmetries(build())
    assert (group.dimension, group.approximate_dimension) == (exact, every)
    assert group.complete


@pytest.mark.parametrize("name", ["contrastive", "variational", "torch.func"])
def test_an_audit_finds_nothing_wrong(name):
    objective = CASES[name][0]()
    found = fg.audit(objective, "hessian-trace", "normalized-sharpness", elements=1)
    assert not found.violations
    assert found.sharpened is not None
    assert {row.kind for row in found.audit_rows} >= {"node-rescale"}


def test_what_forward_returns_is_preserved_and_nothing_else():
    model, data = mlp(4, 8, 3).double(), (draw(5, 4), torch.arange(5) % 3)
    last = fg.Objective(model, data, forward=lambda m, batch: m(batch[0]))
    both = fg.Objective(
        model,
        data,
        lambda out, targets: nn.functional.cross_entropy(out[1], targets),
        forward=lambda m, batch: (m[0](batch[0]), m(batch[0])),
    )
    assert fg.symmetries(last).dimension == 8
    assert fg.symmetries(both).dimension == 0


def test_a_loss_between_samples_is_measured_by_batches():
    """Its Hessian among outputs has blocks between rows, which are no rounding."""
    objective = contrastive()
    assert objective.coupled
    trace = fg.measure(objective, "hessian-trace")["hessian-trace"]
    expected = float(dense_hessian(objective).diagonal().sum())
    assert trace.value == pytest.approx(expected, rel=1e-9)


def test_derivatives_inside_of_forward_are_measured_however_they_are_written():
    one, other = (
        fg.measure(physics(residual, nn.Tanh()), "hessian-trace")["hessian-trace"]
        for residual in (heat_by_autograd, heat_by_func)
    )
    expected = float(dense_hessian(physics(heat_by_autograd, nn.Tanh())).trace())
    assert one.value == pytest.approx(expected, rel=1e-9)
    assert other.value == pytest.approx(expected, rel=1e-9)


def bends(model: nn.Module, batch) -> torch.Tensor:
    slope = torch.func.grad(lambda x: model(x[None])[0, 0])
    return torch.func.vmap(torch.func.jacfwd(slope))(batch[0])[:, 0] + model(batch[0])


def test_forward_derivatives_of_derivatives_by_sample():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    data = draw(6, 1), torch.zeros(6, 1).double()
    objective = fg.Objective(model, data, "mse", forward=bends)
    found = fg.measure(objective, "hessian-trace")["hessian-trace"]
    expected = float(dense_hessian(objective).diagonal().sum())
    assert found.value == pytest.approx(expected, rel=1e-9)


def test_a_network_that_differentiates_by_itself():
    """Nothing of ours runs it where it cannot, or warns of what it keeps."""
    model, targets = Force().double(), torch.arange(6) % 3
    objective = fg.Objective(model, [(draw(6, 3, seed=i), targets) for i in (0, 1)])
    assert fg.symmetries(model, draw(6, 3)).dimension == 5
    found = fg.audit(objective, "hessian-trace", elements=1)
    assert not found.violations
    assert not found.left_out
    assert found.sharpened is not None
