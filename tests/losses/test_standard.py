"""Torch's own losses become ours, or get their weights."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from support.cases import assert_close
from support.fifty import X, Y, batches, net
from torch import nn

import flatgauge as fg
from flatgauge.errors import LossError
from flatgauge.losses import CallableLoss, resolve_loss

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
        partial(F.mse_loss, reduction="sum"),
        nn.MSELoss(reduction="sum"),
    ],
)
def test_sums_are_refused(loss):
    with pytest.raises(LossError, match=r"adds up its samples.*reduction='mean'"):
        resolve_loss(loss)


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
}


@pytest.mark.parametrize("case", WEIGHTED)
def test_other_settings_give_torchs_number_for_every_batch_size(case):
    loss, targets = WEIGHTED[case]
    whole = fg.Objective(net(), (X, targets), loss)
    assert isinstance(whole.loss, CallableLoss)
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
