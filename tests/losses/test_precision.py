"""Losses near 0, where float32 cancels inside a loss."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flatgauge as fg
from flatgauge.losses import CallableLoss
from flatgauge.losses.precision import InDouble, output_rounding
from flatgauge.vectors import generator

WEIGHT = torch.ones(3)


def by_hand(outputs, targets):
    return -outputs.log_softmax(1).gather(1, targets[:, None]).mean()


def with_a_buffer(outputs, targets):
    return F.cross_entropy(outputs, targets, weight=WEIGHT)


def with_casts(outputs, targets):
    p = outputs.softmax(1, dtype=torch.float32).to(torch.float32)
    return -p.float().gather(1, targets[:, None]).log().mean()


def written_in_place(outputs, targets):
    values = torch.zeros(len(targets))
    for index, target in enumerate(targets):
        values[index] = F.cross_entropy(outputs[index], target)
    return values.mean()


def only_float32(outputs, targets):
    assert outputs.dtype == torch.float32
    return F.cross_entropy(outputs, targets)


LOSSES = {
    "itself": F.cross_entropy,
    "module": nn.CrossEntropyLoss(),
    "lambda": lambda f, y: F.cross_entropy(f, y),
    "weights": nn.CrossEntropyLoss(weight=WEIGHT),
    **{one.__name__: one for one in (by_hand, with_a_buffer, written_in_place)},
}


@cache
def certain():
    """A network whose mean loss is about 6e-9, and its data."""
    random = generator(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=random)
    x = torch.randn(200, 4, generator=random)
    scores = model(x).detach()
    first, second = scores.topk(2, dim=1).values.T
    surest = (first - second).argsort(descending=True)[:12]
    x, y = x[surest], scores[surest].argmax(1)
    for _ in range(100):
        if float(F.cross_entropy(model.double()(x.double()).detach(), y)) < 6e-9:
            break
        for parameter in model[2].parameters():
            parameter.data *= 1.02
    return model.float(), (x, y)


@cache
def truth() -> tuple[float, float]:
    """The largest eigenvalue and the trace, in float64."""
    model, data = certain()
    found = fg.Hessian(fg.Objective(model, data, dtype=torch.float64)).to_dense()
    return float(torch.linalg.eigvalsh(found)[-1]), float(found.trace())


def measured(loss):
    model, data = certain()
    objective = fg.Objective(model, data, loss)
    return fg.measure(objective, "hessian-spectral-norm", "hessian-trace")


@pytest.mark.parametrize("loss", LOSSES)
def test_curvature_in_float32_keeps_its_digits(loss):
    largest, trace = truth()
    report = measured(LOSSES[loss])
    norm, found = report["hessian-spectral-norm"], report["hessian-trace"]
    assert norm.status is fg.Status.CONVERGED
    assert norm.value == pytest.approx(largest, rel=1e-3)
    assert found.status is fg.Status.EXACT
    assert found.value == pytest.approx(trace, rel=1e-4)


def test_a_loss_that_insists_on_float32_is_refused_where_nothing_is_left():
    for found in measured(only_float32).measurements.values():
        assert found.status is fg.Status.NOT_APPLICABLE
        assert "the loss 'only_float32' loses all of its second" in found.message


def test_rounding_that_leaves_some_digits_is_an_uncertainty():
    model, (x, y) = certain()
    halved = nn.Sequential(*model[:2], nn.Linear(6, 3))
    halved[2].load_state_dict({k: v * 0.6 for k, v in model[2].state_dict().items()})
    double = fg.Objective(halved, (x, y), dtype=torch.float64)
    trace = float(fg.Hessian(double).to_dense().trace())
    objective = fg.Objective(halved, (x, y), only_float32)
    found = fg.measure(objective, "hessian-trace")["hessian-trace"]
    assert 0 < abs(found.value - trace) <= found.uncertainty
    assert "The loss 'only_float32' rounds its own second" in found.message


def test_the_same_loss_far_from_certain_is_exact():
    _, data = certain()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    found = fg.measure(fg.Objective(model, data, only_float32), "hessian-trace")
    assert found["hessian-trace"].status is fg.Status.EXACT


def test_products_are_the_same_by_every_route():
    model, data = certain()
    objective = fg.Objective(model, data, LOSSES["lambda"])
    vector = objective.gradient()
    expected = fg.Hessian(objective, "double-backward") @ vector
    for route in ("reverse-over-forward",):
        found = fg.Hessian(objective, route) @ vector
        for name, part in expected.items():
            assert torch.allclose(found[name], part, rtol=1e-3, atol=1e-3 * part.norm())


@pytest.mark.parametrize("function", [with_casts, with_a_buffer, written_in_place])
def test_everything_inside_is_float64(function):
    random = generator(0)
    outputs = torch.randn(5, 3, generator=random)
    targets = torch.tensor([0, 1, 2, 1, 0])
    found = InDouble().call(function, outputs, targets)
    assert found.dtype == torch.float64
    expected = F.cross_entropy(outputs.double(), targets)
    assert float(found) == pytest.approx(float(expected), rel=1e-14)
    assert torch.equal(WEIGHT, torch.ones(3))


def test_what_a_function_keeps_is_not_written_to():
    count = torch.zeros(1)

    def counting(outputs, targets):
        count.add_(1)
        return outputs.mean() * count

    found = InDouble().call(counting, torch.ones(2, 2), None)
    assert float(found) == 1.0
    assert float(count) == 0.0


def test_rounding_is_seen_where_it_is():
    """diag p − ppᵀ in float32: nothing is lost at p = 1/2, all of it at 1 − p = 1e-9."""
    y = torch.zeros(4, dtype=torch.long)

    def rounding(margin: float, dtype: torch.dtype) -> float:
        outputs = torch.tensor([[margin, 0.0]], dtype=dtype).repeat(4, 1)
        found = output_rounding(lambda free: F.cross_entropy(free, y), outputs)
        error = float(found.bends.square().sum())
        return (error / found.bend_size) ** 0.5 if found.bend_size else float("inf")

    assert rounding(0.3, torch.float32) < 1e-4
    assert rounding(9.0, torch.float32) < 0.1
    assert rounding(20.7, torch.float32) > 0.1
    assert rounding(20.7, torch.float64) < 1e-4


def test_a_loss_without_second_derivatives_has_no_rounding():
    outputs = torch.ones(3, 2)
    for value in (lambda f: f.abs().sum(), lambda f: f.detach().sum()):
        found = output_rounding(value, outputs)
        assert found.bend_size == 0
        assert not found.bends.any()


def test_a_loss_is_not_computed_wide_before_it_was_looked_at():
    assert not CallableLoss(by_hand).wide
