"""The group acts as a group; vertical vectors are its derivative."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from support.models import mlp, small_vit, wide_resnet
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import orthogonal

import flatgauge as fg
from flatgauge.errors import OptionError, SymmetryError
from flatgauge.symmetry import group as group_module
from flatgauge.symmetry import symmetries
from flatgauge.vectors import dot, norm

INPUTS = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).double()


def network() -> nn.Module:
    torch.manual_seed(0)
    return mlp(5, 7, 6, 3).double()


MODEL = network()
GROUP = symmetries(MODEL, INPUTS)
SEEDS = st.integers(0, 2**31 - 1)
SPREADS = st.floats(0.01, 1.5)


def parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in model.named_parameters()}


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    gaps = {name: left[name] - right[name] for name in left}
    return (norm(gaps) / norm(left)).item()


@given(SEEDS, SEEDS, SPREADS)
@settings(max_examples=25, deadline=None)
def test_act_is_a_group_action(first, second, spread):
    g = GROUP.random_element(first, spread)
    h = GROUP.random_element(second, spread)
    theta = parameters(MODEL)
    assert distance(GROUP.act(GROUP.act(theta, h), g), GROUP.act(theta, g @ h)) < 1e-13
    assert distance(GROUP.act(GROUP.act(theta, g), g.inverse()), theta) < 1e-13
    assert distance(GROUP.act(theta, g @ h), GROUP.act(theta, h @ g)) < 1e-13
    with torch.no_grad():
        expected, actual = MODEL(INPUTS), GROUP.act(MODEL, g @ h)(INPUTS)
    assert (actual - expected).norm() < 1e-13 * expected.norm()


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_vertical_vectors_are_the_derivative_of_the_action(seed):
    """d/dt exp(t e) θ at 0, by a central difference whose error is t² |e|³ / 6."""
    random = torch.Generator().manual_seed(seed)
    coordinates = torch.randn(GROUP.dimension, generator=random).double()
    theta, step = parameters(MODEL), 1e-4
    ahead = GROUP.act(theta, GROUP.element(step * coordinates))
    behind = GROUP.act(theta, GROUP.element(-step * coordinates))
    slope = {name: (ahead[name] - behind[name]) / (2 * step) for name in theta}
    assert distance(GROUP.vertical(theta).combine(coordinates), slope) < 1e-6


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_the_gradient_is_orthogonal_to_vertical_vectors(seed):
    """At every point, not only at minima."""
    twin = GROUP.act(MODEL, GROUP.random_element(seed))
    loss = (twin(INPUTS) ** 2).sum() + twin(INPUTS)[0, 0]
    names = dict(twin.named_parameters())
    gradient = dict(zip(names, torch.autograd.grad(loss, names.values()), strict=True))
    space = GROUP.vertical(parameters(twin))
    assert len(space) == 13
    products = space.inner(gradient)
    for vector, product in zip(space, products, strict=True):
        direct = dot(vector, gradient)
        assert abs(direct - product) < 1e-12 * norm(vector) * norm(gradient)
        assert abs(product) < 1e-12 * norm(vector) * norm(gradient)


@given(SEEDS, st.floats(0.5, 3.0))
@settings(max_examples=25, deadline=None)
def test_powers_of_two_change_exponents_alone(seed, spread):
    torch.manual_seed(1)
    model, inputs = mlp(5, 7, 6, 3, bias=False), torch.randn(4, 5)
    element = TWO.random_element(seed, spread, power_of_two=True)
    twin = TWO.act(model, element)
    with torch.no_grad():
        for before, after in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.equal(after.frexp().mantissa, before.frexp().mantissa)
        # Every term of every sum is the same number; the order of a sum is not promised.
        torch.testing.assert_close(twin(inputs), model(inputs), rtol=1e-6, atol=1e-6)


TWO = symmetries(mlp(5, 7, 6, 3, bias=False), torch.randn(4, 5))


def test_power_of_two_elements_do_move_the_parameters():
    model = mlp(5, 7, 6, 3, bias=False)
    twin = TWO.act(model, TWO.random_element(0, 2.0, power_of_two=True))
    assert not torch.equal(model[0].weight, twin[0].weight)


def test_layer_elements_scale_whole_tensors():
    element = GROUP.random_element(3, kind="layer-rescale")
    for name, parameter in MODEL.named_parameters():
        scale = element.log_scale(name, parameter.shape)
        assert (scale - scale.reshape(-1)[0]).abs().max() < 1e-12
    assert GROUP.layer_dimension == 2
    assert any(
        element.log_scale(n, p.shape).abs().max() > 1e-3
        for n, p in MODEL.named_parameters()
    )


def test_generators_are_sparse_and_labelled():
    generator = GROUP.generators[0]
    assert generator.label == "neuron"
    assert generator.exact
    moved = {
        name: sum(term.abs().sum() for term in terms)
        for name, terms in generator.exponents.items()
    }
    assert moved == {"0.weight": 1, "0.bias": 1, "2.weight": 1}
    assert len(GROUP.generators[2:5]) == 3


def test_state_dicts_and_models_move_alike():
    model = wide_resnet((4, 6), 3).double().eval()
    images = torch.randn(2, 3, 8, 8).double()
    group = symmetries(model, images, batchnorm="eps-corrected")
    element = group.random_element(1)
    twin = group.act(model, element)
    moved = group.act(model.state_dict(), element)
    for name, tensor in twin.state_dict().items():
        assert torch.equal(tensor, moved[name])
    assert not torch.equal(moved["1.norm2.running_var"], model[1].norm2.running_var)
    with torch.no_grad():
        assert (twin(images) - model(images)).norm() < 1e-13 * model(images).norm()
    with pytest.raises(SymmetryError, match="running"):
        group.act(parameters(model), element)


def test_vertical_leaves_buffers_alone():
    """The eps-corrected group is larger, but a Hessian sees no more of it."""
    model, images = wide_resnet((4, 6), 3), torch.randn(2, 3, 8, 8)
    corrected = symmetries(model, images, batchnorm="eps-corrected")
    fixed = symmetries(model, images, batchnorm="parameters")
    theta = parameters(model)
    assert corrected.dimension > fixed.dimension
    assert len(corrected.vertical(theta)) == len(fixed.vertical(theta))
    assert len(fixed.vertical(theta)) == fixed.dimension


def test_vertical_of_some_parameters_holds_the_others_fixed():
    """Without the last matrix only the 7 units of the first hidden layer move."""
    theta = {n: p for n, p in parameters(MODEL).items() if n != "4.weight"}
    assert len(GROUP.vertical(theta)) == 7


def test_batch_norm_variants_preserve_what_they_say():
    """Joint elements preserve training mode too, eval-only ones do not."""
    model = wide_resnet((4, 6), 3).double()
    images = torch.randn(4, 3, 8, 8).double()

    def training_change(batchnorm: str, approximate: bool) -> float:
        group = symmetries(model, images, batchnorm=batchnorm)
        twin = group.act(model, group.random_element(2, approximate=approximate))
        with torch.no_grad():
            before = copy.deepcopy(model).train()(images)
            return ((twin.train()(images) - before).norm() / before.norm()).item()

    assert training_change("joint", approximate=False) < 1e-13
    assert training_change("joint", approximate=True) < 1e-2
    assert training_change("eval-only", approximate=False) > 1e-2


def test_tied_names_move_together():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, 4)
            self.norm = nn.LayerNorm(4)
            self.head = nn.Linear(4, 9, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(torch.relu(self.embed(tokens)))

    model, tokens = Tied().double(), torch.tensor([[1, 2, 3], [4, 5, 6]])
    group = symmetries(model, tokens)
    element = group.random_element(0, 0.7)
    moved = group.act(model.state_dict(), element)
    assert torch.equal(moved["embed.weight"], moved["head.weight"])


def test_summary_is_readable():
    group = symmetries(small_vit(), torch.randn(2, 3, 32, 32))
    text = str(group)
    assert "288" in text
    assert "residual stream" in text
    assert "aten::gelu" in text
    pins = {(pin.operator, pin.module) for pin in group.pinned}
    assert ("aten::gelu", "blocks.0.mlp.1") in pins


def test_options_are_checked():
    with pytest.raises(OptionError, match="permutation"):
        GROUP.random_element(kind="permutation")
    with pytest.raises(OptionError, match="both"):
        symmetries(MODEL, INPUTS, batchnorm="both")
    with pytest.raises(OptionError, match="3 coordinates"):
        GROUP.element(torch.zeros(3))


def test_what_moves_given_parameters_is_solved_once(monkeypatch):
    solved = []
    own = group_module.null_space

    def counted(rows):
        solved.append(rows.shape)
        return own(rows)

    monkeypatch.setattr(group_module, "null_space", counted)
    group, params = symmetries(MODEL, INPUTS), parameters(MODEL)
    some = {name: params[name] for name in list(params)[:3]}
    first = group.vertical(params)
    again = group.vertical({name: 2 * tensor for name, tensor in params.items()})
    assert len(solved) == 1
    assert distance({n: 2 * t for n, t in first[0].items()}, again[0]) < 1e-15
    assert len(group.vertical(some)) < len(first)
    assert len(solved) == 2


def test_acts_on_models_as_objectives_take_them():
    """Compiled, with a weight that was computed once, or pruned."""
    x, plain = torch.randn(8, 4), lambda: mlp(4, 6, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        normed = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 6)), *plain()[1:])
    pruned = plain()
    prune.l1_unstructured(pruned[0], "weight", 0.3)
    compiled: Any = torch.compile(plain(), backend="aot_eager")
    for model in (compiled, normed, pruned):
        before = model(x).detach()
        group = fg.symmetries(fg.Objective(model, (x, torch.arange(8) % 5)))
        twin = group.act(model, group.random_element())
        assert torch.allclose(twin(x), before, atol=1e-5)


def test_a_cast_to_integers_fixes_scales():
    class Rounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x).relu()
            return self.head(h * (3 * h).int())

    assert symmetries(Rounded(), torch.randn(20, 3)).dimension == 0


@pytest.mark.filterwarnings("ignore:no scaling rule")
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
def test_entries_without_effect_are_not_rescaled(kind):
    """An orthogonal matrix is made of a triangle; its units cannot be rescaled."""
    torch.manual_seed(0)
    network = nn.Sequential(
        orthogonal(nn.Linear(4, 4), orthogonal_map=kind), nn.ReLU(), *mlp(4, 6, 2)
    )
    assert symmetries(network, torch.randn(9, 4)).dimension == 6
