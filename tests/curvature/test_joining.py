from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.cases import CASES, assert_close, random_vector
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import flatgauge as fg
from flatgauge import data as data_module
from flatgauge.curvature import joining, plan
from flatgauge.curvature.joining import joined
from flatgauge.curvature.routes import ROUTES
from flatgauge.data import map_batch
from flatgauge.diagonals import diagonal
from flatgauge.memory import SavedBytes

X, Y = CASES["mlp"].data(50)
TRUTH = ROUTES["double-backward"]()
BUDGET = 2**30


@pytest.fixture(autouse=True)
def it_pays(monkeypatch):
    """As on a GPU, where small batches are joined."""
    monkeypatch.setattr(plan, "pays", lambda device: True)


def loader(batches) -> DataLoader:
    """Batches as they are, in a loader, whose batches are held on a CPU, too."""
    return DataLoader(batches, batch_size=None)


def uneven(*sizes: int) -> DataLoader:
    return loader(list(zip(X.split(list(sizes)), Y.split(list(sizes)), strict=True)))


def sizes(objective: fg.Objective) -> list[int]:
    with objective.isolated():
        return [len(batch.targets) for batch in objective.batches()]


def together(model: nn.Module, data, **options) -> fg.Objective:
    objective = fg.Objective(model, data, **options)
    return joined(objective, TRUTH, BUDGET)


@pytest.mark.parametrize("matrix", [fg.Hessian, fg.GaussNewton])
def test_products_are_the_same_and_the_objective_is_left_alone(matrix):
    model = CASES["mlp"].model()
    whole, apart = fg.Objective(model, (X, Y)), fg.Objective(model, uneven(16, 16, 18))
    operator = matrix(apart)
    for seed in range(2):
        vector = random_vector(whole, seed)
        assert_close(operator @ vector, matrix(whole) @ vector)
    assert operator.plan.objective.batch_count == 1
    assert operator.objective is apart
    assert apart.batch_count == 3
    assert sizes(apart) == [16, 16, 18]


def test_few_products_and_named_routes_leave_batches_apart():
    objective = fg.Objective(CASES["mlp"].model(), uneven(25, 25))
    vector = random_vector(objective)
    for hessian in (
        fg.Hessian(objective, expect=1),
        fg.Hessian(objective, "double-backward"),
    ):
        _ = hessian @ vector
        assert hessian.plan.objective is hessian.objective is objective


def test_the_default_set_is_measured_whole_where_batches_are_joined(monkeypatch):
    """A large tanh network's diagonal is estimated from one Hessian again and again."""
    monkeypatch.setattr(diagonal, "BASIS_PARAMETERS", 10)
    x, y = CASES["tanh"].data(40)
    batches = loader(list(zip(x.split(10), y.split(10), strict=True)))
    objective = fg.Objective(CASES["tanh"].model(), batches)
    report, given = fg.measure(objective), fg.Objective(CASES["tanh"].model(), (x, y))
    assert report.provenance.batches == 4
    for request, truth in fg.measure(given).measurements.items():
        found = report[request]
        assert found.status is truth.status, found.message
        assert found.value == pytest.approx(truth.value, rel=1e-5)
    hessian = fg.Hessian(objective)
    for _ in range(2):
        _ = hessian @ random_vector(objective)
        fg.hessian_diagonal(objective, "basis", hessian=hessian)
    assert hessian.plan.objective.batch_count == 1


def test_other_points_and_losses_go_back_to_the_given_batches():
    found = together(CASES["mlp"].model(), uneven(25, 25))
    assert (found.batch_count, found.sample_count) == (1, 50)
    assert found.value() == pytest.approx(found.at(found.parameters).value(), rel=1e-12)
    for other in (
        found.at(found.parameters),
        found.with_loss("normalized-cross-entropy"),
        found.with_model(found.model()),
    ):
        assert other.batch_count == 2
        assert sizes(other) == [25, 25]


