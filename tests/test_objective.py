from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import CASES, NETWORK_CASES, assert_close, known, known_network, mlp
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import flatgauge as fg
from flatgauge.errors import (
    DataError,
    LossError,
    ModelError,
    NonFiniteError,
    NotDeterministicError,
    VectorError,
)
from flatgauge.vectors import norm, scale
from untouched import global_state, model_state

X = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randint(0, 3, (50,), generator=torch.Generator().manual_seed(1))


def net() -> nn.Module:
    return CASES["mlp"].model()


def batches(*sizes: int) -> list:
    return list(zip(X.split(list(sizes)), Y.split(list(sizes)), strict=True))


def plain(model: nn.Module, x, y) -> tuple[float, dict]:
    """Value and gradient by torch alone."""
    own = {n: p for n, p in model.named_parameters() if p.requires_grad}
    loss = F.cross_entropy(model(x), y)
    slopes = torch.autograd.grad(loss, list(own.values()))
    return float(loss.detach()), dict(zip(own, slopes, strict=True))


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
    assert objective.value() == pytest.approx(value, rel=1e-14)
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


class Table(Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, index):
        return X[index], Y[index]


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

    assert fg.Objective(Logits(), (X, Y)).value() == fg.Objective(net(), (X, Y)).value()


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


class TestPoints:
    """The objective at other points and under other losses."""

    def test_at_moves_and_leaves_the_first_alone(self):
        objective = fg.Objective(net(), (X, Y))
        value = objective.value()
        zero = objective.at(scale(objective.parameters, 0.0))
        assert zero.value() == pytest.approx(np.log(3), rel=1e-12)
        assert objective.value() == value
        assert fg.Objective(net(), (X, Y)).gradient().keys() == zero.gradient().keys()

    def test_at_does_not_follow_the_given_tensors(self):
        objective = fg.Objective(net(), (X, Y))
        point = scale(objective.parameters, 0.5)
        moved = objective.at(point)
        before = moved.gradient()
        for tensor in point.values():
            tensor.zero_()
        assert_close(moved.gradient(), before, 0.0)

    def test_kept_graphs_belong_to_their_point(self):
        objective = fg.Objective(net(), (X, Y))
        vector = objective.gradient()
        operator = fg.Hessian(objective)
        first = operator @ vector
        moved = objective.at(scale(objective.parameters, 2.0))
        other = fg.Hessian(moved) @ vector
        assert float(norm(other)) != pytest.approx(float(norm(first)), rel=1e-3)
        assert_close(operator @ vector, first, 0.0)

    def test_with_loss(self):
        objective = fg.Objective(net(), (X, Y))
        other = objective.with_loss("normalized-cross-entropy")
        direct = fg.Objective(net(), (X, Y), "normalized-cross-entropy")
        assert other.value() == direct.value()
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


