from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import KNOWN
from support.small_nets import (
    assert_close,
    convnet,
    gradient,
    hessian,
    mlp,
    normal,
    params_of,
    squared_loss,
)
from torch import nn

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.maps.chain import Chain, Layer
from flatgauge.symmetry.maps.rescale import (
    rescale_layers,
    rescale_nodes,
)
from flatgauge.vectors import unravel
from papers.points import with_parameters
from papers.tsuzuku2019.appendix import rescale_node

NORMS = KNOWN["closed_forms"]["A.1 norms"]

logs = st.floats(-2, 2)
two_logs = st.tuples(logs, logs)


def factors(logarithms: tuple[float, float]) -> tuple[float, float, float]:
    first, second = (math.exp(value) for value in logarithms)
    return first, second, 1 / (first * second)


def node_scales(net: nn.Module, seed: int) -> list[torch.Tensor]:
    weights = [dict(net.named_parameters())[i.weight] for i in Chain.of(net).layers]
    return [normal(w.shape[0], seed=seed + i).exp() for i, w in enumerate(weights[:-1])]


@settings(deadline=None, max_examples=20)
@given(two_logs, st.booleans())
def test_layers_keep_the_function_with_and_without_biases(logarithms, bias):
    net = mlp([2, 4, 3, 2], seed=1, bias=bias)
    moved = rescale_layers(params_of(net), Chain.of(net), factors(logarithms))
    x = normal(20, 2, seed=2)
    torch.testing.assert_close(
        with_parameters(net, moved)(x), net(x), rtol=1e-12, atol=1e-12
    )


@settings(deadline=None, max_examples=20)
@given(two_logs, two_logs)
def test_layers_form_a_group_action(left, right):
    net = mlp([2, 3, 2, 2], seed=3)
    chain, point = Chain.of(net), params_of(net)
    a, b = factors(left), factors(right)
    twice = rescale_layers(rescale_layers(point, chain, a), chain, b)
    once = rescale_layers(point, chain, [x * y for x, y in zip(a, b, strict=True)])
    assert_close(twice, once)
    back = rescale_layers(
        rescale_layers(point, chain, a), chain, [1 / value for value in a]
    )
    assert_close(back, point)


@settings(deadline=None, max_examples=30)
@given(st.tuples(st.integers(-12, 12), st.integers(-12, 12)))
def test_powers_of_two_change_exponents_alone(exponents):
    net = mlp([3, 5, 4, 2], seed=4, bias=False).float()
    a, b = exponents
    alphas = (2.0**a, 2.0**b, 2.0 ** -(a + b))
    twin = with_parameters(net, rescale_layers(params_of(net), Chain.of(net), alphas))
    x = normal(10, 3, seed=5).float()
    for before, after in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.equal(after.frexp().mantissa, before.frexp().mantissa)
    # Every term of every sum is the same number; the order of a sum is not promised.
    torch.testing.assert_close(twin(x), net(x), rtol=1e-6, atol=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(-9, 9), min_size=9, max_size=9))
def test_node_powers_of_two_change_exponents_alone(exponents):
    net = mlp([3, 5, 4, 2], seed=6, bias=False)
    powers = torch.tensor(exponents, dtype=torch.float64).exp2()
    moved = rescale_nodes(params_of(net), Chain.of(net), [powers[:5], powers[5:]])
    x = normal(10, 3, seed=7)
    for name, before in params_of(net).items():
        assert torch.equal(moved[name].frexp().mantissa, before.frexp().mantissa)
    twin = with_parameters(net, moved)
    torch.testing.assert_close(twin(x), net(x), rtol=1e-13, atol=1e-13)


