from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from support.cases import CASES, assert_close, mlp, random_vector
from torch import nn
from torch.nn.utils import parametrizations

import flatgauge as fg
from flatgauge.curvature.dense import dense_hessian
from flatgauge.errors import ModelError
from flatgauge.network import Network
from flatgauge.vectors import add, scale

RANDOM = torch.Generator().manual_seed(0)
X = torch.randn(6, 4, generator=RANDOM, dtype=torch.float64)
Y = torch.tensor([0, 1, 2, 0, 1, 2])


def at_moved_point(objective: fg.Objective, model: nn.Module) -> tuple[float, float]:
    """The value at another point, by flatgauge and by changing the model itself."""
    moved = add(objective.parameters, random_vector(objective), 0.3)
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in moved.items():
            own[name].copy_(tensor)
        expected = F.cross_entropy(model.eval()(X), Y)
    return objective.at(moved).value(), float(expected)


class Wrapped(nn.Module):
    """A wrapper that passes everything on, as DataParallel does."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


class Scaled(nn.Module):
    """A zero-dimensional parameter, an empty one, an integer one and buffers."""

    def __init__(self):
        super().__init__()
        self.inner = mlp(4, 5, 3, activation=nn.Tanh)
        self.gain = nn.Parameter(torch.tensor(1.5))
        self.nothing = nn.Parameter(torch.zeros(0, 3))
        self.count = nn.Parameter(torch.tensor([2]), requires_grad=False)
        self.register_buffer("order", torch.tensor([2, 0, 1]))
        self.register_buffer("mask", torch.tensor([True, False, True]))

    def forward(self, x):
        scores = self.inner(x)[:, self.order] * self.gain * self.count
        return torch.where(self.mask, scores, 0.5 * scores) + self.nothing.sum()


def weight_normed():
    with pytest.warns(FutureWarning, match="weight_norm"):
        model = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 3)), nn.Tanh())
    model = model.double()
    model(X)
    return model


MODELS = {
    "wrapped": lambda: Wrapped(mlp(4, 5, 3)).double(),
    "odd-parameters": lambda: Scaled().double(),
    "old-weight-norm": weight_normed,
    "weight-norm": lambda: parametrizations.weight_norm(nn.Linear(4, 3)).double(),
    "spectral-norm": lambda: parametrizations.spectral_norm(nn.Linear(4, 3)).double(),
    "tied-frozen": CASES["tied-frozen"].model,
}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_replaced_wherever_they_are_read(name):
    model = MODELS[name]()
    objective = fg.Objective(model, (X, Y))
    wanted = {n for n, p in model.named_parameters() if p.requires_grad}
    assert set(objective.parameters) == wanted
    found, expected = at_moved_point(objective, model)
    assert found == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("name", MODELS)
def test_products_of_such_models(name):
    objective = fg.Objective(MODELS[name](), (X, Y))
    matrix = fg.Hessian(objective).to_dense()
    assert_close(matrix, dense_hessian(objective))
    assert_close(matrix, matrix.mT)
    fg.hessian_diagonal(objective)
    fg.hessian_diagonal(objective, "hutchinson", probes=2)
    fg.hessian_diagonal(objective, "finite-difference", probes=2)


def test_an_lstm_reads_the_replaced_parameters():
    case = CASES["lstm"]
    model, (x, y) = case.model(), case.data()
    objective = case.objective()
    moved = add(objective.parameters, random_vector(objective), 0.3)
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in moved.items():
            own[name].copy_(tensor)
        expected = float(F.cross_entropy(model(x), y))
    assert objective.at(moved).value() == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("name", ["old-weight-norm", "weight-norm"])
def test_weight_norm_has_right_second_derivatives(name):
    """The fused kernel's are wrong: compare with differences of the model's gradients."""
    model = MODELS[name]()
    objective = fg.Objective(model, (X, Y))
    vector = random_vector(objective)
    own = dict(model.named_parameters())

    def gradient(step):
        with torch.no_grad():
            for key, tensor in objective.parameters.items():
                own[key].copy_(tensor + step * vector[key])
        loss = F.cross_entropy(model(X), Y)
        slopes = torch.autograd.grad(loss, [own[key] for key in vector])
        return dict(zip(vector, slopes, strict=True))

    difference = scale(add(gradient(1e-5), gradient(-1e-5), -1.0), 1 / 2e-5)
    assert_close(fg.Hessian(objective) @ vector, difference, 1e-7)


def test_complex_buffers_keep_their_imaginary_part():
    class Rotary(nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.register_buffer("turn", torch.tensor([1.0, 1.0j]))

        def forward(self, x):
            pairs = torch.view_as_complex(super().forward(x).unflatten(-1, (2, 2)))
            return torch.view_as_real(pairs * self.turn).flatten(-2)

    model = Rotary().double()
    expected = float(F.cross_entropy(model(X), Y).detach())
    assert fg.Objective(model, (X, Y)).value() == pytest.approx(expected, rel=1e-13)


class Listed(nn.Module):
    """Reads a registered parameter through a list of its own."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.ones(3))
        self.listed = [self.scale]

    def forward(self, x):
        return self.first(x) * self.listed[0]


