"""What rounding inside of a user's loss does to a curvature, against named losses."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import flatgauge as fg
from flatgauge.curvature.hessian import loss_rounding
from flatgauge.vectors import generator


def one_by_one(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


def contrast(outputs, targets):
    """Every sample against the others of its batch."""
    similar = outputs @ outputs.T / (1 + outputs.square().mean())
    return F.cross_entropy(similar, torch.arange(len(outputs)))


def hinge(outputs, targets):
    own = outputs.gather(1, targets[:, None])
    others = F.one_hot(targets, outputs.shape[1]) == 0
    return ((1 - own + outputs).clamp_min(0) * others).sum(1).mean()


class Squared(nn.Module):
    """Squares and no biases: outputs are homogeneous in the inputs and in each weight."""

    def __init__(self) -> None:
        super().__init__()
        random = generator(0)
        self.first = nn.Linear(4, 5, bias=False).double()
        self.head = nn.Linear(5, 3, bias=False).double()
        for parameter in self.parameters():
            parameter.data = torch.randn(
                parameter.shape, generator=random, dtype=torch.float64
            )

    def forward(self, x):
        return self.head(self.first(x).relu().square())


def samples(count: int, seed: int) -> torch.Tensor:
    return torch.randn(count, 4, generator=generator(seed), dtype=torch.float64)


def half_sure(common: float, margin: float, seed: int = 1):
    """A network, one sample that is nearly certain by so much, and one that is not.

    What all outputs have in common changes no loss, and has second derivatives.
    """
    model, x = Squared(), samples(2, seed)
    x[1] *= 1 / 16
    with torch.no_grad():
        first, second = model(x).topk(2, dim=1).values.T
        model.head.weight *= margin / (first - second)[0]
        model.head.weight += common
        y = model(x).argmax(1)
    return model, (x, y)


@settings(max_examples=12, deadline=None)
@given(
    st.floats(0.0, 1e4),
    st.floats(2.0, 45.0),
    st.integers(0, 100),
)
def test_lost_digits_of_a_loss_are_in_the_error(common, margin, seed):
    model, data = half_sure(common, margin, seed)
    assume(model.head.weight.isfinite().all())
    named = fg.measure(fg.Objective(model, data), "hessian-trace")["hessian-trace"]
    own = fg.measure(fg.Objective(model, data, one_by_one), "hessian-trace")
    found = own["hessian-trace"]
    if found.value is None:
        assert "loses all of its second derivatives" in found.message
        return
    off = abs(found.value - named.value)
    assert off <= (found.uncertainty or 0.0) + 1e-12 * abs(named.value)


def test_a_nearly_certain_sample_is_not_hidden_by_one_that_is_not():
    """In output space the rounding is 1e-14 of the size, in the network far more."""
    model, data = half_sure(1e3, 36.7)
    named = fg.Hessian(fg.Objective(model, data)).to_dense()
    objective = fg.Objective(model, data, one_by_one)
    hessian = fg.Hessian(objective)
    off = float(torch.linalg.matrix_norm(hessian.to_dense() - named, 2))
    eigenvalues = torch.linalg.eigvalsh(named)
    radius = float(eigenvalues.abs().max())
    assert objective.loss.rounding < 1e-12
    assert off <= hessian.rounding * radius
    found = fg.measure(objective, "hessian-spectral-norm")["hessian-spectral-norm"]
    assert found.value == pytest.approx(float(eigenvalues[-1]), abs=found.uncertainty)


def test_samples_that_attract_each_other_until_little_is_left():
    model, same = Squared(), samples(1, 0).expand(3, -1)

    def rounding(apart: float) -> float:
        x = same + apart * samples(3, 1)
        objective = fg.Objective(model, (x, x), contrast)
        assert objective.coupled
        return fg.Hessian(objective).rounding

    assert rounding(1e-4) > 1e2 * rounding(1.0)


def test_a_loss_that_keeps_its_digits_has_little_rounding():
    model, (x, y) = Squared(), (samples(6, 3), torch.tensor([0, 1, 2, 0, 1, 2]))
    assert loss_rounding(fg.Objective(model, (x, y))) == 0.0
    for own in (one_by_one, lambda f, y: (f - 1).square().sum(1)):
        assert 0 < fg.Hessian(fg.Objective(model, (x, y), own)).rounding < 1e-11


def test_margins_that_are_met_leave_nothing_to_round():
    model, x = Squared(), samples(6, 3)
    y = model(x).argmax(1)
    with torch.no_grad():
        first, second = model(x).topk(2, dim=1).values.T
        model.head.weight *= 2 / (first - second).min()
    objective = fg.Objective(model, (x, y), hinge)
    assert objective.value() == 0.0
    assert loss_rounding(objective) == 0.0


class Named(nn.Module):
    """The outputs of another module in a mapping, beside something that is counted."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return {"own": self.inner(x), "count": torch.tensor([len(x)])}


