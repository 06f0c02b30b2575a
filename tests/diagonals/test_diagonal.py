from __future__ import annotations

import pytest
import torch
from support.affine_networks import (
    AFFINE,
    NOT_AFFINE,
    SequenceFirst,
    build,
    data,
    image,
)
from support.cases import CASES, assert_close, mlp
from support.dense import dense_diagonal, dense_gauss_newton
from torch import nn

import flatgauge as fg
from flatgauge.diagonals.taps import tap
from flatgauge.errors import LossError, ModelError, NonFiniteError, OptionError
from flatgauge.vectors import ravel

LOSSES = ["cross-entropy", "normalized-cross-entropy", "mse"]


SIGNED = ["mlp", "lenet", "grouped", "transposed-grouped", "embedding", "functional"]
EXACT = [("cross-entropy", name) for name in AFFINE]
EXACT += [(loss, name) for loss in LOSSES[1:] for name in SIGNED]


@pytest.mark.parametrize(("loss", "name"), EXACT)
def test_exact_is_the_dense_diagonal(loss, name):
    objective = fg.Objective(build(AFFINE[name]), data(loss), loss, batch_size=4)
    found = fg.hessian_diagonal(objective)
    assert (found.method, found.exact, found.uncertainty) == ("exact", True, None)
    assert found.status is fg.Status.EXACT
    assert_close(found.values, dense_diagonal(objective))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("kernel", [(4, 3), (2, 4)])
def test_same_padding_of_even_kernels(kernel):
    model = build(lambda: image(nn.Conv2d(1, 3, kernel, padding="same")))
    objective = fg.Objective(model, data())
    found = fg.hessian_diagonal(objective, "exact")
    assert_close(found.values, dense_diagonal(objective))


@pytest.mark.parametrize("name", NOT_AFFINE)
def test_gauss_newton_is_never_called_exact_elsewhere(name):
    objective = fg.Objective(build(NOT_AFFINE[name]), data())
    found = fg.hessian_diagonal(objective)
    assert found.method == "basis"
    assert_close(found.values, dense_diagonal(objective))
    for method in ("exact", "probes"):
        with pytest.raises(ModelError, match=r"is not the Hessian's.*method='auto'"):
            fg.hessian_diagonal(objective, method)


@pytest.mark.parametrize("name", ["tanh", "gelu", "layer-norm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [1e-1, 1e-3, 1e-5])
def test_small_weights_do_not_hide_a_curved_network(name, dtype, factor):
    model = build(NOT_AFFINE[name], dtype)
    for parameter in model.parameters():
        parameter.data.mul_(factor)
    assert fg.hessian_diagonal(fg.Objective(model, data())).method == "basis"


@pytest.mark.parametrize("loss", LOSSES)
def test_batch_statistics_are_never_exact_by_gauss_newton(loss):
    model = build(CASES["resnet"].build)
    objective = fg.Objective(model, data(loss), loss, mode="train")
    found = fg.hessian_diagonal(objective)
    assert found.method == "basis"
    assert_close(found.values, dense_diagonal(objective))
    with pytest.raises(ModelError, match="is not the Hessian's"):
        fg.hessian_diagonal(objective, "exact")
    with pytest.raises(ModelError, match="samples of a batch influence each other"):
        fg.gauss_newton_diagonal(objective, "exact")
    assert fg.gauss_newton_diagonal(objective).method == "probes"


@pytest.mark.parametrize("outputs", [1, 2, 3, 10, 40])
def test_any_number_of_outputs(outputs):
    for loss in LOSSES:
        if loss.startswith("normalized") and outputs < 3:
            continue
        model = build(lambda: nn.Sequential(nn.Flatten(), mlp(64, 4, outputs)))
        objective = fg.Objective(model, data(loss, outputs), loss)
        found = fg.hessian_diagonal(objective, "exact")
        expected = dense_diagonal(objective)
        if outputs == 1 and loss == "cross-entropy":
            assert float(ravel(found.values).norm()) == 0
        else:
            assert_close(found.values, expected)


@pytest.mark.parametrize("loss", LOSSES[:2])
def test_segmentation(loss):
    model = build(
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 4, 5))
    )
    x, _ = data()
    y = torch.randint(0, 4, (6, 2, 2), generator=torch.Generator().manual_seed(2))
    y[0, 0, 1] = y[2] = -100
    objective = fg.Objective(model, (x, y), loss, batch_size=4)
    found = fg.hessian_diagonal(objective)
    assert found.method == "exact"
    assert_close(found.values, dense_diagonal(objective))


