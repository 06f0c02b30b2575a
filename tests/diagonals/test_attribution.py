"""Networks that look plain on their first samples, and are not on later ones."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import flatgauge as fg
from flatgauge.diagonals.per_sample import SquaredGradients

SETTINGS = settings(max_examples=12, deadline=None, derandomize=True)


class Experts(nn.Module):
    """Two layers, each for the samples on its side of x₀ = 0."""

    def __init__(self, positions: int = 1, activation=F.relu):
        super().__init__()
        self.left, self.right = nn.Linear(4, 5), nn.Linear(4, 5)
        self.head = nn.Linear(5, 3)
        self.positions, self.activation = positions, activation

    def forward(self, x):
        h = torch.zeros(x.shape[0], 5, dtype=x.dtype, device=x.device)
        for expert, side in ((self.left, x[:, 0] > 0), (self.right, x[:, 0] <= 0)):
            chosen = side.nonzero()[:, 0]
            h = h.index_add(0, chosen, self.activation(expert(x[chosen])))
        return self.head(h)


class LateHead(nn.Module):
    """A second head that works for some samples only, and is skipped without them."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.late = (
            nn.Linear(4, 5),
            nn.Linear(5, 3),
            nn.Linear(5, 3),
        )

    def forward(self, x):
        h = F.relu(self.body(x))
        out = self.head(h)
        late = x[:, 0] < 0
        if late.any():
            out = out + self.late(h) * late[:, None]
        return out


class TimeFirst(nn.Module):
    """Sequences flattened with time in front of the samples, where they are long."""

    def __init__(self):
        super().__init__()
        self.mix, self.head = nn.Linear(2, 5), nn.Linear(5, 3)

    def forward(self, x):
        steps = x.reshape(x.shape[0], 2, 2)
        turned = (x[:, 0] < 0).any()
        flat = (steps.transpose(0, 1) if turned else steps).reshape(-1, 2)
        h = F.relu(self.mix(flat))
        h = h.reshape(2, -1, 5).sum(0) if turned else h.reshape(-1, 2, 5).sum(1)
        return self.head(h)


class UsedAgain(nn.Module):
    """A layer that some batches use a second time, past what a function mode can see."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = F.relu(self.body(x))
        late = x[:, :1] < 0
        if late.any():
            h = h + late * torch.func.vmap(lambda row: self.body.weight @ row)(x)
        return self.head(h)


class Unseen(torch.autograd.Function):
    """x Wᵀ, as a kernel of one's own would do it."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        with torch._C.DisableTorchFunction():
            return x @ weight.T

    @staticmethod
    def backward(ctx, slope):
        x, weight = ctx.saved_tensors
        return slope @ weight, slope.T @ x


class UsedBehind(nn.Module):
    """A layer that some batches use unseen on the way to its input, too."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        late = x[:, :1] < 0
        if late.any():
            x = torch.where(late, Unseen.apply(x, self.body.weight).relu(), x)
        return self.head(self.body(x))


NETWORKS = [Experts, LateHead, TimeFirst, UsedAgain]


def build(make, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make().double()


def samples(count: int, negative: int, seed: int = 0):
    """The last `negative` samples have x₀ < 0, all others x₀ > 0."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=random, dtype=torch.float64)
    x[:, 0] = x[:, 0].abs() + 0.1
    x[count - negative :, 0] *= -1
    return x, torch.randint(0, 3, (count,), generator=random)


def plain_squares(model, x, y):
    """E(∂_i ℓ)² by plain differentiation of one sample at a time."""
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for row, target in zip(x.split(1), y.split(1), strict=True):
        value = F.cross_entropy(model(row), target)
        slopes = torch.autograd.grad(
            value, list(model.parameters()), allow_unused=True, materialize_grads=True
        )
        for name, slope in zip(total, slopes, strict=True):
            total[name] += slope.square() / len(y)
    return total


def plain_trace(model, x, y):
    """Tr ∇²L by double backward of the whole data, coordinate by coordinate."""
    parameters = list(model.parameters())
    slopes = torch.autograd.grad(
        F.cross_entropy(model(x), y), parameters, create_graph=True
    )
    flat = torch.cat([slope.reshape(-1) for slope in slopes])
    places = [(i, j) for i, p in enumerate(parameters) for j in range(p.numel())]
    return sum(
        float(
            torch.autograd.grad(flat[k], parameters[i], retain_graph=True)[0].reshape(
                -1
            )[j]
        )
        for k, (i, j) in enumerate(places)
    )


@pytest.mark.parametrize("make", NETWORKS)
@pytest.mark.parametrize("batch_size", [None, 5, 1])
def test_what_later_samples_do_is_seen(make, batch_size):
    model, (x, y) = build(make), samples(12, 4)
    objective = fg.Objective(model, (x, y), batch_size=batch_size)
    report = fg.measure(objective, "hessian-trace", "fisher-rao-norm[diagonal=True]")
    trace, norm = report.measurements.values()
    right = plain_squares(model, x, y)
    expected = sum(
        float((p.detach().square() * right[n]).sum())
        for n, p in model.named_parameters()
    )
    assert norm.value == pytest.approx(expected, rel=1e-9)
    assert trace.value == pytest.approx(plain_trace(model, x, y), rel=1e-9)
    assert trace.status is fg.Status.EXACT