def test_outputs_in_a_mapping_are_looked_at_alike():
    model, data = half_sure(1e3, 36.7)
    alone = loss_rounding(fg.Objective(model, data, one_by_one))
    named = fg.Objective(Named(model), data, lambda f, y: one_by_one(f["own"], y))
    assert loss_rounding(named) == pytest.approx(alone, rel=0.1)


class Spread(nn.Module):
    """Outputs that are no tensor: a distribution."""

    def __init__(self):
        super().__init__()
        self.inner = Squared()

    def forward(self, x):
        return torch.distributions.Categorical(logits=self.inner(x))


def in_place(outputs, targets):
    return outputs.sub_(1.0).square().sum(1)


@pytest.mark.parametrize(
    ("model", "loss"),
    [(Squared(), in_place), (Spread(), lambda f, y: -f.log_prob(y))],
    ids=["in place", "distribution"],
)
def test_unusual_losses_are_measured_as_before(model, loss):
    y = torch.tensor([0, 1, 2, 0])
    found = fg.measure(fg.Objective(model, (samples(4, 0), y), loss), "hessian-trace")
    assert found["hessian-trace"].status is fg.Status.EXACT


class TimeFirst(nn.Module):
    """Outputs [T, N, K], of which each sample's loss takes a nonlinear mean."""

    def __init__(self):
        super().__init__()
        self.inner = Squared()

    def forward(self, x):
        return torch.stack([self.inner(x), self.inner(2 * x)])


def test_rows_that_are_no_samples_are_not_taken_for_rounding():
    objective = fg.Objective(
        TimeFirst(),
        (samples(4, 0), torch.tensor([0, 1, 2, 0])),
        lambda f, y: one_by_one(f.sum(0).square(), y).square(),
    )
    assert fg.Hessian(objective).rounding < 1e-9


def test_a_class_that_is_masked_hides_no_rounding():
    class Masked(Squared):
        def forward(self, x):
            outputs = super().forward(x)
            return torch.cat([outputs, torch.full_like(outputs[:, :1], -torch.inf)], 1)

    model, data = half_sure(1e3, 36.7)
    masked = Masked()
    masked.load_state_dict(model.state_dict())
    plain, other = (
        loss_rounding(fg.Objective(one, data, one_by_one)) for one in (model, masked)
    )
    assert other == pytest.approx(plain, rel=0.5)


def test_estimates_say_so_too(monkeypatch):
    """Above the size at which every entry is computed, and below."""
    monkeypatch.setattr("flatgauge.diagonals.diagonal.loss_rounding", lambda _: 0.01)
    objective = fg.Objective(
        Squared(), (samples(4, 0), torch.tensor([0, 1, 2, 0])), one_by_one
    )
    for method in ("hutchinson", "finite-difference", "basis"):
        found = fg.hessian_diagonal(objective, method)
        assert found.status is fg.Status.NOT_CONVERGED
        assert "rounds its own second derivatives by 1.0e-02" in found.message


def test_a_fisher_rao_norm_holds_the_rounding_of_slopes():
    model, (x, y) = half_sure(0.0, 33.0)
    x, y = x[:1], y[:1]
    named, own = (
        fg.measure(fg.Objective(model, (x, y), loss), "fisher-rao-norm")
        for loss in ("cross-entropy", one_by_one)
    )
    found = own["fisher-rao-norm"]
    off = abs(found.value - named["fisher-rao-norm"].value)
    assert 0 < off <= found.uncertainty


def test_named_losses_cost_nothing(monkeypatch):
    monkeypatch.setattr("flatgauge.curvature.hessian.noise_share", None)
    objective = fg.Objective(Squared(), (samples(4, 0), torch.zeros(4).long()))
    assert fg.Hessian(objective).rounding > 0


@pytest.mark.parametrize("seed", range(6))
def test_samples_that_are_nearly_alike(seed):
    """What a contrast leaves of them in float32 is their network's rounding."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4))
        x = torch.randn(1, 3) + 1e-4 * torch.randn(3, 3)
    coarse, fine = (
        fg.Objective(model, (x, x), contrast, dtype=dtype)
        for dtype in (torch.float32, torch.float64)
    )
    right = float(torch.linalg.eigvalsh(fg.Hessian(fine).to_dense())[-1])
    request = "hessian-spectral-norm"
    found = fg.measure(coarse, request)[request]
    off = abs((found.value or 0.0) - right)
    assert not found.status.trusted or off <= found.uncertainty


def test_samples_that_differ_lose_nothing():
    x = samples(6, seed=0).float()
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))
    objective = fg.Objective(model, (x, x), contrast)
    assert loss_rounding(objective) < 1e-4
