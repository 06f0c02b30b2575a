"""Networks whose samples influence each other make the batch the unit."""

from __future__ import annotations

import pytest
import torch
from support.fifty import X, Y, batches, net
from torch import nn

import flatgauge as fg
from flatgauge.errors import ModelError
from flatgauge.units.network import _change
from flatgauge.units.samples import odd_cut


class Attention(nn.Module):
    """Attention across the batch, behind a gate."""

    def __init__(self, gate: float):
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)
        self.gate = nn.Parameter(torch.tensor(gate))

    def forward(self, x):
        h = self.first(x).tanh()
        return self.last(h + self.gate * (h @ h.T).softmax(1) @ h)


class Centred(nn.Linear):
    def forward(self, x):
        return super().forward(x - x.mean(0))


class Pairs(nn.Linear):
    """Samples 2i and 2i + 1 see each other."""

    def forward(self, x):
        pairs = super().forward(x).reshape(-1, 2, 3)
        return (pairs + 0.1 * pairs.flip(1)).reshape(-1, 3)


class Later(nn.Linear):
    """Couples samples only where one is large."""

    def forward(self, x):
        large = (x.abs().amax(1) > 50).to(x.dtype)
        return super().forward(x / x.abs().amax(1, keepdim=True) + large.mean())


COUPLED = {
    "attention": lambda: Attention(0.5),
    "behind a closed gate": lambda: Attention(0.0),
    "centred": lambda: Centred(4, 3),
    "pairs": lambda: Pairs(4, 3),
}


def seeded(build):
    torch.manual_seed(0)
    return build().double()


@pytest.mark.parametrize("case", COUPLED)
@pytest.mark.parametrize("loss", ["cross-entropy", nn.functional.cross_entropy])
def test_the_batch_is_the_unit(case, loss):
    objective = fg.Objective(seeded(COUPLED[case]), batches(20, 20, 10), loss)
    assert objective.coupled
    assert objective.batch_sizes == (20, 20, 10)


def test_provenance_holds_the_batches_and_samples_have_no_measures():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()
    objective = fg.Objective(model, batches(20, 20, 10), mode="train")
    assert objective.coupled
    found = fg.measure(objective, "hessian-trace", "fisher-rao-norm", "pac-bayes-bound")
    assert found.provenance.coupled
    assert found.provenance.batch_sizes == "2 × 20, 1 × 10"
    assert found["hessian-trace"].status is fg.Status.EXACT
    dense = float(fg.Hessian(objective).to_dense().trace())
    assert found["hessian-trace"].value == pytest.approx(dense, rel=1e-8)
    for name in ("fisher-rao-norm", "pac-bayes-bound"):
        assert found[name].status is fg.Status.NOT_APPLICABLE
    with pytest.raises(ModelError, match="influence each other"):
        fg.Fisher(objective)
    still = fg.measure(fg.Objective(model, batches(20, 30)), "fisher-rao-norm")
    assert not still.provenance.coupled
    assert still.provenance.batch_sizes == ""
    assert still["fisher-rao-norm"].status is fg.Status.EXACT


def test_coupling_that_only_a_later_batch_shows():
    x = X.clone()
    x[45] *= 100
    parts = [(x[:20], Y[:20]), (x[20:40], Y[20:40]), (x[40:], Y[40:])]
    model = seeded(lambda: Later(4, 3))
    assert fg.Objective(model, parts).coupled
    assert not fg.Objective(model, parts[:2]).coupled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e3])
def test_rounding_is_no_coupling(dtype, scale):
    """Saturated, tiny and large outputs in either precision."""
    model = net()
    for parameter in model[-1].parameters():
        parameter.data *= scale
    for size in (50, 16, 1):
        objective = fg.Objective(model, (X, Y), batch_size=size, dtype=dtype)
        assert not objective.coupled


def test_infinite_scores_of_masked_classes_are_no_coupling():
    class Masked(nn.Linear):
        def forward(self, x):
            scores = super().forward(x)
            return torch.cat([scores, torch.full_like(scores[:, :1], -torch.inf)], 1)

    model = seeded(lambda: Masked(4, 3))
    assert not fg.Objective(model, (X, Y), nn.functional.cross_entropy).coupled


def test_a_model_that_insists_on_its_batch_size():
    class Fixed(nn.Linear):
        def forward(self, x):
            return super().forward(x.reshape(10, 4))

    model = seeded(lambda: Fixed(4, 3))
    assert fg.Objective(model, (X, Y), batch_size=10).coupled


def test_another_architecture_is_looked_at_anew():
    plain = fg.Objective(net(), (X, Y))
    assert not plain.coupled
    assert plain.with_model(seeded(lambda: Attention(0.5))).coupled


def test_cuts_leave_no_small_groups_whole():
    assert [odd_cut(n) for n in (2, 3, 4, 12, 16, 50)] == [1, 1, 1, 7, 7, 23]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_that_are_0_hide_no_change_and_make_none(dtype):
    """Those of a dead unit, beside others that rounding changes."""
    outputs = torch.tensor([[0.0, 0.0], [0.5, -3.0], [2.0, 0.0]], dtype=dtype)
    rounded = outputs.clone()
    rounded[1, 1] *= 1 + torch.finfo(dtype).eps
    assert 0 < _change([outputs], [rounded]) < 2 * torch.finfo(dtype).eps
    for place in ((0, 0), (1, 0), (2, 1)):
        other = rounded.clone()
        other[place] += 0.1
        assert _change([outputs], [other]) > 0.03
    assert _change([outputs, outputs[:0]], [outputs, outputs[:0]]) == 0
    other = torch.full_like(outputs, float("nan"))
    assert _change([outputs], [other]) == float("inf")
    assert _change([other], [other]) == 0


class ScaledByTheRest(nn.Linear):
    """Rows of dead units are 0; all others are scaled by a mean over the batch."""

    def forward(self, x):
        y = super().forward(x)
        return y * (y[:, :1] > 0) * (1 + 1e-2 * y.mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_first_sample_without_outputs_hides_no_coupling(dtype):
    torch.manual_seed(1)
    model, x = ScaledByTheRest(6, 4), torch.randn(13, 6)
    assert not bool(model(x[:7])[0].any())
    data = x, torch.arange(13) % 3
    assert fg.Objective(model, data, batch_size=7, dtype=dtype).coupled