@pytest.mark.parametrize("batch_size", [8, 4, 12])
def test_a_use_behind_the_operation_itself_is_seen(batch_size):
    model, (x, y) = build(UsedBehind), samples(12, 4)
    objective = fg.Objective(model, (x, y), batch_size=batch_size)
    found = fg.measure(objective, "fisher-rao-norm[diagonal=True]")
    (norm,) = found.measurements.values()
    right = plain_squares(model, x, y)
    expected = sum(
        float((p.detach().square() * right[n]).sum())
        for n, p in model.named_parameters()
    )
    assert norm.status is fg.Status.EXACT
    assert norm.value == pytest.approx(expected, rel=1e-9)


@SETTINGS
@given(
    make=st.sampled_from(NETWORKS),
    seed=st.integers(0, 100),
    count=st.integers(2, 9),
    negative=st.integers(0, 9),
    batch_size=st.integers(1, 9),
    shuffled=st.booleans(),
)
def test_orders_and_batches_change_nothing(
    make, seed, count, negative, batch_size, shuffled
):
    model = build(make, seed)
    x, y = samples(count, min(negative, count), seed)
    if shuffled:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        x, y = x[order], y[order]
    objective = fg.Objective(model, (x, y), batch_size=batch_size)
    found = fg.hessian_diagonal(objective)
    assert found.exact
    total = sum(float(h.sum()) for h in found.values.values())
    assert total == pytest.approx(plain_trace(model, x, y), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_only_what_is_not_explained_goes_sample_by_sample(dtype):
    """Both experts of a batch are not laid out by samples; the head is."""
    x, y = samples(8, 4)
    objective = fg.Objective(build(Experts), (x, y), dtype=dtype)
    squares = SquaredGradients(objective)
    asked = []
    shares = squares._shares()
    plain = type(shares).singly

    def noted(self, batch, passes, names):
        asked.append(set(names))
        return plain(self, batch, passes, names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(shares), "singly", noted)
        fg.hessian_diagonal(objective, "exact")
    layers = {name.split(".")[0] for name in asked[-1]}
    assert layers == {"left", "right"}


def test_a_batch_that_depends_on_no_parameter():
    """All units of its samples are dead; the others' are not."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU()).double()
    model[0].weight.data = torch.eye(2, dtype=torch.float64)
    x = torch.tensor([[-1.0, -2.0], [1.0, 2.0]], dtype=torch.float64)
    y = torch.tensor([0, 1])
    objective = fg.Objective(model, (x, y), batch_size=1)
    found = fg.measure(objective, "hessian-trace", "fisher-rao-norm[diagonal=True]")
    assert all(one.status is fg.Status.EXACT for one in found.measurements.values())
    assert found["hessian-trace"].value == pytest.approx(plain_trace(model, x, y))


class Sorted(nn.Module):
    """Rows sorted by side before a layer, with inputs that hide small slopes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2, bias=False)

    def forward(self, x):
        rows = x.reshape(-1, 3)
        side = (rows[:, 0] > 0).long()
        order = side.argsort(stable=True)
        h = self.linear(rows[order])[order.argsort()] / rows.norm(dim=1, keepdim=True)
        h = h * torch.where(side == 1, 1.0, 0.5)[:, None]
        return h.view(len(x), 2, -1).sum(1)


def test_large_inputs_hide_no_small_slopes():
    x = torch.randn(8, 2, 3, generator=torch.Generator().manual_seed(0)).double()
    x[..., 0] = -x[..., 0].abs()
    x[6:] *= 1e9
    x[6:, 1, 0] *= -1
    y = torch.arange(8) % 2
    model = build(Sorted)
    found = fg.hessian_diagonal(fg.Objective(model, (x, y)))
    total = sum(float(h.sum()) for h in found.values.values())
    assert total == pytest.approx(plain_trace(model, x, y), rel=1e-9)


class Coupled(nn.Module):
    """Two samples that influence each other; another has outputs that dwarf theirs."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x):
        h = x[:, :4] @ self.weight
        mark, offset = x[:, 4:5], x[:, 5:]
        return h + 0.3 * mark * (mark * h).sum(0, keepdim=True) + offset


@pytest.mark.parametrize("pair", [[5, 6], [2, 9]])
@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_a_large_output_hides_no_coupling(pair, offset):
    x = torch.zeros(12, 6, dtype=torch.float64)
    x[:, :4] = samples(12, 0)[0]
    x[pair, 4], x[0, 5] = 1.0, offset
    model, y = build(Coupled), samples(12, 0)[1]
    objective = fg.Objective(model, (x, y))
    found = fg.measure(objective, "hessian-trace", "fisher-rao-norm[diagonal=True]")
    assert found["fisher-rao-norm[diagonal=True]"].value is None
    trace = found["hessian-trace"].value
    assert trace is None or trace == pytest.approx(plain_trace(model, x, y), rel=1e-7)
