from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import mlp
from torch import nn

import flatgauge as fg
from flatgauge.piecewise.affine import is_affine_in_each_tensor
from flatgauge.piecewise.degrees import DegreeWatcher

W = torch.tensor([[1.0, -2.0], [3.0, 4.0]], dtype=torch.float64)
V = torch.tensor([[0.5, 1.0], [-1.0, 2.0]], dtype=torch.float64)
X = torch.tensor([[1.0, 2.0], [-3.0, 1.0]], dtype=torch.float64)


def in_place(w, v):
    h = X @ w
    part = h[:, 0]
    part.mul_(v.sum())
    return h


def written_twice(w, v):
    out = torch.zeros(2, 2, dtype=w.dtype)
    out[0] = w[0]
    out[1] = (w * w)[1]
    return out


@pytest.mark.parametrize(
    ("function", "degrees"),
    [
        (lambda w, v: X @ w, {"w": 1}),
        (lambda w, v: F.relu(X @ w) @ v, {"w": 1, "v": 1}),
        (lambda w, v: torch.einsum("ni,ij,jk->nk", X, w, v), {"w": 1, "v": 1}),
        (lambda w, v: X @ w @ w, {"w": 2}),
        (lambda w, v: w * w, {"w": 2}),
        (lambda w, v: w / 3, {"w": 1}),
        (lambda w, v: 3 / w, {"w": 2}),
        (lambda w, v: w.tanh() @ v, {"w": 2, "v": 1}),
        (lambda w, v: torch.where(w > 0, w, v), {"w": 1, "v": 1}),
        (lambda w, v: (w > 0).double() * w, {"w": 1}),
        (lambda w, v: torch.zeros_like(w) + v, {"v": 1}),
        (lambda w, v: torch.addmm(v, X, w), {"w": 1, "v": 1}),
        (lambda w, v: torch.addmm(v, w, w), {"w": 2, "v": 1}),
        (lambda w, v: F.prelu(w, v[0, 0]), {"w": 1, "v": 1}),
        (lambda w, v: w.scatter(0, torch.zeros(1, 2).long(), v), {"w": 1, "v": 1}),
        (lambda w, v: F.embedding_bag(torch.tensor([[0, 1]]), w), {"w": 1}),
        (lambda w, v: F.layer_norm(X, (2,), w[0], v[0]), {"w": 1, "v": 1}),
        (lambda w, v: F.layer_norm(X @ w, (2,), v[0]), {"w": 2, "v": 1}),
        (lambda w, v: w.to_sparse() @ v, {"w": 2, "v": 1}),
        (lambda w, v: w.to(torch.complex128).abs(), {"w": 2}),
        (in_place, {"w": 1, "v": 1}),
        (written_twice, {"w": 2}),
    ],
)
def test_degrees_of_small_computations(function, degrees):
    with DegreeWatcher({"w": W, "v": V}) as watcher:
        output = function(W, V)
    assert watcher.degrees([output]) == degrees


class Late(nn.Module):
    """A curved layer that only samples with x₀ < 0 reach."""

    def __init__(self, curved):
        super().__init__()
        self.body, self.late, self.head = (nn.Linear(4, 4) for _ in range(3))
        self.curved = curved

    def forward(self, x):
        h = F.relu(self.body(x))
        chosen = (x[:, 0] < 0).nonzero()[:, 0]
        if len(chosen):
            h = h.index_add(0, chosen, self.curved(self.late(x[chosen])))
        return self.head(h)


class Function(torch.autograd.Function):
    """tanh by way of numpy, with derivatives of all orders."""

    @staticmethod
    def forward(ctx, x):
        y = torch.from_numpy(x.detach().numpy().copy()).tanh()
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        return slope * (1 - torch.tanh(x) ** 2)


CURVES = {
    "tanh": torch.tanh,
    "softplus": F.softplus,
    "hardswish": lambda x: x * (x + 3).clamp(0, 6) / 6,
    "relu-squared": lambda x: F.relu(x).square(),
    "numpy": Function.apply,
}


def samples(saturated: int, plain: int, seed: int = 0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(saturated + plain, 4, generator=random, dtype=torch.float64)
    x[:, 0] = x[:, 0].abs() + 0.1
    x[:saturated] *= 1e6
    x[saturated:, 0] *= -1
    return x, torch.arange(saturated + plain) % 4


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("batch_size", [None, 18])
def test_a_curve_that_the_first_samples_do_not_show(curve, batch_size):
    """The first samples are saturated, or take another way."""
    torch.manual_seed(0)
    late = Late(CURVES[curve]).double()
    body = nn.Linear(4, 4).double()
    body.weight.data.abs_()
    early = nn.Sequential(body, Curve(CURVES[curve]), nn.Linear(4, 4).double())
    x, y = samples(17, 4)
    for model in (late, early):
        data = (x.abs() if model is early else x, y)
        objective = fg.Objective(model, data, batch_size=batch_size)
        assert not is_affine_in_each_tensor(objective)
        assert fg.hessian_diagonal(objective).method == "basis"


class Curve(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    activation=st.sampled_from([nn.Tanh, nn.Softplus, nn.GELU, nn.ReLU, nn.Hardtanh]),
    order=st.permutations(range(8)),
    batch_size=st.integers(1, 8),
    saturation=st.sampled_from([1.0, 1e3, 1e8]),
)
def test_orders_and_batches_do_not_change_the_trace(
    activation, order, batch_size, saturation
):
    model = mlp(4, 3, 3, activation=activation).double()
    random = torch.Generator().manual_seed(1)
    x = torch.randn(8, 4, generator=random, dtype=torch.float64)
    x[:5] *= saturation
    y = torch.arange(8) % 3
    order = list(order)
    one = fg.Objective(model, (x, y), loss="mse" if y.ndim > 1 else "cross-entropy")
    other = fg.Objective(model, (x[order], y[order]), batch_size=batch_size)
    found = [fg.measure(o, "hessian-trace")["hessian-trace"] for o in (one, other)]
    dense = float(fg.Hessian(one).to_dense().trace())
    scale = float(fg.Hessian(one).to_dense().diagonal().abs().sum())
    for each in found:
        assert each.value == pytest.approx(dense, rel=1e-9, abs=1e-12 * scale)
