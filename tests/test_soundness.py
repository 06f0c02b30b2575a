from __future__ import annotations

from contextlib import suppress

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support import sound
from support.cases import mlp
from support.unsound import PARTS, Cube
from torch import nn

import flatgauge as fg
from flatgauge.errors import LossError, ModelError, OptionError
from flatgauge.report.sections import provenance
from flatgauge.results import Provenance
from flatgauge.soundness import few_of

X, Y = sound.data(0)
WRONG = r"derivatives are not those of the loss .*{}.*derivatives=\"as given\""


def with_part(name: str, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        part = PARTS[name](5)
        return nn.Sequential(nn.Linear(6, 5), part, mlp(5, 4, 3, activation=activation))


class TestUnsound:
    """Each is refused, and the module that causes it is named."""

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("name", PARTS)
    def test_a_part(self, name, dtype):
        model = with_part(name)
        where = rf"because of '1' \({type(model[1]).__name__}\)"
        with pytest.raises(ModelError, match=WRONG.format(where)):
            fg.Objective(model, (X, Y), dtype=dtype)

    @pytest.mark.parametrize("tokens", [torch.arange(12), torch.arange(12) % 5])
    def test_gradients_scaled_by_frequency(self, tokens):
        embedding = nn.Embedding(12, 4, scale_grad_by_freq=True)
        model = nn.Sequential(embedding, nn.Tanh(), nn.Linear(4, 3))
        with pytest.raises(ModelError, match=r"because of '0' \(Embedding\)"):
            fg.Objective(model, (tokens, Y))

    def test_the_models_own_forward(self):
        class Net(nn.Linear):
            def forward(self, x):
                h = super().forward(x)
                return h * h.detach()

        with pytest.raises(ModelError, match=r"the model's own forward \(Net\)"):
            fg.Objective(Net(6, 3), (X, Y))

    def test_the_loss(self):
        def loss(f, y):
            return F.cross_entropy(f * f.detach(), y)

        with pytest.raises(ModelError, match="because of the loss"):
            fg.Objective(mlp(6, 3), (X, Y), loss)
        objective = fg.Objective(mlp(6, 3), (X, Y))
        with pytest.raises(ModelError, match="because of the loss"):
            objective.with_loss(loss)

    def test_forward(self):
        def forward(model, batch):
            h = model(batch[0])
            return h * h.detach()

        with pytest.raises(ModelError, match="because of forward= or the loss"):
            fg.Objective(mlp(6, 3), (X, Y), forward=forward)

    def test_behind_a_head_of_zeros(self):
        model = with_part("half-detached")
        for parameter in model[-1].parameters():
            parameter.data.zero_()
        with pytest.raises(ModelError, match=r"because of '1' \(HalfDetached\)"):
            fg.Objective(model, (X, Y))

    def test_another_model(self):
        objective = fg.Objective(mlp(6, 5, 3), (X, Y))
        with pytest.raises(ModelError, match=r"because of '1' \(Cube\)"):
            objective.with_model(nn.Sequential(nn.Linear(6, 3), Cube()))

    @given(st.integers(0, 10_000), st.sampled_from(sorted(PARTS)), st.data())
    @settings(max_examples=5)
    def test_a_part_anywhere(self, seed, name, draw):
        """Between smooth layers, whose second derivatives torch knows."""
        count = draw.draw(st.integers(1, 4))
        place = draw.draw(st.integers(0, count - 1))
        smooth = draw.draw(st.sampled_from([nn.Tanh, nn.SiLU, nn.GELU, nn.ReLU]))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            layers = [nn.Sequential(nn.Linear(6, 6), nn.Tanh())]
            layers += [nn.Sequential(nn.Linear(6, 6), smooth()) for _ in range(count)]
            layers[1 + place] = nn.Sequential(layers[1 + place], PARTS[name](6))
            model = nn.Sequential(*layers, nn.Linear(6, 3))
        with pytest.raises(ModelError, match=rf"because of '{1 + place}\.1'"):
            fg.Objective(model, (X, Y))


class TestSound:
    """No false alarm."""

    @given(st.integers(0, 10_000))
    @settings(max_examples=12)
    def test_networks(self, seed):
        model = nn.Sequential(*sound.parts(seed))
        # The normalized loss has none where a dead layer gives equal scores.
        with suppress(LossError):
            fg.Objective(model, sound.data(seed), **sound.options(seed))

    @pytest.mark.parametrize("name", sound.HARD)
    def test_hard_ones(self, name):
        assert sound.HARD[name].objective().derivatives in ("checked", "undecided")

    def test_module_hooks_are_dropped_and_the_derivatives_right(self):
        model = mlp(6, 5, 3, activation=nn.Tanh)
        expected = fg.Objective(model, (X, Y)).gradient()
        model[0].register_full_backward_hook(lambda m, gi, go: (3 * go[0] @ m.weight,))
        model[2].register_full_backward_pre_hook(lambda m, go: (3 * go[0],))
        found = fg.Objective(model, (X, Y)).gradient()
        assert all(torch.allclose(found[name], expected[name]) for name in expected)

    def test_numbers_that_are_not_finite_are_reported_where_they_matter(self):
        class Root(nn.Linear):
            def forward(self, x):
                return super().forward(x * 0).abs().sqrt()

        assert fg.Objective(Root(6, 3, bias=False), (X, Y)).derivatives == "undecided"


class TestAsGiven:
    """Autograd's word, and the result says so."""

    def test_nothing_is_refused_and_provenance_says_so(self):
        objective = fg.Objective(with_part("numpy"), (X, Y), derivatives="as given")
        report = fg.measure(objective, "hessian-trace")
        assert report.provenance.derivatives == "as given"
        assert "seed 0, derivatives as given." in provenance(report.to_dict())
        other = objective.with_model(with_part("hook"))
        assert other.derivatives == "as given"

    def test_checked_is_said_too_and_kept(self):
        objective = fg.Objective(mlp(6, 3), (X, Y))
        report = fg.measure(objective.at(objective.parameters), "hessian-trace")
        assert report.provenance.derivatives == "checked"

    def test_results_without_the_field_open(self):
        facts = fg.measure(
            fg.Objective(mlp(6, 3), (X, Y)), "hessian-trace"
        ).provenance.__dict__.copy()
        del facts["derivatives"]
        assert Provenance(**facts).derivatives == "as given"

    def test_other_words(self):
        with pytest.raises(OptionError, match="use 'checked' or 'as given'"):
            fg.Objective(mlp(6, 3), (X, Y), derivatives="no")


class TestReach:
    """A parameter that is read past its attribute cannot be replaced."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
            self.tied = [self.enc.weight]

        def forward(self, x):
            return self.head(torch.tanh(self.enc(x)) @ self.tied[0])

    @pytest.mark.parametrize("derivatives", ["checked", "as given"])
    def test_read_twice(self, derivatives):
        with pytest.raises(
            ModelError, match=r"'enc\.weight' through a reference of its"
        ):
            fg.Objective(self.Tied(), (X, Y), derivatives=derivatives)

    def test_all_read_past(self):
        class Past(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(6, 3))
                self.kept = {"weight": self.weight}

            def forward(self, x):
                return x @ self.kept["weight"]

        with pytest.raises(ModelError, match="'weight' through a reference of its own"):
            fg.Objective(Past(), (X, Y))

    def test_read_through_a_view_that_was_made_before(self):
        model = self.Tied()
        model.tied = [model.enc.weight.T]
        with pytest.raises(
            ModelError, match=r"shape \(6, 6\)\), .*compute it in forward"
        ):
            fg.Objective(model, (X, Y))

    def test_tied_by_attributes_is_fine(self):
        model = self.Tied()
        model.tied = nn.ParameterList([model.enc.weight])
        assert fg.Objective(model, (X, Y)).derivatives == "checked"


class Counted(nn.Module):
    """Notes how many samples each pass has; the list is shared by all copies."""

    passes: list[int] = []  # noqa: RUF012

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        self.passes.append(len(x))
        return self.inner(x)


def small_passes(model: nn.Module, derivatives: str) -> int:
    """Forward passes on four samples."""
    Counted.passes.clear()
    with suppress(ModelError):
        fg.Objective(Counted(model), (X, Y), derivatives=derivatives)
    return Counted.passes.count(4)


def test_the_cost():
    """Three sets of samples for five gradients each; 24 at most.

    One forward pass tries whether the small problem runs at all.
    """
    assert small_passes(mlp(6, 5, 3), "as given") == 0
    assert small_passes(mlp(6, 5, 3), "checked") == 3 * (1 + 1 + 2)
    assert max(Counted.passes) == len(X)
    # Where nothing is decided: nine steps of one set.
    hidden = nn.Sequential(mlp(6, 3), sound.Apply(lambda f: (f.float() + 1e9).double()))
    forward = small_passes(hidden.double(), "checked")
    assert forward == 1 + 1 + 2 * 9
    assert 3 + 2 * 9 <= 24


class HookedLate(nn.Module):
    """A hook that changes gradients, behind units that only some samples wake up."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = self.body(x).tanh() * (x[:, :1] > 0)
        if h.requires_grad:
            h.register_hook(lambda slope: 2 * slope)
        return self.head(h)


@pytest.mark.parametrize("batch_size", [12, 4, 1])
def test_a_part_that_few_samples_reach(batch_size):
    """And samples that the loss ignores."""
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)).double()
    x[:, 0] = -x[:, 0].abs()
    x[[2, 3, 4], 0] *= -1
    y = torch.arange(12) % 2
    y[[0, 5, 6, 10, 11]] = -100
    with pytest.raises(ModelError, match="derivatives are not those of the loss"):
        fg.Objective(HookedLate().double(), (x, y), batch_size=batch_size)


def test_a_part_that_only_later_batches_reach():
    x = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)).double()
    x[:, 0] = x[:, 0].abs() * torch.tensor([-1.0] * 6 + [1.0] * 3)
    data = (x, torch.arange(9) % 2)
    with pytest.raises(ModelError, match="derivatives are not those of the loss"):
        fg.Objective(HookedLate().double(), data, batch_size=3)


@pytest.mark.parametrize(
    ("count", "sets"),
    [
        (1, [[0, 0]]),
        (2, [[0, 1, 0]]),
        (3, [[0, 2, 0], [2, 0, 1]]),
        (100, [[0, 9, 99, 0], [93, 23, 70, 47], [85, 32, 61, 56]]),
    ],
)
def test_the_sets_of_few_samples_are_different(count, sets):
    data = torch.arange(float(count))[:, None]
    batches = list(fg.Objective(nn.Linear(1, 1), (data, data), loss="mse").batches())
    found = [few.inputs[:, 0].int().tolist() for few in few_of(batches, len(batches))]
    assert found == sets
