"""Torch's own losses become ours, or get their weights."""

from __future__ import annotations

from functools import partial
from itertools import islice

import pytest
import torch
import torch.nn.functional as F
from support.cases import assert_close
from support.fifty import X, Y, batches, net
from torch import nn

import flatgauge as fg
from flatgauge.errors import LossError
from flatgauge.losses import CallableLoss, RowLoss, resolve_loss

W = torch.tensor([1.0, 2.0, 5.0])
SOFT = F.one_hot(Y, 3).double() * 0.7 + 0.1
IGNORED = torch.where(torch.arange(50) % 4 == 1, -100, Y)


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (F.cross_entropy, "cross-entropy"),
        (nn.CrossEntropyLoss(), "cross-entropy"),
        (partial(F.cross_entropy, weight=None), "cross-entropy"),
        (partial(F.cross_entropy, label_smoothing=0.0), "cross-entropy"),
        (F.mse_loss, "mse"),
        (nn.MSELoss(), "mse"),
        (partial(F.mse_loss, reduction="mean"), "mse"),
        (nn.CrossEntropyLoss(reduction="none"), "cross-entropy"),
        (nn.MSELoss(reduction="none"), "mse"),
    ],
)
def test_plain_settings_are_the_named_loss(loss, name):
    data = (X, SOFT) if name == "mse" else (X, Y)
    objective = fg.Objective(net(), data, loss)
    named = fg.Objective(net(), data, name)
    assert objective.loss.name == name
    assert objective.value() == named.value()
    measures = ("hessian-trace", "fisher-rao-norm", "normalized-sharpness")
    found, expected = (fg.measure(one, *measures) for one in (objective, named))
    for one in measures:
        assert found[one].value == pytest.approx(expected[one].value, rel=1e-12)


@pytest.mark.parametrize(
    "loss",
    [
        partial(F.cross_entropy, reduction="sum"),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.NLLLoss(reduction="sum"),
        partial(F.mse_loss, reduction="sum"),
        nn.MSELoss(reduction="sum"),
    ],
)
def test_sums_are_refused(loss):
    with pytest.raises(LossError, match=r"adds up its samples.*reduction='mean'"):
        resolve_loss(loss)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (nn.NLLLoss(), "cross-entropy"),
        (F.nll_loss, "cross-entropy"),
        (nn.NLLLoss(W.double()), nn.CrossEntropyLoss(W.double())),
        (nn.NLLLoss(ignore_index=1), nn.CrossEntropyLoss(ignore_index=1)),
    ],
)
def test_the_loss_of_log_probabilities_is_the_cross_entropy(ours, theirs):
    model = nn.Sequential(net(), nn.LogSoftmax(1))
    objective = fg.Objective(model, (X, Y), ours, batch_size=20)
    expected = fg.Objective(net(), (X, Y), theirs)
    assert objective.loss.name == expected.loss.name
    names = ("hessian-trace", "fisher-rao-norm", "normalized-sharpness")
    for name in names:
        one, other = (fg.measure(o, name)[name].value for o in (objective, expected))
        assert one == pytest.approx(other, rel=1e-9), name


def test_scores_that_are_no_log_probabilities_stay_with_the_function():
    objective = fg.Objective(net(), (X, Y), nn.NLLLoss())
    assert isinstance(objective.loss, CallableLoss)
    expected = float(F.nll_loss(net()(X), Y).detach())
    assert objective.value() == pytest.approx(expected, rel=1e-12)


WEIGHTED = {
    "class weights": (nn.CrossEntropyLoss(weight=W.double()), Y),
    "as a partial": (partial(F.cross_entropy, weight=W.double()), Y),
    "ignored": (nn.CrossEntropyLoss(weight=W.double()), IGNORED),
    "smoothed": (nn.CrossEntropyLoss(weight=W.double(), label_smoothing=0.1), IGNORED),
    "another index": (nn.CrossEntropyLoss(ignore_index=1), Y),
    "smoothing": (nn.CrossEntropyLoss(label_smoothing=0.2), Y),
    "soft targets": (nn.CrossEntropyLoss(), SOFT),
    "weighted soft targets": (nn.CrossEntropyLoss(weight=W.double()), SOFT),
    "one value a sample": (nn.CrossEntropyLoss(reduction="none"), Y),
    "weighted values": (nn.CrossEntropyLoss(W.double(), reduction="none"), Y),
}