@pytest.mark.parametrize(
    "name", ["lenet", "transposed-grouped", "sequence-first", "frames"]
)
def test_small_chunks_change_nothing(name, monkeypatch):
    objective = fg.Objective(build(AFFINE[name]), data())
    whole = fg.hessian_diagonal(objective, "exact").values
    monkeypatch.setattr(tap, "CHUNK", 1)
    assert_close(fg.hessian_diagonal(objective, "exact").values, whole, 1e-14)


def test_a_first_batch_of_one_sample_hides_no_layout():
    model, (x, y) = build(SequenceFirst), data()
    objective = fg.Objective(model, [(x[:1], y[:1]), (x[1:], y[1:])])
    found = fg.hessian_diagonal(objective, "exact")
    assert_close(found.values, dense_diagonal(objective))


def test_auto_where_batches_do_not_split():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), mlp(64, 4, 3))

        def forward(self, x, mask):
            return self.net(x * mask)

    x, y = data()
    masked = fg.Objective(build(lambda: Sized(Masked())), [((x, torch.ones(8, 8)), y)])
    found = fg.hessian_diagonal(masked)
    assert found.method == "basis"
    assert_close(found.values, dense_diagonal(masked))
    with pytest.raises(ModelError, match=r"leading sizes \[6, 8\]"):
        fg.hessian_diagonal(masked, "exact")