def test_a_joined_batch_holds_what_is_enough_and_no_more(monkeypatch):
    alone = fg.Objective(CASES["mlp"].model(), (X[:5].clone(), Y[:5].clone()))
    with alone.isolated(), SavedBytes() as saved:
        alone.batch_total(alone.leaves(), next(alone.batches()))
    monkeypatch.setattr(joining, "ENOUGH", int(3.5 * saved.total))
    assert sizes(together(CASES["mlp"].model(), uneven(*[5] * 10))) == [15, 15, 15, 5]
    # A batch of one sample saves the weights, too: it makes the others look no smaller.
    small = sizes(together(CASES["mlp"].model(), uneven(1, *[5] * 9, 4)))
    assert sum(small) == 50
    assert max(small) <= 15
    monkeypatch.setattr(joining, "ENOUGH", 0)
    assert together(CASES["mlp"].model(), uneven(*[5] * 10)).batch_count == 10


def test_data_that_fill_the_budget_are_not_copied():
    objective = fg.Objective(CASES["mlp"].model(), uneven(25, 25))
    needed = sum(t.nbytes for t in (X, Y)) * joining.DATA_SHARE
    assert joined(objective, TRUTH, BUDGET).batch_count == 1
    assert joined(objective, TRUTH, needed - 1) is objective


def test_every_length_has_a_limit_of_its_own(monkeypatch):
    """What attention saves grows with the square of the length."""
    monkeypatch.setattr(joining, "ENOUGH", 2**20)
    case = CASES["gpt"]
    x, y = case.data(count=32)
    short = [(x[i : i + 1, :2], y[i : i + 1, :2]) for i in range(16)]
    long = [(x[i : i + 1], y[i : i + 1]) for i in range(16, 32)]
    found = together(case.model(), loader(short + long))
    for batch in found.batches():
        with found.isolated(), SavedBytes() as saved:
            found.batch_total(found.leaves(), map_batch(torch.clone, batch))
        assert saved.total <= joining.ENOUGH


def test_streams_that_do_not_fit_are_not_read_once_more(monkeypatch):
    monkeypatch.setattr(data_module, "memory_budget", lambda *_: 2)
    read = []

    class Stream(IterableDataset):
        def __iter__(self):
            for x, y in zip(X.split(10), Y.split(10), strict=True):
                read.append(len(x))
                yield x, y

    objective = fg.Objective(CASES["mlp"].model(), loader(Stream()))
    read.clear()
    _ = fg.Hessian(objective) @ random_vector(objective)
    assert len(read) <= 6


class Centred(nn.Linear):
    def forward(self, x):
        return super().forward(x - x.mean(0))


class OfSixteen(nn.Linear):
    def forward(self, x):
        return super().forward(x.reshape(-1, 16, 4)[:1].flatten(0, 1))


