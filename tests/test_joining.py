from __future__ import annotations

import pytest
import torch.nn.functional as F
from cases import CASES, assert_close
from torch import nn
from torch.utils.data import DataLoader

import flatgauge as fg
from flatgauge import joining, objective
from flatgauge.memory import SavedBytes
from flatgauge.vectors import gaussian, generator

X, Y = CASES["mlp"].data(50)


@pytest.fixture(autouse=True)
def launches_show(monkeypatch):
    """As on a GPU, where small batches are joined."""
    monkeypatch.setattr(objective, "pays", lambda device: True)


def loader(batches: list) -> DataLoader:
    """Batches as they are, in a loader, whose batches may be held on a CPU too."""
    return DataLoader(batches, batch_size=None)


def uneven(*sizes: int) -> DataLoader:
    return loader(list(zip(X.split(list(sizes)), Y.split(list(sizes)), strict=True)))


def two() -> DataLoader:
    return loader([(X[:16], Y[:16]), (X[16:32], Y[16:32])])


def test_joined_batches_change_nothing():
    model = CASES["mlp"].model()
    whole = fg.Objective(model, (X, Y))
    found = fg.Objective(model, uneven(16, 16, 16, 2))
    assert (found.batch_count, found.sample_count) == (1, 50)
    assert len(list(found.batches())) == 1
    assert found.value() == pytest.approx(whole.value(), rel=1e-12)
    assert_close(found.gradient(), whole.gradient())
    v = gaussian(whole.parameters, generator(0))
    assert_close(fg.Hessian(found) @ v, fg.Hessian(whole) @ v)


def test_a_joined_batch_holds_what_is_enough_and_no_more(monkeypatch):
    alone = fg.Objective(CASES["mlp"].model(), (X[:5], Y[:5]))
    with SavedBytes() as saved:
        outputs, targets = alone.evaluate(alone.leaves(), next(alone.batches()))
        alone.loss.rows(outputs, targets)
    monkeypatch.setattr(joining, "ENOUGH", int(3.5 * saved.total))
    assert fg.Objective(CASES["mlp"].model(), uneven(*[5] * 10)).batch_count == 4
    monkeypatch.setattr(joining, "ENOUGH", 0)
    assert fg.Objective(CASES["mlp"].model(), uneven(*[5] * 10)).batch_count == 10


class Centred(nn.Linear):
    def forward(self, x):
        return super().forward(x - x.mean(0))


class OfSixteen(nn.Linear):
    def forward(self, x):
        return super().forward(x.reshape(-1, 16, 4)[:1].flatten(0, 1))


@pytest.mark.parametrize("model", [Centred(4, 3), OfSixteen(4, 3)])
def test_samples_that_influence_each_other_stay_apart(model):
    found = fg.Objective(model.double(), two())
    assert found.batch_count == 2


@pytest.mark.parametrize(
    "options",
    [
        {"loss": lambda f, y: F.cross_entropy(f, y)},
        {"mode": "train"},
        {"forward": lambda model, batch: model(batch[0])},
    ],
    ids=["callable loss", "train mode", "forward"],
)
def test_what_may_depend_on_its_batch_stays_apart(options):
    assert fg.Objective(CASES["mlp"].model(), two(), **options).batch_count == 2


def test_batches_of_other_lengths_are_joined_with_their_like(monkeypatch):
    case = CASES["gpt"]
    x, y = case.data(count=10)
    parts = [(x[:3], y[:3]), (x[3:6], y[3:6])]
    parts += [(x[6:8, :4], y[6:8, :4]), (x[8:, :4], y[8:, :4])]
    found = fg.Objective(case.model(), loader(parts))
    assert [len(batch.targets) for batch in found.batches()] == [6, 4]
    monkeypatch.setattr(objective, "pays", lambda device: False)
    apart = fg.Objective(case.model(), loader(parts))
    assert apart.batch_count == 4
    assert_close(found.gradient(), apart.gradient())


def test_mappings_are_joined_and_other_things_are_not():
    class Named(nn.Linear):
        def forward(self, x, note=None):
            return super().forward(x)

    parts = [{"x": X[:20], "labels": Y[:20]}, {"x": X[20:], "labels": Y[20:]}]
    model = Named(4, 3).double()
    assert fg.Objective(model, loader(parts)).batch_count == 1
    noted = [part | {"note": "a"} for part in parts]
    assert fg.Objective(model, loader(noted)).batch_count == 2


def test_another_loss_or_model_is_looked_at_again():
    model = CASES["mlp"].model()
    found = fg.Objective(model, two())
    assert found.batch_count == 1
    assert found.at(found.parameters).batch_count == 1
    assert found.with_loss("normalized-cross-entropy").batch_count == 1
    own = found.with_loss(lambda f, y: F.cross_entropy(f, y))
    assert own.batch_count == len(list(own.batches())) == 2
    assert own.with_loss("cross-entropy").batch_count == 1
    assert found.with_model(Centred(4, 3).double()).batch_count == 2
    assert found.with_model(model).batch_count == 1


@pytest.mark.gpu
def test_small_batches_are_joined_on_a_gpu():
    model = CASES["mlp"].model()
    data = [(X[:16], Y[:16]), (X[16:32], Y[16:32]), (X[32:], Y[32:])]
    found = fg.Objective(model, data, device="cuda")
    assert found.batch_count == 1
    gradient = {name: slope.cpu() for name, slope in found.gradient().items()}
    assert_close(gradient, fg.Objective(model, (X, Y)).gradient())
