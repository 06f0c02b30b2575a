from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from support.cases import (
    CASES,
    NETWORK_CASES,
    assert_close,
    known,
    known_network,
    random_vector,
)
from torch import nn

import flatgauge as fg
from flatgauge.curvature.dense import dense_eigenvalues, dense_hessian
from flatgauge.errors import ModelError, OptionError
from flatgauge.memory import SavedBytes
from flatgauge.vectors import ravel, unravel

LOSSES = {
    "cross-entropy": "cross-entropy",
    "mse": "mse",
    "normalized-cross-entropy": "normalized-cross-entropy",
    "lambda": lambda f, y: F.mse_loss(f, y) + 0.1 * f.square().mean(),
}
EVERYTHING = [(case, loss) for case in CASES for loss in LOSSES]
SMOOTH = ["tanh", "gelu", "gpt", "attention", "lstm"]


@functools.cache
def dense(case: str, loss: str) -> torch.Tensor:
    return dense_hessian(CASES[case].objective(LOSSES[loss]))


@pytest.mark.parametrize(("case", "loss"), EVERYTHING)
def test_products_match_the_dense_hessian(case, loss):
    objective = CASES[case].objective(LOSSES[loss], batch_size=None)
    operator = fg.Hessian(objective)
    vectors = [random_vector(objective, seed) for seed in range(2)]
    for vector, found in zip(vectors, operator @ vectors, strict=True):
        assert_close(ravel(found), dense(case, loss) @ ravel(vector))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("options", [{"memory_budget": 0}])
def test_other_ways_give_the_same(case, options):
    objective = CASES[case].objective()
    vector = random_vector(objective)
    expected = dense(case, "cross-entropy") @ ravel(vector)
    operator = fg.Hessian(objective, **options)
    assert_close(ravel(operator @ vector), expected)
    assert_close(ravel(operator @ vector), expected)


@pytest.mark.parametrize("case", SMOOTH)
def test_the_dense_reference_against_differences_of_gradients(case):
    """By torch alone, on the user's own module: nothing of ours but the data."""
    model, (x, y) = CASES[case].model(), CASES[case].data()
    names, tensors = zip(*model.named_parameters(), strict=True)
    start = torch.cat([t.detach().reshape(-1) for t in tensors])
    space = {n: t.detach() for n, t in zip(names, tensors, strict=True)}

    def gradient(flat):
        with torch.no_grad():
            for tensor, piece in zip(
                tensors, unravel(flat, space).values(), strict=True
            ):
                tensor.copy_(piece)
        scores = model(x)
        loss = F.cross_entropy(scores.flatten(0, -2), y.flatten())
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, tensors)])

    columns = []
    for index in range(start.numel()):
        step = torch.zeros_like(start)
        step[index] = 1e-5
        columns.append((gradient(start + step) - gradient(start - step)) / 2e-5)
    assert_close(dense(case, "cross-entropy"), torch.stack(columns, dim=1), 1e-8)


@pytest.mark.parametrize("name", NETWORK_CASES)
def test_known_answers(name):
    objective = known_network(name)
    matrix = fg.Hessian(objective).to_dense()
    eigenvalues = dense_eigenvalues(matrix)
    assert float(matrix.trace()) == pytest.approx(known(name, "trace"), rel=1e-10)
    assert float(eigenvalues[-1]) == pytest.approx(known(name, "lmax"), rel=1e-10)
    assert float(eigenvalues[0]) == pytest.approx(known(name, "lmin"), rel=1e-10)


def test_graphs_are_kept_only_within_the_budget():
    objective = CASES["mlp"].objective(count=20)
    parts = fg.Objective(CASES["mlp"].model(), CASES["mlp"].data(20), batch_size=6)
    vector = random_vector(objective)
    for budget, kept in ((None, True), (0, False), (10, False), (10**9, True)):
        operator = fg.Hessian(parts, memory_budget=budget)
        first = operator @ vector
        assert bool(operator._ready()._kept) == kept
        assert_close(operator @ vector, first)
        assert_close(first, fg.Hessian(objective) @ vector)