def test_biases_take_cumulative_products_and_the_last_one_stays():
    net = mlp([1, 1, 1, 1], seed=8)
    point = params_of(net)
    moved = rescale_layers(point, Chain.of(net), (2.0, 4.0, 0.125))
    ratios = [float(moved[f"{i}.bias"] / point[f"{i}.bias"]) for i in (0, 2, 4)]
    assert ratios == [2.0, 8.0, 1.0]
    rounded = rescale_layers(point, Chain.of(net), (0.1, 3.0, 1 / 0.3))
    assert 0.1 * 3.0 * (1 / 0.3) != 1.0
    assert torch.equal(rounded["4.bias"], point["4.bias"])


def test_one_hidden_layer():
    net = mlp([2, 3, 1], seed=9)
    moved = rescale_layers(params_of(net), Chain.of(net), (4.0, 0.25))
    assert torch.equal(moved["0.weight"], net[0].weight.detach() * 4)
    assert torch.equal(moved["2.weight"], net[2].weight.detach() / 4)
    assert torch.equal(moved["0.bias"], net[0].bias.detach() * 4)
    assert moved["2.bias"] is not net[2].bias
    assert torch.equal(moved["2.bias"], net[2].bias)


def test_nothing_is_changed_in_place():
    net = mlp([2, 3, 2, 1], seed=10)
    before = {name: tensor.clone() for name, tensor in params_of(net).items()}
    chain = Chain.of(net)
    rescale_layers(params_of(net), chain, (2.0, 0.25, 2.0))
    rescale_nodes(params_of(net), chain, node_scales(net, 0))
    for name, tensor in params_of(net).items():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize(
    ("alphas", "reason"),
    [
        ((2.0, 0.5), "2 factors"),
        ((2.0, 1.0, 1.0), "multiply to 2.0"),
        ((-1.0, -1.0, 1.0), "positive"),
        ((0.0, 1.0, 1.0), "positive"),
        ((math.inf, 1.0, 1.0), "finite"),
    ],
)
def test_factors_that_change_the_function_are_refused(alphas, reason):
    net = mlp([2, 3, 2, 1], seed=11)
    with pytest.raises(SymmetryError, match=reason):
        rescale_layers(params_of(net), Chain.of(net), alphas)


def test_two_factors_are_refused_for_deeper_chains():
    net = mlp([2, 3, 2, 1], seed=11)
    with pytest.raises(SymmetryError, match="2 factors were given for 3 layers"):
        rescale_layers(params_of(net), Chain.of(net), (2.0, 0.5))


@pytest.mark.parametrize("groups", [1, 2])
def test_nodes_keep_the_function_of_a_convnet(groups):
    net = convnet(12, groups)
    moved = rescale_nodes(params_of(net), Chain.of(net), node_scales(net, 13))
    x = normal(3, 2, 6, 6, seed=14)
    torch.testing.assert_close(
        with_parameters(net, moved)(x), net(x), rtol=1e-12, atol=1e-12
    )
    assert not torch.allclose(moved["2.weight"], net[2].weight)


def test_layers_keep_the_function_of_a_convnet():
    net = convnet(15)
    moved = rescale_layers(params_of(net), Chain.of(net), (3.0, 0.1, 1 / 0.3))
    x = normal(3, 2, 6, 6, seed=16)
    torch.testing.assert_close(
        with_parameters(net, moved)(x), net(x), rtol=1e-12, atol=1e-12
    )


def test_nodes_compose_and_invert():
    net = mlp([2, 4, 3, 2], seed=17)
    chain, point = Chain.of(net), params_of(net)
    a, b = node_scales(net, 18), node_scales(net, 28)
    twice = rescale_nodes(rescale_nodes(point, chain, a), chain, b)
    assert_close(
        twice, rescale_nodes(point, chain, [x * y for x, y in zip(a, b, strict=True)])
    )
    back = rescale_nodes(rescale_nodes(point, chain, a), chain, [1 / x for x in a])
    assert_close(back, point)


