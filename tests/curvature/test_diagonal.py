from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cases import CASES, assert_close, lenet, mlp
from torch import nn

import flatgauge as fg
from flatgauge.curvature import taps
from flatgauge.curvature.dense import dense_diagonal, dense_gauss_newton
from flatgauge.errors import LossError, ModelError, OptionError
from flatgauge.vectors import ravel

LOSSES = ["cross-entropy", "normalized-cross-entropy", "mse"]


def image(*layers: nn.Module, head: int = 3) -> nn.Module:
    """Layers, a global average and a linear head for images."""
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten(2), Mean(), nn.LazyLinear(head))


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(-1)


class PreActivation(nn.Module):
    """A block of a wide residual network: two convolutions, BatchNorm in front."""

    def __init__(self, width_in: int, width: int, stride: int):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(width_in), nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or width_in != width:
            self.shortcut = nn.Conv2d(width_in, width, 1, stride, bias=False)

    def forward(self, x):
        h = self.relu(self.norm1(x))
        skip = x if self.shortcut is None else self.shortcut(h)
        h = self.conv2(self.relu(self.norm2(self.conv1(h))))
        h += skip
        return h


class Frames(nn.Module):
    """Frames of a video as images of their own, with BatchNorm."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        frames = x.unflatten(2, (2, 4)).transpose(1, 2).flatten(0, 1)
        h = F.relu(self.norm(self.conv(frames))).mean((2, 3))
        return self.head(h.unflatten(0, (x.shape[0], 2)).sum(1))


class Words(nn.Module):
    """Embeddings of repeated words, and one layer used twice."""

    def __init__(self, reuse: bool = False):
        super().__init__()
        self.table = nn.Embedding(4, 3)
        self.mix = nn.Linear(3, 3)
        self.head = nn.Linear(3, 3)
        self.reuse = reuse

    def forward(self, x):
        h = self.table((x[:, 0, 0].abs() * 2).long().clamp(max=3))
        h = F.relu(self.mix(h))
        if self.reuse:
            h = F.relu(self.mix(h))
        return self.head(h.sum(1))


class TiedLinear(nn.Module):
    """A linear autoencoder's weight used twice: not affine in it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 64) * 0.2)
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        x = x.flatten(1)
        return self.head(F.relu(x @ self.weight.T) @ self.weight)


class Functional(nn.Module):
    """Weights that no recorded operation uses: routed sample by sample."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(64, 5) * 0.2)
        self.gain = nn.Parameter(torch.ones(5))
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(
            F.relu(torch.einsum("bi,ij->bj", x.flatten(1), self.matrix)) * self.gain
        )


class SequenceFirst(nn.Module):
    """Time in front of the batch, where a layer sees it."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(8, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(F.relu(self.mix(x[:, 0].transpose(0, 1))).sum(0))


def one_dimensional():
    return nn.Sequential(
        nn.Flatten(1, 2),
        nn.Conv1d(8, 4, 3, stride=2, padding=2, dilation=2, groups=2),
        nn.LeakyReLU(),
        nn.ConvTranspose1d(4, 2, 3, stride=2, padding=1, output_padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(3),
    )


AFFINE = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), mlp(64, 6, 5, 3)),
    "mlp-in-place": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)
    ),
    "lenet": lenet,
    "grouped": lambda: image(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3, groups=2)
    ),
    "depthwise": lambda: image(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=4)),
    "dilated": lambda: image(nn.Conv2d(1, 3, 3, dilation=2, padding=(2, 1))),
    "strided": lambda: image(nn.Conv2d(1, 3, (3, 2), stride=(2, 3), padding=1)),
    "same": lambda: image(
        nn.Conv2d(1, 3, (3, 5), padding="same", dilation=(1, 2)),
        nn.PReLU(),
        nn.Conv2d(3, 2, 3, padding="valid"),
    ),
    "reflected": lambda: image(nn.Conv2d(1, 3, 3, padding=1, padding_mode="reflect")),
    "transposed": lambda: image(nn.ConvTranspose2d(1, 3, 3, 2, 1, output_padding=1)),
    "transposed-grouped": lambda: image(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.ConvTranspose2d(
            4,
            6,
            (3, 2),
            (2, 1),
            (1, 0),
            output_padding=(1, 0),
            groups=2,
            dilation=(1, 2),
        ),
    ),
    "one-dimensional": one_dimensional,
    "batch-norm": CASES["resnet"].build,
    "wide-resnet": lambda: image(
        nn.Conv2d(1, 2, 3, 2, 1, bias=False),
        PreActivation(2, 2, 1),
        PreActivation(2, 3, 2),
        nn.BatchNorm2d(3),
    ),
    "frames": Frames,
    "embedding": Words,
    "functional": Functional,
    "sequence-first": SequenceFirst,
}
NOT_AFFINE = {
    "reuse": lambda: Words(reuse=True),
    "tied": TiedLinear,
    "tanh": lambda: nn.Sequential(nn.Flatten(), mlp(64, 4, 3, activation=nn.Tanh)),
    "gelu": lambda: nn.Sequential(nn.Flatten(), mlp(64, 4, 3, activation=nn.GELU)),
    "layer-norm": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, 4), nn.LayerNorm(4)
    ),
}


def build(make, dtype=torch.float64) -> nn.Module:
    """A model with random BatchNorm statistics."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = make()
        model(torch.randn(2, 1, 8, 8))
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(std=0.2)
                module.running_var.uniform_(0.5, 2.0)
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, std=0.2)
    return model.to(dtype)


def data(loss: str = "cross-entropy", outputs: int = 3, count: int = 6):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(count, 1, 8, 8, generator=random, dtype=torch.float64)
    if loss == "mse":
        return x, torch.randn(count, outputs, generator=random, dtype=torch.float64)
    return x, torch.randint(0, outputs, (count,), generator=random)


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
    monkeypatch.setattr(taps, "CHUNK", 1)
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


def test_scaled_hutchinson_is_exactly_equivariant():
    model = build(AFFINE["mlp"])
    one, two = (fg.Objective(m, data()) for m in (model, rescaled(model)))
    first, second = (
        fg.hessian_diagonal(objective, "hutchinson", probes=5, seed=4).values
        for objective in (one, two)
    )
    for name, tensor in one.parameters.items():
        weighted = first[name] * tensor.square()
        assert torch.equal(weighted, second[name] * two.parameters[name].square())


def test_the_exact_diagonal_is_equivariant():
    model = build(AFFINE["mlp"])
    one, two = (
        fg.Objective(m, data(), "normalized-cross-entropy")
        for m in (model, rescaled(model))
    )
    first, second = (fg.hessian_diagonal(o).values for o in (one, two))
    for name, tensor in one.parameters.items():
        weighted = first[name] * tensor.square()
        assert torch.equal(weighted, second[name] * two.parameters[name].square())


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
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


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