def test_a_kept_graph_reads_the_data_once():
    class Counted(list):
        reads = 0

        def __iter__(self):
            self.reads += 1
            return super().__iter__()

    data = Counted([CASES["mlp"].data()])
    operator = fg.Hessian(fg.Objective(CASES["mlp"].model(), data))
    vector = random_vector(operator.objective)
    operator @ vector
    reads = data.reads
    operator @ [vector, vector]
    assert data.reads == reads


def test_an_interrupted_product_leaves_no_half_kept_graphs():
    class Interrupting(list):
        stop = False

        def __iter__(self):
            yield self[0]
            if self.stop:
                raise KeyboardInterrupt
            yield self[1]

    x, y = CASES["mlp"].data(8)
    data = Interrupting([(x[:4], y[:4]), (x[4:], y[4:])])
    objective = fg.Objective(CASES["mlp"].model(), data)
    operator, vector = fg.Hessian(objective), random_vector(objective)
    data.stop = True
    with pytest.raises(KeyboardInterrupt):
        operator @ vector
    data.stop = False
    whole = fg.Objective(CASES["mlp"].model(), (x, y))
    assert_close(operator @ vector, fg.Hessian(whole) @ vector)


def test_an_operation_without_second_derivatives():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, slope):
            return slope * 2

    class Net(nn.Linear):
        def forward(self, x):
            return Once.apply(super().forward(x).tanh())

    objective = fg.Objective(Net(4, 3).double(), CASES["mlp"].data())
    vector = random_vector(objective)
    for operator in (fg.Hessian, fg.GaussNewton):
        with pytest.raises(ModelError, match=r"first derivative only.*replace the"):
            operator(objective) @ vector
    with pytest.raises(ModelError, match="first derivative only"):
        fg.hessian_diagonal(objective)


def test_an_operation_whose_derivative_torch_does_not_know():
    data = CASES["mlp"].data()
    objective = fg.Objective(nn.Linear(4, 3).double(), data, F.multi_margin_loss)
    with pytest.raises(ModelError, match=r"Hessian could not be computed.*replace the"):
        fg.Hessian(objective) @ random_vector(objective)


def test_in_place_changes_are_noticed_under_our_hooks():
    """Counting bytes must not switch off torch's own check."""

    x = torch.ones(2, requires_grad=True)
    with SavedBytes() as saved:
        y = x.exp()
        z = (y * 1.0).sum()
        y.mul_(2)
    assert saved.total > 0
    with pytest.raises(RuntimeError, match="inplace"):
        torch.autograd.grad(z, x)


def test_unknown_route():
    with pytest.raises(OptionError, match="'magic' is not known: use 'auto', 'double-"):
        fg.Hessian(CASES["mlp"].objective(), "magic")


def test_float32():
    objective = fg.Objective(
        CASES["gpt"].model(), CASES["gpt"].data(), dtype=torch.float32
    )
    vector = random_vector(objective)
    double = {name: tensor.double() for name, tensor in vector.items()}
    found = fg.Hessian(objective) @ vector
    expected = fg.Hessian(CASES["gpt"].objective()) @ double
    assert all(tensor.dtype == torch.float32 for tensor in found.values())
    assert_close({n: t.double() for n, t in found.items()}, expected, 1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_on_a_gpu_from_a_cpu_model(case):
    model = CASES[case].model()
    objective = fg.Objective(
        model, CASES[case].data(), device="cuda", mode=CASES[case].mode
    )
    vector = random_vector(objective)
    expected = dense(case, "cross-entropy") @ ravel(vector).cpu()
    for options in ({}, {"memory_budget": 0}):
        product = fg.Hessian(objective, **options) @ vector
        assert_close(ravel(product).cpu(), expected, 1e-10)
    assert next(model.parameters()).device.type == "cpu"