def test_section_6_puts_the_last_matrix_on_the_right():
    """T_Λ(W) = (Λ1 W1, Λ3 W2 Λ2, W3 Λ4) with Λ1 Λ2 = Λ3 Λ4 = I."""
    net = mlp([2, 3, 3, 3], seed=19, bias=False)
    one, three = (torch.diag(scale) for scale in node_scales(net, 20))
    moved = rescale_nodes(
        params_of(net), Chain.of(net), [one.diagonal(), three.diagonal()]
    )
    w1, w2, w3 = params_of(net).values()
    two, four = torch.linalg.inv(one), torch.linalg.inv(three)
    for found, expected in zip(
        moved.values(), (one @ w1, three @ w2 @ two, w3 @ four), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    printed = with_parameters(net, {**moved, "4.weight": four @ w3})
    x = normal(5, 2, seed=21)
    assert not torch.allclose(printed(x), net(x))


def test_nodes_act_on_gradient_and_hessian_by_the_inverse():
    net = mlp([2, 2, 2], seed=22)
    point, chain = params_of(net), Chain.of(net)
    loss = squared_loss(net, normal(8, 2, seed=23), normal(8, 2, seed=24))
    scales = node_scales(net, 25)
    moved = rescale_nodes(point, chain, scales)
    columns = [
        rescale_nodes(unravel(row, point), chain, scales)
        for row in torch.eye(12, dtype=torch.float64)
    ]
    jacobian = torch.stack(
        [torch.cat([t.flatten() for t in column.values()]) for column in columns], 1
    )
    inverse = torch.linalg.inv(jacobian)
    before = torch.cat([t.flatten() for t in gradient(loss, point).values()])
    after = torch.cat([t.flatten() for t in gradient(loss, moved).values()])
    torch.testing.assert_close(after, inverse.T @ before, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(
        hessian(loss, moved),
        inverse.T @ hessian(loss, point) @ inverse,
        rtol=1e-11,
        atol=1e-12,
    )


def test_scales_that_do_not_fit_are_refused():
    net = mlp([2, 3, 2, 1], seed=26)
    chain, point = Chain.of(net), params_of(net)
    with pytest.raises(SymmetryError, match="2 are hidden"):
        rescale_nodes(point, chain, [torch.ones(3)])
    with pytest.raises(SymmetryError, match="3 units"):
        rescale_nodes(point, chain, [torch.ones(2), torch.ones(2)])
    with pytest.raises(SymmetryError, match="positive"):
        rescale_nodes(point, chain, [-torch.ones(3), torch.ones(2)])


def test_layers_by_hand_that_do_not_connect_are_refused():
    point = {"a": torch.ones(2, 1), "b": torch.ones(1, 3)}
    with pytest.raises(SymmetryError, match="do not form a chain"):
        rescale_nodes(point, Chain((Layer("a"), Layer("b"))), [torch.ones(2)])


def test_appendix_a1_with_corrected_norms():
    chain = Chain((Layer("W1"), Layer("W2")))
    point = {
        "W1": torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64),
        "W2": torch.tensor([[5.0, 6.0], [7.0, 8.0]], dtype=torch.float64),
    }
    moved = rescale_node(point, chain, 0, 10.0)
    moved = rescale_node(moved, chain, 1, 0.1)
    assert_close(
        moved,
        {
            "W1": torch.tensor([[0.1, 0.2], [30.0, 40.0]], dtype=torch.float64),
            "W2": torch.tensor([[50.0, 0.6], [70.0, 0.8]], dtype=torch.float64),
        },
    )
    for prefix, params in (("", point), ("b", moved)):
        for name, weight in params.items():
            frobenius = NORMS[f"{name}{prefix}_F"].removeprefix("sqrt(").rstrip(")")
            assert float(weight.norm()) ** 2 == pytest.approx(
                float(frobenius), rel=1e-14
            )
            assert float(torch.linalg.matrix_norm(weight, 2)) == pytest.approx(
                float(NORMS[f"{name}{prefix}_spec"]), rel=1e-14
            )
