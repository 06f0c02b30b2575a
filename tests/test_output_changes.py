"""Outputs of twins are compared on every sample."""

from __future__ import annotations

import torch
from support.cases import mlp
from torch import nn

import flatgauge as fg
from flatgauge.output_changes import change_beside, output_change


def pair(last: float) -> tuple[fg.Objective, fg.Objective]:
    """Two networks that differ on the last of three batches only."""
    torch.manual_seed(0)
    inputs = torch.randn(9, 2, dtype=torch.float64).abs()
    inputs[-1, 0] *= -1
    batches = [(inputs[i : i + 3], torch.arange(3) % 2) for i in (0, 3, 6)]
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
        model[0].bias.zero_()
    model = nn.Sequential(Bent(), *model)
    objective = fg.Objective(model, batches)
    params = {
        name: tensor + last if name == "0.bend" else tensor
        for name, tensor in objective.parameters.items()
    }
    return objective, objective.at(params)


class Bent(nn.Module):
    """x with another slope below 0."""

    def __init__(self) -> None:
        super().__init__()
        self.bend = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x < 0, self.bend * x, x)


def test_a_change_in_the_last_batch_is_seen():
    before, after = pair(0.5)
    assert output_change(before, after) > 0.01
    assert output_change(*pair(0.0)) == 0.0
    for kind in ("node-rescale", "output-shift", "output-scale"):
        assert change_beside(kind, before, after) > 0.01


def test_scores_that_are_all_0_change_wholly_or_not_at_all():
    objective = fg.Objective(
        mlp(4, 6, 3).double(), (torch.randn(5, 4).double(), torch.arange(5) % 3)
    )
    *_, weight, bias = objective.parameters
    zero = {name: 0 * objective.parameters[name] for name in (weight, bias)}
    silent = objective.at({**objective.parameters, **zero})
    for kind in ("node-rescale", "output-shift", "output-scale"):
        assert change_beside(kind, silent, silent) == 0
        assert change_beside(kind, silent, objective) == float("inf")


def test_what_belongs_to_a_kind_is_taken_off():
    torch.manual_seed(0)
    data = [
        (torch.randn(n, 4, dtype=torch.float64), torch.arange(n) % 3) for n in (5, 2)
    ]
    objective = fg.Objective(mlp(4, 6, 3).double(), data)
    *_, weight, bias = objective.parameters
    params = dict(objective.parameters)
    shifted = objective.at({**params, bias: params[bias] + 2.0})
    scaled = objective.at(
        {**params, weight: 3 * params[weight], bias: 3 * params[bias]}
    )
    for kind, twin in (("output-shift", shifted), ("output-scale", scaled)):
        assert output_change(objective, twin) > 0.1
        assert change_beside(kind, objective, twin) < 1e-14
