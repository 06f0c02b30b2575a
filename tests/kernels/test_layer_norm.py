from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.cases import CASES, assert_close, random_vector
from torch import nn
from torch.autograd import forward_ad

import flatgauge as fg
from flatgauge.curvature.dense import dense_hessian
from flatgauge.kernels.layer_norm import OwnLayerNorms
from flatgauge.vectors import generator, graph_nodes, ravel


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def derivatives(
    shape: tuple[int, ...],
    trailing: int,
    given: str,
    fixed: str = "",
    keep: str = "xwc",
    groups: int = 0,
) -> list:
    """A value, its gradient, and the gradient of a combination of parts of that."""
    own = shape[1:2] if groups else shape[len(shape) - trailing :]
    tensors = {
        "x": draw(*shape, seed=0),
        "w": draw(*own, seed=1) if "w" in given else None,
        "c": draw(*own, seed=2) if "c" in given else None,
    }
    point = {
        name: tensor.requires_grad_()
        for name, tensor in tensors.items()
        if tensor is not None and name not in fixed
    }
    x, *rest = tensors.values()
    if groups:
        output = F.group_norm(x, groups, *rest, 1e-3)
    else:
        output = F.layer_norm(x, own, *rest, 1e-3)
    value = (output.pow(3) + output.sin()).sum()
    slopes = torch.autograd.grad(value, list(point.values()), create_graph=True)
    mixed = sum(
        (slope * draw(*slope.shape, seed=3)).sum()
        for name, slope in zip(point, slopes, strict=True)
        if name in keep
    )
    second = torch.autograd.grad(
        mixed, list(point.values()), allow_unused=True, materialize_grads=True
    )
    return [output, *slopes, *second]


@pytest.mark.parametrize(
    ("given", "fixed", "keep"),
    [
        (given, fixed, keep)
        for given, fixed in (("wc", ""), ("w", ""), ("", ""), ("wc", "x"), ("wc", "w"))
        for keep in ("xwc", "x", "w", "xc", "wc")
        if set(keep) & (set("x" + given) - set(fixed))
    ],
)
@pytest.mark.parametrize(("shape", "trailing"), [((3, 6), 1), ((2, 3, 4, 5), 2)])
def test_derivatives_are_those_of_torch(shape, trailing, given, fixed, keep):
    expected = derivatives(shape, trailing, given, fixed, keep)
    with OwnLayerNorms():
        found = derivatives(shape, trailing, given, fixed, keep)
    for one, other in zip(found, expected, strict=True):
        assert_close(one.detach(), other.detach(), 1e-12)


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize(
    ("given", "fixed"), [("wc", ""), ("w", ""), ("", ""), ("wc", "x")]
)
@pytest.mark.parametrize("shape", [(3, 6, 5), (2, 6, 3, 2)])
def test_derivatives_of_groups_are_those_of_torch(shape, given, fixed, groups):
    expected = derivatives(shape, 0, given, fixed, groups=groups)
    with OwnLayerNorms():
        found = derivatives(shape, 0, given, fixed, groups=groups)
    for one, other in zip(found, expected, strict=True):
        assert_close(one.detach(), other.detach(), 1e-11)


@pytest.mark.parametrize(
    "normalize",
    [
        nn.LayerNorm(4).double(),
        lambda x: F.layer_norm(x, (4,)),
        lambda x: torch.layer_norm(x, (4,)),
        nn.GroupNorm(2, 4).double(),
        lambda x: F.group_norm(x, 2),
        lambda x: torch.group_norm(x, 2),
    ],
)
def test_every_call_is_ours(normalize):
    with OwnLayerNorms():
        output = normalize(draw(3, 4, seed=0).requires_grad_())
    names = {type(node).__name__ for node in graph_nodes([output])}
    assert "_LayerNormBackward" in names
    assert not any(name.startswith("Native") for name in names)


def test_groups_of_nothing_go_by_torch():
    x = draw(0, 4, 3, seed=0).requires_grad_()
    with OwnLayerNorms():
        assert F.group_norm(x, 2).shape == (0, 4, 3)