class Sized(nn.Module):
    """Takes a missing mask as ones, so that the model can be initialized."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, mask=None):
        return self.inner(x, torch.ones(8, 8) if mask is None else mask)


@pytest.mark.parametrize(
    ("loss", "outputs"),
    [
        ("cross-entropy", 3),
        ("normalized-cross-entropy", 3),
        ("normalized-cross-entropy", 300),
        ("mse", 3),
    ],
)
def test_probes_are_unbiased_with_honest_errors(loss, outputs):
    model = build(
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(64, 3), nn.ReLU(), nn.Linear(3, outputs)
        )
    )
    objective = fg.Objective(model, data(loss, outputs, 4), loss, batch_size=3)
    found = fg.hessian_diagonal(objective, "probes", probes=400, seed=1)
    exact = fg.gauss_newton_diagonal(objective, "exact").values
    assert (found.method, found.exact, found.status) == (
        "probes",
        False,
        fg.Status.ESTIMATED,
    )
    distance = (ravel(found.values) - ravel(exact)).abs()
    error = ravel(found.uncertainty)
    assert bool((distance <= 5 * error + 1e-13).all())
    live = error > 0
    ratio = (distance[live] / error[live]).square().mean().sqrt()
    assert 0.2 < float(ratio) < 1.8


def test_many_outputs_are_estimated():
    model = build(lambda: nn.Sequential(nn.Flatten(), mlp(64, 60, 140)))
    objective = fg.Objective(model, data(outputs=140))
    found = fg.hessian_diagonal(objective)
    assert (found.method, found.exact) == ("probes", False)
    small = build(lambda: nn.Sequential(nn.Flatten(), mlp(64, 4, 140)))
    assert fg.hessian_diagonal(fg.Objective(small, data(outputs=140))).method == "basis"


@pytest.mark.parametrize("case", ["gpt", "tanh", "resnet-train", "lstm"])
@pytest.mark.parametrize("scaled", [True, False])
def test_hutchinson_is_unbiased(case, scaled):
    objective = CASES[case].objective(count=4)
    found = fg.hessian_diagonal(
        objective, "hutchinson", probes=200, scale_probes=scaled, seed=2
    )
    assert found.status is fg.Status.BIASED
    distance = (ravel(found.values) - ravel(dense_diagonal(objective))).abs()
    error = ravel(found.uncertainty)
    assert float((distance > 3.5 * error + 1e-12).double().mean()) < 0.02


def rescaled(model: nn.Module) -> nn.Module:
    """The same function: hidden units of the first layer scaled by powers of two."""
    twin = build(AFFINE["mlp"])
    twin.load_state_dict(model.state_dict())
    factors = torch.tensor([0.25, 8.0, 1.0, 2.0, 0.5, 16.0], dtype=torch.float64)
    first, second = twin[1][0], twin[1][2]
    first.weight.data *= factors[:, None]
    first.bias.data *= factors
    second.weight.data /= factors
    return twin


def test_scaled_hutchinson_is_equivariant():
    model = build(AFFINE["mlp"])
    one, two = (fg.Objective(m, data()) for m in (model, rescaled(model)))
    first, second = (
        fg.hessian_diagonal(objective, "hutchinson", probes=5, seed=4).values
        for objective in (one, two)
    )
    for name, tensor in one.parameters.items():
        weighted = first[name] * tensor.square()
        assert_close(second[name] * two.parameters[name].square(), weighted)


def test_the_exact_diagonal_is_equivariant():
    model = build(AFFINE["mlp"])
    one, two = (
        fg.Objective(m, data(), "normalized-cross-entropy")
        for m in (model, rescaled(model))
    )
    first, second = (fg.hessian_diagonal(o).values for o in (one, two))
    for name, tensor in one.parameters.items():
        weighted = first[name] * tensor.square()
        assert_close(second[name] * two.parameters[name].square(), weighted)


def test_finite_differences_of_a_smooth_network():
    objective = CASES["tanh"].objective()
    found = fg.hessian_diagonal(
        objective, "finite-difference", probes=80, relative_step=1e-4, seed=0
    )
    distance = (ravel(found.values) - ravel(dense_diagonal(objective))).abs()
    assert float((distance > 4 * ravel(found.uncertainty)).double().mean()) < 0.02
    assert found.status is fg.Status.BIASED


@pytest.mark.parametrize("case", ["gpt", "attention", "encoder", "lstm", "tied-frozen"])
def test_the_gauss_newton_diagonal_of_any_network(case):
    objective = CASES[case].objective(count=4)
    found = fg.gauss_newton_diagonal(objective, "exact")
    assert_close(ravel(found.values), dense_gauss_newton(objective).diagonal(), 1e-11)


def test_seeds():
    objective = CASES["mlp"].objective()
    draws = [
        ravel(fg.hessian_diagonal(objective, "probes", probes=3, seed=s).values)
        for s in (0, 0, 1)
    ]
    assert_close(draws[0], draws[1])
    assert not torch.allclose(draws[0], draws[2])


def test_options_that_are_refused():
    objective = CASES["mlp"].objective()
    with pytest.raises(OptionError, match="'magic' is not known: use 'auto', 'exact'"):
        fg.hessian_diagonal(objective, "magic")
    with pytest.raises(OptionError, match="'basis' is not known"):
        fg.gauss_newton_diagonal(objective, "basis")
    for function in (fg.hessian_diagonal, fg.gauss_newton_diagonal):
        with pytest.raises(OptionError, match="probes= is 1: give at least 2"):
            function(objective, "probes", probes=1)


def test_a_callable_loss():
    objective = CASES["mlp"].objective(lambda f, y: (f - y).square().mean())
    found = fg.hessian_diagonal(objective)
    assert found.method == "basis"
    assert_close(found.values, dense_diagonal(objective))
    with pytest.raises(LossError, match="use a named loss"):
        fg.gauss_newton_diagonal(objective)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name", ["lenet", "wide-resnet", "transposed-grouped", "embedding"]
)
def test_exact_on_a_gpu(name):
    model = build(AFFINE[name])
    found = fg.hessian_diagonal(fg.Objective(model, data(), device="cuda"))
    expected = dense_diagonal(fg.Objective(model, data()))
    assert found.method == "exact"
    assert_close({n: t.cpu() for n, t in found.values.items()}, expected, 1e-10)


def test_what_is_not_finite_is_refused_by_name(monkeypatch):
    """A matrix that is made at once is not looked at as products are."""
    torch.manual_seed(0)
    model = mlp(4, 5, 3, activation=nn.Tanh).double()
    objective = fg.Objective(model, (torch.randn(9, 4).double(), torch.arange(9) % 3))
    count = sum(one.numel() for one in objective.parameters.values())
    matrix = torch.zeros(count, count).double()
    matrix[3, 3] = float("nan")
    monkeypatch.setattr(fg.Hessian, "as_matrix", lambda self, instead_of: matrix)
    name = next(iter(objective.parameters))
    with pytest.raises(NonFiniteError, match=f"respect to '{name}' is not finite"):
        fg.hessian_diagonal(objective, method="basis")
    found = fg.measure(objective, "hessian-trace")["hessian-trace"]
    assert (found.status.name, found.value) == ("NOT_APPLICABLE", None)
    assert "is not finite" in found.message


def test_the_rounding_of_terms_that_cancel_is_stated():
    # Outputs w₂ w₁ x, whose scale the loss does not see: the curvature along a small w₁
    # is 0, made of terms as large as 1/w₁².
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 4, bias=False))
    model = model.double()
    small = 1e-5
    with torch.no_grad():
        model[0].weight.fill_(small)
        model[1].weight.copy_(torch.tensor([[0.3], [-0.7], [0.9], [0.2]]))
    data = (torch.tensor([[0.7], [1.3], [2.1]]).double(), torch.tensor([0, 2, 3]))
    objective = fg.Objective(model, data, loss="normalized-cross-entropy")
    found = fg.hessian_diagonal(objective, method="basis")
    off = found.values["0.weight"].abs().max()
    assert off > 0  # else this shows nothing
    bound = found.rounding["0.weight"].min()
    assert off <= bound <= 1e-9 / small**2