class TestBadInput:
    """One sentence each, and nothing changed."""

    def test_nan_weights(self):
        model = net()
        model[2].bias.data[1] = float("nan")
        with pytest.raises(
            NonFiniteError, match=r"'2.bias' has NaN.*load a checkpoint"
        ):
            fg.Objective(model, (X, Y))

    def test_a_loss_that_is_not_finite_names_its_batch(self):
        parts = batches(20, 20, 10)
        parts[1][0][3, 1] = float("inf")
        try:
            with pytest.raises(NonFiniteError, match="loss of batch 1 is nan"):
                fg.Objective(net(), parts)
        finally:
            parts[1][0][3, 1] = 0.0

    def test_a_derivative_that_is_not_finite_names_the_parameter(self):
        class Root(nn.Linear):
            def forward(self, x):
                return super().forward(x * 0).abs().sqrt()

        model = Root(4, 3, bias=False).double()
        objective = fg.Objective(model, (X, Y))
        with pytest.raises(NonFiniteError, match="gradient with respect to 'weight'"):
            objective.gradient()
        with pytest.raises(NonFiniteError, match=r"Hessian product .* 'weight'"):
            fg.Hessian(objective) @ objective.parameters

    @pytest.mark.parametrize("data", [[], (X[:0], Y[:0]), DataLoader([])])
    def test_empty_data(self, data):
        with pytest.raises(DataError, match="no sample with a valid target"):
            fg.Objective(net(), data)

    def test_all_targets_ignored(self):
        with pytest.raises(DataError, match="valid target"):
            fg.Objective(net(), (X, torch.full((50,), -100)))

    def test_one_shot_data(self):
        with pytest.raises(DataError, match="only once"):
            fg.Objective(net(), iter(batches(25, 25)))

    def test_data_that_run_out(self):
        class Once:
            def __init__(self):
                self.inner = iter(batches(25, 25))

            def __iter__(self):
                return self.inner

        with pytest.raises(NotDeterministicError, match="50 and 0 samples"):
            fg.Objective(net(), Once())

    def test_data_that_grow(self):
        class Growing:
            count = 0

            def __iter__(self):
                self.count += 1
                return iter(batches(25, 25)[: self.count])

        with pytest.raises(
            NotDeterministicError, match="25 and 50 samples in 1 and 2 batches"
        ):
            fg.Objective(net(), Growing())

    def test_outputs_that_do_not_fit(self):
        with pytest.raises(LossError, match="a target is 3, but the model has 3"):
            fg.Objective(net(), (X, Y + 1))
        with pytest.raises(LossError, match="targets of the outputs' shape"):
            fg.Objective(net(), (X, Y.double()), "mse")
        with pytest.raises(LossError, match=r"returned shape \(50, 3\)"):
            fg.Objective(net(), (X, Y), lambda f, y: f)

    def test_in_place_operations_that_break_derivatives(self):
        class Broken(nn.Linear):
            def forward(self, x):
                h = super().forward(x).sigmoid()
                return h.mul_(2)

        with pytest.raises(ModelError, match="without changing its input in place"):
            fg.Objective(Broken(4, 3).double(), (X, Y))


class TestDeterminism:
    """Two passes must agree."""

    def test_dropout_in_train_mode(self):
        model = nn.Sequential(net(), nn.Dropout(0.5))
        assert fg.Objective(model, (X, Y)).value() > 0
        with pytest.raises(NotDeterministicError, match="set dropout to 0"):
            fg.Objective(model, (X, Y), mode="train")

    @pytest.mark.parametrize("source", ["torch", "numpy", "python"])
    def test_random_augmentation(self, source):
        draws = {
            "torch": lambda: float(torch.rand(())),
            "numpy": np.random.rand,
            "python": random.random,
        }

        class Augmented(Table):
            def __getitem__(self, index):
                return X[index] + draws[source](), Y[index]

        with pytest.raises(NotDeterministicError, match="random augmentation"):
            fg.Objective(net(), Augmented(), batch_size=16)

    @pytest.mark.parametrize("own", [False, True])
    def test_shuffling_under_batch_statistics(self, own):
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
        options = {"generator": torch.Generator().manual_seed(0)} if own else {}
        loader = DataLoader(TensorDataset(X, Y), 16, shuffle=True, **options)
        assert fg.Objective(model, loader).value() > 0
        with pytest.raises(NotDeterministicError, match="stop shuffling"):
            fg.Objective(model, loader, mode="train")
        ordered = DataLoader(TensorDataset(X, Y), 16)
        assert fg.Objective(model, ordered, mode="train").value() > 0

    def test_rounding_of_a_tiny_loss_is_no_randomness(self):
        """Losses near 0 carry the rounding of large scores, and are accepted."""

        class Wobble(nn.Linear):
            def forward(self, x):
                noise = 1 + (torch.rand(1) - 0.5) * 2e-7
                return super().forward(x) * noise

        model = Wobble(2, 3, bias=False)
        model.weight.data = torch.tensor([[14.0, 0.0], [0.0, 14.0], [0.0, 0.0]])
        data = (torch.eye(2), torch.tensor([0, 1]))
        assert fg.Objective(model, data).value() < 1e-5
        data = (torch.eye(2), torch.tensor([[14.0, 0, 0], [0, 14.0, 0]]))
        assert fg.Objective(model, data, "mse").value() < 1e-10


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
        assert fg.Objective(model, (X, Y)).value() == expected


def test_hooks_that_keep_activations():
    model, seen = net(), {}
    model[0].register_forward_hook(lambda m, i, o: seen.update(hidden=o))
    model(X)
    before = model_state(model)
    objective = fg.Objective(model, (X, Y))
    assert objective.value() == pytest.approx(plain(net(), X, Y)[0], rel=1e-12)
    assert model_state(model) == before
