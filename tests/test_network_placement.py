from __future__ import annotations

import pytest
import torch
from support.cases import mlp
from torch import nn

import flatgauge as fg
from flatgauge.errors import ModelError, OptionError
from flatgauge.vectors import size

RANDOM = torch.Generator().manual_seed(0)
X = torch.randn(6, 4, generator=RANDOM, dtype=torch.float64)
Y = torch.tensor([0, 1, 2, 0, 1, 2])


def test_data_parallel_is_measured_as_the_model_in_it():
    model = mlp(4, 5, 3).double()
    wrapped = fg.Objective(nn.DataParallel(model), (X, Y))
    assert list(wrapped.parameters) == [name for name, _ in model.named_parameters()]
    assert wrapped.value() == fg.Objective(model, (X, Y)).value()
    assert fg.symmetries(wrapped).dimension == 5


def test_mixed_types_are_measured_in_one():
    model = nn.Sequential(nn.Linear(4, 3).double(), nn.Linear(3, 3).float())
    with pytest.raises(
        ModelError, match=r"several types.*float32.*float64.*pass dtype="
    ):
        fg.Objective(model, (X, Y))
    assert fg.Objective(model, (X, Y), dtype=torch.float64).dtype == torch.float64


def test_a_float32_model_in_float64():
    model = mlp(4, 5, 3)
    objective = fg.Objective(model, (X, Y), dtype=torch.float64)
    double = fg.Objective(mlp(4, 5, 3).double(), (X, Y))
    assert all(t.dtype == torch.float64 for t in objective.parameters.values())
    assert next(model.parameters()).dtype == torch.float32
    assert double.dtype == torch.float64
    assert fg.Objective(model, (X, Y)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_refused(dtype):
    model = mlp(4, 5, 3).to(dtype)
    with pytest.raises(ModelError, match=r"too coarse.*pass dtype=torch.float32"):
        fg.Objective(model, (X, Y))
    with pytest.raises(ModelError, match="too coarse"):
        fg.Objective(mlp(4, 5, 3), (X, Y), dtype=dtype)
    assert fg.Objective(model, (X, Y), dtype=torch.float32).value() > 0


def test_low_precision_inside_the_model_is_refused():
    class Half(nn.Linear):
        def forward(self, x):
            return super().forward(x).to(torch.bfloat16)

    with pytest.raises(ModelError, match=r"returned torch.bfloat16.*autocast"):
        fg.Objective(Half(4, 3), (X, Y))


def test_no_float_parameters():
    with pytest.raises(ModelError, match="no floating-point parameters"):
        fg.Objective(nn.Flatten(), (X, Y))


def test_complex_parameters_are_refused():
    class Fourier(nn.Linear):
        def __init__(self):
            super().__init__(4, 3)
            self.phase = nn.Parameter(torch.ones(3, dtype=torch.complex64))

        def forward(self, x):
            return super().forward(x) * self.phase.abs()

    with pytest.raises(ModelError, match=r"'phase' is complex.*view_as_real"):
        fg.Objective(Fourier(), (X, Y))
    assert len(
        fg.Objective(Fourier(), (X, Y), params=lambda n: n != "phase").parameters
    )


def test_all_frozen():
    model = mlp(4, 3).requires_grad_(False)
    with pytest.raises(ModelError, match="all parameters are frozen: pass params="):
        fg.Objective(model, (X, Y))
    assert size(fg.Objective(model, (X, Y), params=lambda name: True).parameters) == 15


def test_a_subset_can_be_chosen():
    objective = fg.Objective(mlp(4, 5, 3), (X, Y), params=lambda n: "weight" in n)
    assert list(objective.parameters) == ["0.weight", "2.weight"]
    with pytest.raises(ModelError, match=r"chose none of the 4 parameters.*'0.weight'"):
        fg.Objective(mlp(4, 5, 3), (X, Y), params=lambda n: False)


@pytest.mark.parametrize(
    "model", [nn.LazyLinear(3), nn.Linear(4, 3, device="meta")], ids=["lazy", "meta"]
)
def test_parameters_without_data(model):
    with pytest.raises(ModelError, match="'weight' has no data yet"):
        fg.Objective(model, (X, Y))


def test_unknown_mode():
    with pytest.raises(OptionError, match="mode= is 'test': use 'eval' or 'train'"):
        fg.Objective(mlp(4, 3), (X, Y), mode="test")


def test_a_model_that_fails_is_told_with_the_batch():
    data = [(X, Y), (X[:, :2], Y)]
    with pytest.raises(
        ModelError, match=r"failed on batch 1 with inputs of shape \[\(6, 2\)\]"
    ):
        fg.Objective(mlp(4, 3), data)


@pytest.mark.parametrize("device", ["mps", "nonsense", "cuda:99"])
def test_devices_that_cannot_be_used_are_refused(device):
    if device == "mps" and torch.backends.mps.is_available():
        pytest.skip("it lacks float64 alone, which the next test plays")
    with pytest.raises(ModelError, match=f"'{device}' cannot be used.*device='cpu'"):
        fg.Objective(mlp(4, 3), (X, Y), device=device)


def test_a_device_without_float64_is_refused(monkeypatch):
    zeros = torch.zeros

    def coarse(*shape, dtype=None, device=None, **others):
        if dtype is torch.float64 and device == "cpu":
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return zeros(*shape, dtype=dtype, device=device, **others)

    monkeypatch.setattr(torch, "zeros", coarse)
    with pytest.raises(ModelError, match=r"not in float64 \(Cannot convert a MPS"):
        fg.Objective(mlp(4, 3), (X, Y), device="cpu")