def test_a_parameter_read_through_a_list_is_refused():
    with pytest.raises(
        ModelError, match=r"reads 'scale' through a reference of its own"
    ):
        fg.Objective(Listed(), (X, Y))


def test_a_closure_over_the_users_model_is_refused():
    model = mlp(4, 3)
    with pytest.raises(ModelError, match=r"your model's own '0\.\w+'.*forward="):
        fg.Objective(model, (X, Y), forward=lambda _, batch: model(batch[0].float()))
    frozen = mlp(4, 3).requires_grad_(False)
    with pytest.raises(ModelError, match=r"not depend on any of the chosen.*forward="):
        fg.Objective(
            frozen,
            (X, Y),
            params=lambda name: True,
            forward=lambda _, batch: frozen(batch[0].float()),
        )


def test_a_loss_with_parameters_of_its_own_is_fine():
    temperature = torch.tensor(2.0, requires_grad=True)
    objective = fg.Objective(
        mlp(4, 3).double(), (X, Y), lambda f, y: F.cross_entropy(f * temperature, y)
    )
    vector = random_vector(objective)
    fg.Hessian(objective) @ vector
    fg.GaussNewton(objective) @ vector
    assert temperature.grad is None


def test_parameters_that_only_later_batches_use():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.low, self.high = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            return self.low(x) if float(x.sum()) < 0 else self.high(x)

    data = [(-X.abs(), Y), (X.abs(), Y)]
    model = Experts().double()
    objective = fg.Objective(model, data, params=lambda n: n.startswith("high"))
    assert float(objective.gradient()["high.weight"].norm()) > 0


def test_sparse_gradients_are_measured_as_dense_ones():
    tokens = torch.randint(0, 7, (12, 3), generator=torch.Generator().manual_seed(0))
    embedding = nn.Embedding(7, 4, sparse=True)
    model = nn.Sequential(embedding, nn.Flatten(), nn.LazyLinear(3))
    model(tokens)
    dense = copy.deepcopy(model)
    dense[0].sparse = False
    reports = [
        fg.measure(fg.Objective(one, (tokens, torch.arange(12) % 3)))
        for one in (model, dense)
    ]
    assert model[0].sparse
    for request, found in reports[0].measurements.items():
        assert found.status.trusted, (request, found.message)
        expected = pytest.approx(reports[1][request].value, rel=1e-5)
        assert found.value == expected


def test_train_mode_reaches_every_module_and_keeps_buffers():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    network = Network(
        model, device=None, dtype=None, mode="train", params=None, forward=None
    )
    assert all(module.training for module in network.model.modules())
    assert not model.training


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_scripted_models_are_refused_by_name():
    model = mlp(4, 3)
    for scripted in (
        torch.jit.script(model),
        torch.jit.trace(model, X.float()),
        nn.Sequential(torch.jit.script(model)),
    ):
        with pytest.raises(
            ModelError, match=r"is a ScriptModule .*pass the module that"
        ):
            fg.Objective(scripted, (X, Y))
        with pytest.raises(ModelError, match="is a ScriptModule"):
            fg.symmetries(scripted, X.float())


@pytest.mark.gpu
def test_weight_norm_on_a_gpu():
    model = MODELS["weight-norm"]()
    objective = fg.Objective(model, (X, Y), device="cuda")
    matrix = fg.Hessian(objective).to_dense().cpu()
    assert_close(matrix, dense_hessian(fg.Objective(model, (X, Y))), 1e-11)


@pytest.mark.gpu
def test_batches_on_another_device_are_moved():
    objective = fg.Objective(mlp(4, 3).double(), [(X.cuda(), Y.cuda())])
    assert objective.device.type == "cpu"
    mixed = nn.Sequential(nn.Linear(4, 3).cuda(), nn.Linear(3, 3)).double()
    with pytest.raises(
        ModelError, match=r"several devices \(cpu, cuda:0\): pass device="
    ):
        fg.Objective(mixed, (X, Y))
