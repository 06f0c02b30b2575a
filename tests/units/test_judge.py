"""Every loss gives one number for every batching, or is refused, or says "coupled"."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.cases import assert_close
from support.fifty import X, Y, net
from torch import nn

import flatgauge as fg
from flatgauge.errors import LossError, NonFiniteError
from flatgauge.losses.counting import BY_SAMPLES, BY_TARGETS
from flatgauge.vectors import generator

W = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)


def contrastive(outputs, targets):
    z = F.normalize(outputs, dim=1)
    alike = targets[:, None] == targets
    return (1 - z @ z.T)[alike].mean() + (z @ z.T)[~alike].clamp_min(0).sum() / 9


def focal(outputs, targets):
    p = outputs.softmax(1).gather(1, targets[:, None])[:, 0]
    return -((1 - p).square() * p.log()).mean()


def hinge(outputs, targets):
    margins = 1 + outputs - outputs.gather(1, targets[:, None])
    return margins.clamp_min(0).square().mean(1).mean()


def ignoring(outputs, targets):
    return F.cross_entropy(outputs, torch.where(targets == 1, -100, targets))


MEANS = {
    "mean": lambda f, y: F.cross_entropy(f, y),
    "values": lambda f, y: F.cross_entropy(f, y, reduction="none"),
    "hinge": hinge,
    "focal": focal,
    "smoothed": partial(F.cross_entropy, label_smoothing=0.1),
    "weighted": nn.CrossEntropyLoss(weight=W),
    "ignore index": nn.CrossEntropyLoss(ignore_index=1),
    "with a constant": lambda f, y: 3.0 + F.cross_entropy(f, y),
}
REFUSED = {
    "sum": lambda f, y: F.cross_entropy(f, y, reduction="sum"),
    "sum with a constant": lambda f, y: 1 + F.cross_entropy(f, y, reduction="sum"),
    "by a fixed number": lambda f, y: F.cross_entropy(f, y, reduction="sum") / 50,
    "class weights": lambda f, y: F.cross_entropy(f, y, weight=W),
    "unknown index": ignoring,
}
UNITS = {
    "contrastive": contrastive,
    "root": lambda f, y: F.mse_loss(f, F.one_hot(y, 3).to(f)).sqrt(),
    "spread": lambda f, y: f.std(0, correction=0).sum(),
    "largest": lambda f, y: F.cross_entropy(f, y, reduction="none").max(),
}
LOSSES = {**MEANS, **REFUSED, **UNITS}


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 3)).double()


def numbers(loss, rows, sizes, targets=Y):
    """Value, gradient and trace, or None for a loss that is refused or coupled.

    A mean over nothing but ignored targets is not finite, where that is not known.
    """
    x, y = X[rows].split(sizes), targets[rows].split(sizes)
    try:
        objective = fg.Objective(small(), list(zip(x, y, strict=True)), loss)
    except (LossError, NonFiniteError):
        return None
    if objective.coupled:
        return None
    trace = fg.Hessian(objective).to_dense().trace()
    return objective.value(), objective.gradient(), float(trace)


@settings(max_examples=15, phases=[Phase.explicit, Phase.generate])
@given(
    st.sampled_from(sorted(LOSSES)),
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    st.integers(0, 1000),
    st.booleans(),
)
def test_one_number_for_every_batching(name, sizes, seed, by_class):
    rows = torch.randperm(50, generator=generator(seed))[: sum(sizes)]
    order = Y[rows].argsort(stable=True) if by_class else torch.arange(len(rows))
    found = numbers(LOSSES[name], rows[order], sizes)
    other = numbers(LOSSES[name], rows, [len(rows)])
    if found is None or other is None:
        assert name not in MEANS or len(rows) == 1
        return
    assert found[0] == pytest.approx(other[0], rel=1e-9)
    assert_close(found[1], other[1])
    assert found[2] == pytest.approx(other[2], rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("size", [50, 16, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["sum", "sum with a constant", "by a fixed number"])
def test_sums_are_refused(case, dtype, size):
    loss = REFUSED[case]
    with pytest.raises(LossError, match=r"adds up its samples.*return their mean"):
        fg.Objective(net(), (X, Y), loss, batch_size=size, dtype=dtype)


@pytest.mark.parametrize("size", [50, 16])
@pytest.mark.parametrize("case", ["class weights", "unknown index"])
def test_unknown_weights_are_refused(case, size):
    with pytest.raises(LossError, match=r"other weights.*return one value per sample"):
        fg.Objective(net(), (X, Y), REFUSED[case], batch_size=size)


def test_class_weights_that_no_batch_shows_are_refused():
    """Sorted by class, every batch is a plain mean."""
    parts = [(X[Y.eq(k)], Y[Y.eq(k)]) for k in range(3)]
    with pytest.raises(LossError, match="other weights"):
        fg.Objective(net(), parts, REFUSED["class weights"])


@pytest.mark.parametrize("case", UNITS)
def test_coupled_losses_are_means_over_their_batches(case):
    loss = UNITS[case]
    parts = list(zip(X.split([20, 30]), Y.split([20, 30]), strict=True))
    model = net()
    objective = fg.Objective(model, parts, loss)
    assert objective.coupled
    values = [float(loss(model(x), y).detach()) for x, y in parts]
    expected = 0.4 * values[0] + 0.6 * values[1]
    assert objective.value() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "loss", [F.cross_entropy, MEANS["mean"], nn.CrossEntropyLoss()]
)
def test_ignored_targets_of_one_dimension(loss):
    targets = Y.clone()
    targets[41:45] = -100
    model = net()
    expected = float(F.cross_entropy(model(X), targets).detach())
    for size in (50, 20, 10):
        # They appear in the last batches only.
        objective = fg.Objective(model, (X, targets), loss, batch_size=size)
        assert objective.sample_count == 46
        assert objective.value() == pytest.approx(expected, rel=1e-12)
        assert not objective.coupled


def test_targets_are_counted_only_where_some_are_ignored():
    """Counting them waits for the device, which no recording survives."""
    loss = MEANS["mean"]
    assert fg.Objective(net(), (X, Y), loss).loss.countings == (BY_SAMPLES,)
    some = torch.where(torch.arange(50) == 9, -100, Y)
    assert fg.Objective(net(), (X, some), loss).loss.countings == (BY_TARGETS,)


def test_a_target_of_minus_100_that_is_not_ignored():
    """Integer targets of a regression: the samples are what is averaged."""
    targets = torch.where(torch.arange(50) % 5 == 0, -100, Y)
    loss = lambda f, y: (f[:, 0] - y).abs().mean()  # noqa: E731
    model = net()
    expected = float(loss(model(X), targets).detach())
    for size in (50, 7):
        objective = fg.Objective(model, (X, targets), loss, batch_size=size)
        assert objective.value() == pytest.approx(expected, rel=1e-12)
        assert objective.sample_count == 50


def test_batches_that_cannot_be_split_are_units():
    class Graph(nn.Linear):
        def forward(self, nodes, edges):
            return (
                super().forward(nodes.index_add(0, edges[1], nodes[edges[0]])).mean(0)
            )

    torch.manual_seed(0)
    model = Graph(4, 3).double()
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    parts = [((X[:4], edges), X[0, :3]), ((X[4:9], edges), X[1, :3])]
    objective = fg.Objective(model, parts, lambda f, y: (f - y).square().mean())
    assert objective.coupled


@pytest.mark.parametrize("scale", [1e-5, 1.0, 60.0, 1e4])
def test_rounding_in_float32_is_no_coupling(scale):
    """Flat, saturated and very wrong scores."""
    model = net()
    for parameter in model[-1].parameters():
        parameter.data *= scale
    right = model(X).argmax(1)
    for targets in (Y, right):
        for loss in (MEANS["mean"], MEANS["values"], focal):
            if loss is focal and scale > 1:
                continue
            data = (X, targets)
            objective = fg.Objective(
                model, data, loss, batch_size=20, dtype=torch.float32
            )
            assert not objective.coupled