@pytest.mark.parametrize("case", WEIGHTED)
def test_other_settings_give_torchs_number_for_every_batch_size(case):
    loss, targets = WEIGHTED[case]
    whole = fg.Objective(net(), (X, targets), loss)
    by_class = not targets.is_floating_point()
    assert isinstance(whole.loss, RowLoss if by_class else CallableLoss)
    expected = loss(net()(X), targets).detach().mean()
    assert whole.value() == pytest.approx(float(expected), rel=1e-12)
    gradient = whole.gradient()
    product = fg.Hessian(whole) @ gradient
    # Sorted by class, every batch has one class alone.
    order = Y.argsort()
    for size, rows in ((7, torch.arange(50)), (20, order)):
        other = fg.Objective(net(), (X[rows], targets[rows]), loss, batch_size=size)
        assert not other.coupled
        assert other.value() == pytest.approx(whole.value(), rel=1e-12)
        assert_close(other.gradient(), gradient)
        assert_close(fg.Hessian(other) @ gradient, product)


def test_classes_in_dimension_one_are_torchs():
    """Outputs whose classes could be in two places are read as torch reads them."""

    class Square(nn.Linear):
        def forward(self, x):
            return super().forward(x).reshape(-1, 3, 3)

    torch.manual_seed(0)
    model = Square(4, 9).double()
    targets = torch.stack([Y, Y, Y.flip(0)], dim=1)
    objective = fg.Objective(model, (X, targets), F.cross_entropy, batch_size=20)
    expected = float(F.cross_entropy(model(X), targets).detach())
    assert isinstance(objective.loss, CallableLoss)
    assert objective.value() == pytest.approx(expected, rel=1e-12)
    assert not objective.coupled


def test_what_was_found_on_some_data_is_not_used_for_others():
    loss = nn.CrossEntropyLoss(weight=W.double())
    first = fg.Objective(net(), batches(20, 30), loss)
    few = (X[:9], Y[:9])
    again = fg.Objective(net(), few, first.loss)
    assert again.value() == pytest.approx(
        fg.Objective(net(), few, loss).value(), rel=1e-14
    )
    twice = first.with_loss(first.loss)
    assert twice.value() == pytest.approx(first.value(), rel=1e-14)


def test_a_subclass_is_not_taken_for_the_standard_loss():
    class Doubled(nn.CrossEntropyLoss):
        def forward(self, input, target):
            return 2 * super().forward(input, target)

    objective = fg.Objective(net(), (X, Y), Doubled())
    plain = fg.Objective(net(), (X, Y))
    assert objective.value() == pytest.approx(2 * plain.value(), rel=1e-12)


