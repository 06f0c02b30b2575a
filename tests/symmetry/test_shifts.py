"""Shifts that layer norms and softmaxes take off again, found by derivatives."""

from __future__ import annotations

import pytest
import torch
from support.models import VisionTransformer, images
from torch import nn

import flatgauge as fg
from flatgauge.measures.registry import claims_of
from flatgauge.symmetry.shifts import absorbed_shifts
from flatgauge.twins import families


def objective(model: nn.Module, inputs: torch.Tensor) -> fg.Objective:
    for parameter in model.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter)
    return fg.Objective(
        model.double(), (inputs.double(), torch.arange(len(inputs)) % 3)
    )


@pytest.fixture(scope="module")
def transformer() -> fg.Objective:
    torch.manual_seed(0)
    model = VisionTransformer(8, 4, 8, 1, 2, 12, 3)
    nn.init.normal_(model.head.weight)
    return objective(model, images(9, 3, 8, 8))


def test_the_stream_of_a_transformer_and_the_bias_of_its_keys(transformer):
    found = absorbed_shifts(transformer)
    block = "blocks.0."
    assert found.along == {
        "token": (2,), "positions": (2,), "patches.weight": (0,), "patches.bias": (0,),
        f"{block}attention.out_proj.weight": (0,), f"{block}attention.out_proj.bias": (0,),
        f"{block}mlp.2.weight": (0,), f"{block}mlp.2.bias": (0,),
    }  # fmt: skip
    assert list(found.idle) == [f"{block}attention.in_proj_bias"]
    (keys,) = found.idle.values()
    assert keys.nonzero().flatten().tolist() == list(range(8, 16))


@pytest.mark.parametrize(
    ("name", "claimed"),
    [
        ("hessian-trace", True),
        ("fisher-rao-norm", True),
        ("normalized-sharpness", False),
    ],
)
def test_claims(transformer, name, claimed):
    (family,) = (one for one in families(transformer) if one.kind == "absorbed-shift")
    twin = family.twin(seed=1, spread=1.0)
    assert twin.change < 1e-13
    before, after = (fg.measure(o, name)[name] for o in (transformer, twin.objective))
    assert ("absorbed-shift" in claims_of(before)) == claimed
    assert before.value is not None
    assert after.value is not None
    assert (abs(after.value / before.value - 1) < 1e-9) == claimed


def test_nothing_else_is_taken_for_a_shift():
    """A root mean square keeps the mean; a unit that rests here may work elsewhere."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.RMSNorm(4), nn.Linear(4, 3)
    )
    problem = objective(model, images(9, 3))
    problem.parameters["0.bias"][0] = -100.0
    assert not absorbed_shifts(problem)
    assert "absorbed-shift" not in {family.kind for family in families(problem)}


class Routed(nn.Module):
    """An expert that only some samples reach, behind a layer that all pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.expert = nn.Linear(3, 4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x).tanh()
        return self.head(torch.where(x[:, :1] > 0, self.expert(hidden), hidden))


def test_what_the_first_samples_do_not_reach_is_no_shift():
    torch.manual_seed(0)
    inputs = images(40, 3)
    late = inputs[inputs[:, 0].argsort()]
    problem = objective(Routed(), late)
    batches = [(late[i : i + 8].double(), torch.arange(8) % 3) for i in range(0, 40, 8)]
    problem = fg.Objective(problem.model(), batches)
    assert not absorbed_shifts(problem)


def test_a_unit_that_is_off_on_these_samples_is_no_symmetry():
    """Two samples leave a quarter of the units off at any place, others at every place."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))
    assert (model[0](images(2, 4)) <= 0).all(0).any()
    assert not absorbed_shifts(objective(model, images(2, 4)))
