from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.cases import CASES, NETWORK_CASES, assert_close, known, known_network, mlp
from support.fifty import X, Y, batches, net, plain
from support.untouched import model_state

import flatgauge as fg
from flatgauge.errors import (
    LossError,
    NonFiniteError,
    VectorError,
)
from flatgauge.vectors import norm, scale


@pytest.mark.parametrize("name", NETWORK_CASES)
def test_known_answers(name):
    objective = known_network(name)
    assert objective.value() == pytest.approx(known(name, "loss"), rel=1e-10)
    gradient = float(norm(objective.gradient()))
    assert gradient == pytest.approx(known(name, "grad_norm"), rel=1e-10)


def test_value_and_gradient_are_torchs():
    model = net()
    value, gradient = plain(model, X, Y)
    objective = fg.Objective(model, (X, Y))
    assert objective.value() == pytest.approx(value, rel=1e-13)
    assert_close(objective.gradient(), gradient)
    assert objective.sample_count == 50


LOSSES = {
    "named": "cross-entropy",
    "mean": lambda f, y: F.cross_entropy(f, y),
    "values": lambda f, y: F.cross_entropy(f, y, reduction="none"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_uneven_batches_are_one_batch(loss):
    whole = fg.Objective(net(), (X, Y), LOSSES[loss])
    uneven = fg.Objective(net(), batches(16, 16, 16, 2), LOSSES[loss])
    assert uneven.sample_count == whole.sample_count == 50
    assert uneven.value() == pytest.approx(whole.value(), rel=1e-12)
    gradient = whole.gradient()
    assert_close(uneven.gradient(), gradient)
    assert_close(fg.Hessian(uneven) @ gradient, fg.Hessian(whole) @ gradient)
    assert_close(fg.GaussNewton(uneven) @ gradient, fg.GaussNewton(whole) @ gradient)


@pytest.mark.parametrize(
    "loss",
    [
        "cross-entropy",
        "normalized-cross-entropy",
        lambda f, y: F.cross_entropy(f.flatten(0, 1), y.flatten()),
    ],
    ids=["cross-entropy", "normalized", "mean"],
)
def test_tokens_count_by_valid_targets(loss):
    case = CASES["gpt"]
    x, y = case.data(count=10)
    y[0, :4] = y[3] = y[7:, 1:] = -100
    whole = fg.Objective(case.model(), (x, y), loss)
    parts = [(x[:3], y[:3]), (x[3:4], y[3:4]), (x[4:9], y[4:9]), (x[9:], y[9:])]
    uneven = fg.Objective(case.model(), parts, loss)
    assert uneven.sample_count == whole.sample_count == int((y != -100).sum())
    assert uneven.value() == pytest.approx(whole.value(), rel=1e-12)
    gradient = whole.gradient()
    assert_close(uneven.gradient(), gradient)
    assert_close(fg.Hessian(uneven) @ gradient, fg.Hessian(whole) @ gradient)


def test_nothing_else_is_shifted():
    case = CASES["gpt"]
    x, y = case.data()
    expected = F.cross_entropy(case.model()(x).flatten(0, 1), y.flatten()).detach()
    assert fg.Objective(case.model(), (x, y)).value() == pytest.approx(
        float(expected), rel=1e-13
    )


class TestPoints:
    """The objective at other points and under other losses."""

    def test_at_moves_and_leaves_the_first_alone(self):
        objective = fg.Objective(net(), (X, Y))
        value = objective.value()
        zero = objective.at(scale(objective.parameters, 0.0))
        assert zero.value() == pytest.approx(np.log(3), rel=1e-12)
        assert objective.value() == pytest.approx(value, rel=1e-13)
        assert fg.Objective(net(), (X, Y)).gradient().keys() == zero.gradient().keys()

    def test_at_does_not_follow_the_given_tensors(self):
        objective = fg.Objective(net(), (X, Y))
        point = scale(objective.parameters, 0.5)
        moved = objective.at(point)
        before = moved.gradient()
        for tensor in point.values():
            tensor.zero_()
        assert_close(moved.gradient(), before)

    def test_kept_graphs_belong_to_their_point(self):
        objective = fg.Objective(net(), (X, Y))
        vector = objective.gradient()
        operator = fg.Hessian(objective)
        first = operator @ vector
        moved = objective.at(scale(objective.parameters, 2.0))
        other = fg.Hessian(moved) @ vector
        assert float(norm(other)) != pytest.approx(float(norm(first)), rel=1e-3)
        assert_close(operator @ vector, first)

    def test_with_loss(self):
        objective = fg.Objective(net(), (X, Y))
        other = objective.with_loss("normalized-cross-entropy")
        direct = fg.Objective(net(), (X, Y), "normalized-cross-entropy")
        assert other.value() == pytest.approx(direct.value(), rel=1e-13)
        assert objective.loss.name == "cross-entropy"
        with pytest.raises(LossError):
            objective.with_loss("mse")

    def test_at_refuses(self):
        objective = fg.Objective(net(), (X, Y))
        with pytest.raises(VectorError, match="missing"):
            objective.at({})
        bad = scale(objective.parameters, float("nan"))
        with pytest.raises(NonFiniteError, match=r"'0\.weight'"):
            objective.at(bad)


def test_batch_statistics_leave_running_ones_alone():
    case = CASES["resnet-train"]
    model, (x, y) = case.model(), case.data()
    expected = float(F.cross_entropy(case.model().train()(x), y).detach())
    before = model_state(model)
    objective = fg.Objective(model, (x, y), mode="train")
    private = [buffer.clone() for buffer in objective.network.model.buffers()]
    fg.Hessian(objective) @ objective.gradient()
    assert objective.value() == pytest.approx(expected, rel=1e-13)
    assert model_state(model) == before
    after = objective.network.model.buffers()
    assert all(torch.equal(a, b) for a, b in zip(private, after, strict=True))


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_derivatives_in_any_context(context):
    model = net()
    expected = plain(model, X, Y)[1]
    with context():
        objective = fg.Objective(model, (X.clone(), Y.clone()))
        gradient = objective.gradient()
        product = fg.Hessian(objective) @ expected
        converted = fg.Objective(mlp(4, 5, 3), (X, Y), dtype=torch.float64)
        assert float(norm(converted.gradient())) > 0
    assert_close(gradient, expected)
    assert_close(product, fg.Hessian(objective) @ expected)


def test_autocast_around_us_changes_nothing():
    model = mlp(4, 5, 3)
    expected = fg.Objective(model, (X, Y)).value()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = fg.Objective(model, (X, Y)).value()
    # bfloat16 would be off by 1e-3.
    assert found == pytest.approx(expected, rel=1e-6)


def test_hooks_that_keep_activations():
    model, seen = net(), {}
    model[0].register_forward_hook(lambda m, i, o: seen.update(hidden=o))
    model(X)
    before = model_state(model)
    objective = fg.Objective(model, (X, Y))
    assert objective.value() == pytest.approx(plain(net(), X, Y)[0], rel=1e-12)
    assert model_state(model) == before