SETTINGS = {
    "class weights": {"weight": W.double()},
    "label smoothing": {"label_smoothing": 0.2},
    "both": {"weight": W.double(), "label_smoothing": 0.1},
    "another index": {"ignore_index": 1},
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_leave_a_classification(settings):
    """The surrogate of a classification is one, however its loss was spelled."""
    objective = fg.Objective(net(), (X, Y), nn.CrossEntropyLoss(**SETTINGS[settings]))
    found = fg.measure(objective, "normalized-sharpness")["normalized-sharpness"]
    assert found.loss == "normalized-cross-entropy"
    kept = Y != 1 if "index" in settings else slice(None)
    plain = fg.Objective(net(), (X[kept], Y[kept]))
    named = fg.measure(plain, "normalized-sharpness")["normalized-sharpness"]
    assert found.value == pytest.approx(named.value, rel=1e-12)


@pytest.mark.parametrize("settings", SETTINGS)
def test_curvature_in_output_space_is_that_of_torch(settings):
    given = SETTINGS[settings]
    objective = fg.Objective(net(), (X, Y), nn.CrossEntropyLoss(**given))
    loss = objective.loss
    assert isinstance(loss, RowLoss)
    rows = loss.rows(net()(X).detach(), Y)

    def value(f, y):
        one = F.cross_entropy(f[None], y[None], reduction="none", **given)
        return loss.share * one.sum()

    values = torch.stack([value(f, y) for f, y in zip(*rows_of(rows), strict=True)])
    assert torch.allclose(loss.values(rows), values, rtol=1e-12)
    assert torch.allclose(loss.sum(net()(X), Y), values.sum(), rtol=1e-12)
    hessians = torch.stack(
        [
            torch.autograd.functional.hessian(lambda g, y=y: value(g, y), f)
            for f, y in zip(*rows_of(rows), strict=True)
        ]
    )
    columns, signs = loss.hessian_columns(rows)
    assert torch.allclose((columns * signs[:, None]) @ columns.mT, hessians, atol=1e-12)
    random = torch.Generator().manual_seed(0)
    drawn = islice(loss.hessian_probes(rows, random), 4000)
    probes = torch.stack([plus for plus, _ in drawn])
    drawn = torch.einsum("nri,nrj->rij", probes, probes) / 4000
    assert torch.allclose(drawn, hessians, atol=0.1 * float(hessians.abs().max()))
    vectors = torch.randn(rows.outputs.shape, generator=random, dtype=torch.float64)
    expected = torch.zeros_like(vectors)
    for k in range(3):
        classes = torch.full_like(rows.targets, k)
        free = rows.outputs.clone().requires_grad_()
        labels = zip(free, classes, strict=True)
        every = loss.share * sum(
            F.cross_entropy(
                f[None],
                y[None],
                reduction="sum",
                **{**given, "ignore_index": -100},
            )
            for f, y in labels
        )
        (slope,) = torch.autograd.grad(every, free)
        p = rows.outputs.softmax(1)[:, k : k + 1]
        expected += p * slope * (slope * vectors).sum(1, keepdim=True)
    assert torch.allclose(loss.fisher_product(rows, vectors), expected, atol=1e-12)


def rows_of(rows):
    return rows.outputs, rows.targets


def test_names_tell_settings_apart():
    many = {"weight": torch.rand(12).double()}
    names = {
        fg.Objective(net(), (X, Y), nn.CrossEntropyLoss(**given)).loss.name
        for given in ({}, *SETTINGS.values())
    } | {resolve_loss(nn.CrossEntropyLoss(**many)).plain.name}
    assert len(names) == 6
    assert "cross-entropy (class weights 1, 2, 5, label smoothing 0.1)" in names


def test_negative_weights_stay_a_function():
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, -0.5]).double())
    assert isinstance(fg.Objective(net(), (X, Y), loss).loss, CallableLoss)


def test_a_batch_of_classes_without_weight_adds_nothing():
    weight = torch.tensor([0.0, 2.0, 1.0]).double()
    order = Y.argsort()
    whole = fg.Objective(net(), (X, Y), nn.CrossEntropyLoss(weight=weight))
    data = (X[order], Y[order])
    other = fg.Objective(net(), data, nn.CrossEntropyLoss(weight=weight), batch_size=5)
    assert other.value() == pytest.approx(whole.value(), rel=1e-12)


@pytest.mark.parametrize("name", ["fisher-rao-norm", "fisher-rao-norm[diagonal=True]"])
@pytest.mark.parametrize("size", [50, 7])
def test_fisher_rao_of_any_function_with_one_value_a_sample(name, size):
    """Its outputs may be of any structure."""

    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x):
            return {"scores": self.net(x), "twice": 2 * self.net(x)}

    def values(outputs, targets):
        return F.cross_entropy(outputs["scores"], targets, reduction="none")

    found = fg.measure(fg.Objective(Nested(), (X, Y), values, batch_size=size), name)
    expected = fg.measure(fg.Objective(net(), (X, Y)), name)
    assert found[name].status is fg.Status.EXACT
    assert found[name].value == pytest.approx(expected[name].value, rel=1e-10)


def test_fisher_rao_of_a_mean_alone_says_what_to_return():
    objective = fg.Objective(net(), (X, Y), lambda f, y: 2 * F.cross_entropy(f, y))
    found = fg.measure(objective, "fisher-rao-norm")["fisher-rao-norm"]
    assert found.status is fg.Status.NOT_APPLICABLE
    assert "return one value per sample" in found.message