def test_vectors_that_vary_little():
    """r is large there, and what it multiplies small."""
    x = draw(4, 8, seed=0) * 1e-6 + 3
    model = nn.LayerNorm(8, eps=1e-12).double()

    def second(values: torch.Tensor) -> torch.Tensor:
        values = values.clone().requires_grad_()
        total = (model(values) * draw(4, 8, seed=1)).pow(2).sum()
        (slope,) = torch.autograd.grad(total, values, create_graph=True)
        return torch.autograd.grad((slope * draw(4, 8, seed=2)).sum(), values)[0]

    expected = second(x)
    with OwnLayerNorms():
        assert_close(second(x), expected, 1e-8)


@pytest.mark.parametrize("case", ["gpt", "encoder"])
def test_products_are_those_of_the_dense_matrix(case):
    objective = CASES[case].objective()
    vector = random_vector(objective)
    found = fg.Hessian(objective, "double-backward") @ vector
    assert_close(ravel(found), dense_hessian(objective) @ ravel(vector), 1e-10)


class Composed(nn.LayerNorm):
    """Layer normalization written out, so that torch differentiates it to any order."""

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        r = (centred.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return centred * r * self.weight + self.bias


class Forces(nn.Module):
    """Outputs are slopes of an energy, as in models of molecules."""

    def __init__(self, normalization: type[nn.LayerNorm]):
        super().__init__()
        self.inner, self.norm = nn.Linear(4, 5), normalization(5)
        self.head = nn.Linear(5, 1)

    def forward(self, x):
        x = x.detach().requires_grad_()
        energy = self.head(self.norm(self.inner(x)).tanh()).sum()
        return torch.autograd.grad(energy, x, create_graph=True)[0]


def test_models_that_differentiate_by_their_inputs():
    data = (draw(6, 4, seed=0), draw(6, 4, seed=1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, other = Forces(nn.LayerNorm).double(), Forces(Composed).double()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        one.data.copy_(two.data + 0.1 * draw(*two.shape, seed=2))
        two.data.copy_(one.data)
    found = fg.Hessian(fg.Objective(model, data, loss="mse")).to_dense()
    expected = fg.Hessian(fg.Objective(other, data, loss="mse")).to_dense()
    assert_close(found, expected, 1e-10)


def test_a_vector_without_samples():
    model, x = nn.LayerNorm(4).double(), draw(4, seed=0).requires_grad_()

    def second() -> list[torch.Tensor]:
        point = [x, *model.parameters()]
        slopes = torch.autograd.grad(model(x).pow(3).sum(), point, create_graph=True)
        return list(torch.autograd.grad(sum(s.sin().sum() for s in slopes), point))

    expected = second()
    with OwnLayerNorms():
        found = second()
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


def test_models_that_differentiate_themselves_go_by_torch():
    model = nn.LayerNorm(4).double().requires_grad_(False)
    x = draw(3, 4, seed=0)
    with OwnLayerNorms():
        each = torch.vmap(model)(x)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            tangent = forward_ad.unpack_dual(model(dual)).tangent
    assert_close(each, model(x))
    assert float(tangent.abs().max()) < 1e-12


def test_mixed_types_and_autocast_go_by_torch():
    x, weight = draw(2, 4, seed=0).bfloat16(), draw(4, seed=1).float()
    expected = F.layer_norm(x, (4,), weight)
    with OwnLayerNorms():
        assert torch.equal(F.layer_norm(x, (4,), weight), expected)
        with torch.autocast("cpu"):
            output = F.layer_norm(x.float().requires_grad_(), (4,), weight)
    assert type(output.grad_fn).__name__ == "NativeLayerNormBackward0"


@pytest.mark.gpu
def test_products_on_a_gpu_are_those_on_a_cpu():
    apart, here = (CASES["gpt"].objective(device=d) for d in ("cuda", "cpu"))
    vector = random_vector(here)
    moved = {name: part.cuda() for name, part in vector.items()}
    found = fg.Hessian(apart, "double-backward") @ moved
    expected = fg.Hessian(here, "double-backward") @ vector
    assert_close({n: t.cpu() for n, t in found.items()}, expected, 1e-10)
