"""Products recorded as CUDA graphs, on a GPU."""

from __future__ import annotations

import math

import pytest
import torch
from support.cases import CASES, assert_close, random_vector
from torch import nn

import flatgauge as fg
from flatgauge.curvature import joining
from flatgauge.curvature.routes import kept_cuda_graph
from flatgauge.curvature.routes.channels_last import ChannelsLast
from flatgauge.curvature.routes.double_backward import DoubleBackward
from flatgauge.curvature.routes.kept_cuda_graph import KeptCudaGraph
from flatgauge.curvature.routes.reverse_over_forward import ReverseOverForward

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def batches_stay_apart(monkeypatch):
    """Several recordings at a time are what is looked at here."""
    monkeypatch.setattr(joining, "ENOUGH", 0)


@pytest.fixture
def launches_show(monkeypatch):
    """And replays save time, whatever else computes on the GPU meanwhile."""
    monkeypatch.setattr(kept_cuda_graph, "BUSY", math.inf)
    monkeypatch.setattr(kept_cuda_graph, "LEAST_WORTH", -math.inf)


class Same(torch.autograd.Function):
    """The identity, whose derivatives read a number from the device: none can record it."""

    @staticmethod
    def forward(ctx, x):
        assert float(x.sum()) > -1e9
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        return Same.apply(slope)


class Reading(nn.Linear):
    def forward(self, x):
        return Same.apply(super().forward(x))


def test_a_failed_recording_leaves_no_trace():
    before = torch.cuda.current_stream()
    model = nn.Sequential(Reading(4, 6), nn.Tanh(), nn.Linear(6, 3)).double().cuda()
    objective = fg.Objective(model, CASES["mlp"].data())
    hessian = fg.Hessian(objective)
    truth = fg.Hessian(objective, "double-backward") @ random_vector(objective)
    assert_close(hessian @ random_vector(objective), truth, 1e-9)
    assert any("CUDA graph" in name for name in hessian.plan.to_dict()["failures"])
    assert torch.cuda.current_stream() == before
    # A capture that was entered and failed would refuse this, and hold its memory.
    assert float(torch.rand(1, device="cuda")) < 1
    assert torch.cuda.get_sync_debug_mode() == 0
    assert torch.equal(
        torch.ones(3, device="cuda").cumsum(0).cpu(), torch.arange(1.0, 4)
    )


def test_recordings_do_not_outlive_their_batch_or_point():
    x, y = CASES["mlp"].data()
    model = CASES["mlp"].model().cuda()
    batches = [(x[:4], y[:4]), (x[4:], y[4:])]
    objective = fg.Objective(model, batches)
    assert len(x) < 8
    other = objective.at({n: 2 * t for n, t in objective.parameters.items()})
    for route in (
        KeptCudaGraph(DoubleBackward()),
        ChannelsLast(ReverseOverForward()),
    ):
        for here in (objective, other, objective):
            vector = random_vector(here)
            truth = fg.Hessian(here, "double-backward") @ vector
            assert_close(fg.Hessian(here, route) @ vector, truth, 1e-9)


@pytest.mark.usefixtures("launches_show")
@pytest.mark.parametrize("matrix", [fg.Hessian, fg.GaussNewton])
@pytest.mark.parametrize("case", ["mlp", "lenet", "gpt"])
def test_small_networks_are_recorded_at_once(case, matrix):
    objective = CASES[case].objective(device="cuda")
    operator = matrix(objective)
    for seed in range(3):
        vector = random_vector(objective, seed)
        truth = matrix(objective, operator.truth) @ vector
        assert_close(operator @ vector, truth, 1e-9)
    assert operator.plan.route.name.endswith("kept CUDA graph")


def test_large_products_are_not_recorded():
    model = nn.Sequential(nn.Linear(2000, 4000), nn.ReLU(), nn.Linear(4000, 10))
    data = (torch.randn(50_000, 2000), torch.randint(10, (50_000,)))
    objective = fg.Objective(model, data, device="cuda", batch_size=50_000)
    hessian = fg.Hessian(objective)
    for seed in range(2):
        _ = hessian @ random_vector(objective, seed)
    assert hessian.plan.route.name == "double-backward"
    assert "launches do not show" in next(iter(hessian.plan.failures.values()))


def test_coarse_products_bound_what_is_certified():
    data = CASES["mlp"].data()
    model = CASES["mlp"].model().float().cuda()
    coarse = fg.Objective(model, data, precision="tf32")
    assert fg.Hessian(coarse).rounding >= 2**-10
    assert fg.Hessian(fg.Objective(model, data)).rounding < 1e-5
    found = fg.top_eigenvalues(coarse, k=1, tol=1e-5)
    assert found.status is fg.Status.NOT_CONVERGED
    assert found.error_bounds[0] >= 2**-10 * found.values[0]


def test_one_operator_may_go_while_another_lives():
    objectives = [CASES[case].objective(device="cuda") for case in ("mlp", "gpt")]
    kept, gone = (fg.Hessian(objective) for objective in objectives)
    vectors = [random_vector(objective) for objective in objectives]
    truth = fg.Hessian(objectives[0], "double-backward") @ vectors[0]
    for _ in range(2):
        _ = gone @ vectors[1]
        assert_close(kept @ vectors[0], truth, 1e-9)
    del gone
    torch.cuda.empty_cache()
    again = fg.Hessian(objectives[1])
    right = fg.Hessian(objectives[1], "double-backward") @ vectors[1]
    for _ in range(2):
        assert_close(again @ vectors[1], right, 1e-9)
        assert_close(kept @ vectors[0], truth, 1e-9)


@pytest.mark.usefixtures("launches_show")
def test_every_batch_is_recorded_while_products_are_running():
    x, y = CASES["mlp"].data(12)
    batches = [(x[:4], y[:4]), (x[4:8], y[4:8]), (x[8:], y[8:])]
    objective = fg.Objective(CASES["mlp"].model(), batches, device="cuda")
    vectors = [random_vector(objective, seed) for seed in range(64)]
    hessian = fg.Hessian(objective)
    truth = fg.Hessian(objective, "double-backward") @ vectors
    for found, right in zip(hessian @ vectors, truth, strict=True):
        assert_close(found, right, 1e-9)
    assert hessian.plan.route.name.endswith("kept CUDA graph")