class Residual(nn.Module):
    """Batch statistics that no output shows while their gain is 0."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(4, track_running_stats=False)
        nn.init.zeros_(self.norm.weight)

    def forward(self, x):
        return self.head(x + self.norm(self.inner(x)))


class Crowded(nn.Linear):
    """Looks at its batch only where that is large."""

    def forward(self, x):
        return super().forward(x if len(x) <= 32 else x / 2)


class Capacity(nn.Linear):
    """An expert that takes three quarters of a batch at most."""

    def forward(self, x):
        wanted = x[:, 0] > 0
        taken = wanted & (wanted.cumsum(0) <= 0.75 * len(x))
        return super().forward(x) * torch.where(taken, 1.0, 0.5)[:, None]


class Referring(nn.Linear):
    def forward(self, x, ref=None):
        return super().forward(x if ref is None else x - ref.mean(0))


class Offset(Centred):
    """Outputs so large that their differences seem small."""

    def forward(self, x):
        return super().forward(x) + 1e5


@pytest.mark.parametrize(
    "model", [Centred(4, 3), OfSixteen(4, 3), Residual(), Crowded(4, 3), Offset(4, 3)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_that_influence_each_other_stay_apart(model, dtype):
    data = loader([(X[:16], Y[:16]), (X[16:32], Y[16:32])])
    if isinstance(model, Crowded):
        data = uneven(20, 30)
    assert together(model.to(dtype), data).batch_count == 2


def test_every_batch_is_looked_at():
    """The first two tell nothing about what comes later."""
    x = X.clone()
    x[:20, 0] = torch.tensor([1.0, -1.0]).repeat(10)
    x[20:40, 0], x[40:, 0] = 1.0, -1.0
    batches = list(zip(x.split(10), Y.split(10), strict=True))
    assert together(Capacity(4, 3).double(), loader(batches)).batch_count == 5
    parts = [{"x": X[i : i + 10], "labels": Y[i : i + 10]} for i in range(0, 40, 10)]
    for part in parts[2:]:
        part["ref"] = part["x"]
    assert together(Referring(4, 3).double(), loader(parts)).batch_count == 4


def test_no_curvature_is_no_agreement():
    y = Y[:40].clone().reshape(-1, 1)
    y[:16] = y[20:36] = -100

    class Tokens(Residual):
        def forward(self, x):
            return super().forward(x)[:, None]

    parts = loader([(X[:20], y[:20]), (X[20:40], y[20:])])
    assert together(Tokens().double(), parts).batch_count == 2


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
    assert together(CASES["mlp"].model(), uneven(25, 25), **options).batch_count == 2


def test_batches_of_other_lengths_are_joined_with_their_like():
    case = CASES["gpt"]
    x, y = case.data(count=10)
    parts = [(x[:3], y[:3]), (x[3:6], y[3:6])]
    parts += [(x[6:8, :4], y[6:8, :4]), (x[8:, :4], y[8:, :4])]
    found = together(case.model(), loader(parts))
    assert sizes(found) == [6, 4]
    apart = fg.Objective(case.model(), loader(parts))
    assert_close(found.gradient(), apart.gradient())


def test_mappings_are_joined_and_other_things_are_not():
    class Named(nn.Linear):
        def forward(self, x, note=None):
            return super().forward(x)

    parts = [{"x": X[:20], "labels": Y[:20]}, {"x": X[20:], "labels": Y[20:]}]
    model = Named(4, 3).double()
    assert together(model, loader(parts)).batch_count == 1
    assert together(model, loader([p | {"note": "a"} for p in parts])).batch_count == 2
    # Rows that are not laid out as samples.
    flat = [(p["x"].reshape(-1, 2, 4), p["labels"]) for p in parts]
    assert (
        together(nn.Sequential(nn.Flatten(0, 1), model), loader(flat)).batch_count == 2
    )


@pytest.mark.gpu
def test_small_batches_are_joined_on_a_gpu():
    model = CASES["mlp"].model()
    data = [(X[:16], Y[:16]), (X[16:32], Y[16:32]), (X[32:], Y[32:])]
    hessian = fg.Hessian(fg.Objective(model, data, device="cuda"))
    whole = fg.Objective(model, (X, Y))
    vector = random_vector(whole)
    image = hessian @ {name: part.cuda() for name, part in vector.items()}
    assert hessian.plan.objective.batch_count == 1
    assert_close({n: t.cpu() for n, t in image.items()}, fg.Hessian(whole) @ vector)


def test_coupled_batches_are_never_joined():
    """Not even where the first samples do not show that they influence each other."""

    class Late(nn.Linear):
        def forward(self, x):
            return super().forward(x) + x[45:].sum()

    torch.manual_seed(0)
    model = Late(X.shape[1], 3).to(X.dtype)
    late = torch.cat([X, X[:50]])
    labels = torch.cat([Y, Y[:50]])
    parts = [(late[:50], labels[:50]), (late[50:], labels[50:])]
    objective = fg.Objective(model, loader(parts))
    assert objective.coupled
    assert joined(objective, TRUTH, BUDGET) is objective


def test_a_lone_batch_between_joined_ones_keeps_its_own_product():
    x = torch.randint(0, 5, (10, 7), generator=torch.Generator().manual_seed(0))
    y = torch.arange(10) % 3
    lengths = [5, 5, 7, 5, 5]
    parts = [
        (x[2 * i : 2 * i + 2, :n], y[2 * i : 2 * i + 2]) for i, n in enumerate(lengths)
    ]
    objective = fg.Objective(Words().double(), loader(parts))
    hessian, vector = fg.Hessian(objective), random_vector(objective)
    truth = fg.Hessian(objective, "double-backward") @ vector
    for _ in range(2):
        assert_close(hessian @ vector, truth)
    read = hessian.plan.objective
    with read.isolated():
        assert [batch.index for batch in read.batches()] == [0, 1, 2]


class Words(nn.Module):
    """The mean of word vectors, of any number of words."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(5, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.words(x).mean(1).tanh())
