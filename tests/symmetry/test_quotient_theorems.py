"""The propositions and lemmas of Rangamani et al. (2019), in corrected form."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_nets import (
    gradient,
    mlp,
    normal,
    params_of,
    squared_loss,
)
from torch import Tensor

from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.output import axes_of, shift_output
from flatgauge.symmetry.maps.rescale import rescale_layers
from flatgauge.vectors import Params, add, dot, gaussian, generator, ravel

NET = mlp([2, 3, 3, 2], seed=0)
CHAIN = Chain.of(NET)
POINT = params_of(NET)
LOSS = squared_loss(NET, normal(12, 2, seed=1), normal(12, 2, seed=2))
PLAIN_NET = mlp([2, 3, 3, 2], seed=0, bias=False)
PLAIN = params_of(PLAIN_NET)

logs = st.tuples(st.floats(-1.5, 1.5), st.floats(-1.5, 1.5))


def alphas(logarithms) -> list[float]:
    first, second = logarithms
    return [math.exp(first), math.exp(second), math.exp(-first - second)]


def metric(point: Params, left: Params, right: Params) -> float:
    """g = Σ ⟨η_i, ξ_i⟩ / ‖W_i‖² over weights and biases: Propositions 2.3 and 2.5."""
    return sum(
        float((left[name] * right[name]).sum() / tensor.square().sum())
        for name, tensor in point.items()
    )


def invariant(point: Params) -> float:
    """Π ‖W~_i‖², W~_i = [W_i; b_i/‖b_{i-1}‖] and ‖b_0‖ = 1."""
    product, before = 1.0, 1.0
    for layer in CHAIN.layers:
        bias = point[str(layer.bias)].square().sum()
        product *= float(point[layer.weight].square().sum() + bias / before)
        before = float(bias)
    return product


def log_ratio(left: Tensor, right: Tensor) -> Tensor:
    return ((left * right).sum() / left.square().sum()).log()


def graph_function(left: Params, right: Params) -> Tensor:
    """F2 of Proposition A.3 with its bias rows corrected; its zeros are the graph of ~."""
    rows = []
    for name, tensor in left.items():
        basis = torch.linalg.qr(
            torch.cat([tensor.reshape(-1, 1), torch.eye(tensor.numel()).double()], 1)
        )[0][:, 1:]
        rows.append(basis.T @ right[name].reshape(-1))
    weights = [log_ratio(left[i.weight], right[i.weight]) for i in CHAIN.layers]
    biases = [log_ratio(left[str(i.bias)], right[str(i.bias)]) for i in CHAIN.layers]
    before = [torch.zeros(()).double(), *biases[:-1]]
    chained = [b - a - w for b, a, w in zip(biases, before, weights, strict=True)]
    return torch.cat([*rows, torch.stack([sum(weights, start=before[0]), *chained])])


@settings(deadline=None, max_examples=20)
@given(logs, logs)
def test_proposition_2_1_equivalence(left, right):
    """Reflexive, symmetric and transitive, because T_λ is a group action."""
    once = rescale_layers(POINT, CHAIN, alphas(left))
    for name, tensor in rescale_layers(POINT, CHAIN, (1.0, 1.0, 1.0)).items():
        assert torch.equal(tensor, POINT[name])
    back = rescale_layers(once, CHAIN, [1 / alpha for alpha in alphas(left)])
    torch.testing.assert_close(ravel(back), ravel(POINT), rtol=1e-13, atol=1e-13)
    both = [a * b for a, b in zip(alphas(left), alphas(right), strict=True)]
    torch.testing.assert_close(
        ravel(rescale_layers(once, CHAIN, alphas(right))),
        ravel(rescale_layers(POINT, CHAIN, both)),
        rtol=1e-13,
        atol=1e-13,
    )


@settings(deadline=None, max_examples=20)
@given(logs)
def test_proposition_2_2_the_graph_is_the_zero_set(logarithms):
    moved = rescale_layers(POINT, CHAIN, alphas(logarithms))
    assert float(graph_function(POINT, moved).abs().max()) < 1e-13
    other = {**moved, "2.bias": moved["2.bias"] * 2}
    assert float(graph_function(POINT, other).abs().max()) > 0.5
    rows = torch.tensor([[2.0], [1.0], [1.0]], dtype=torch.float64)
    other = {**moved, "2.weight": moved["2.weight"] * rows}
    assert float(graph_function(POINT, other).abs().max()) > 0.01


def test_proposition_2_2_the_printed_bias_row_does_not_vanish():
    """Printed: log r(b_L) - log r(W_{L-1}); on the graph it is -log of α_2 here."""
    moved = rescale_layers(POINT, CHAIN, (1.0, 4.0, 0.25))
    printed = log_ratio(POINT["4.bias"], moved["4.bias"]) - log_ratio(
        POINT["2.weight"], moved["2.weight"]
    )
    assert float(printed) == pytest.approx(-math.log(4), rel=1e-13)


def test_proposition_2_2_is_a_submersion():
    """The derivative in the second argument has full row rank on the graph."""
    moved = rescale_layers(POINT, CHAIN, (0.5, 4.0, 0.5))
    sizes = [tensor.numel() for tensor in moved.values()]

    def rows(flat: Tensor) -> Tensor:
        parts = flat.split(sizes)
        right = {
            name: part.view(tensor.shape)
            for (name, tensor), part in zip(moved.items(), parts, strict=True)
        }
        return graph_function(POINT, right)

    derivative = torch.autograd.functional.jacobian(rows, ravel(moved))
    assert isinstance(derivative, Tensor)
    count, dimension = derivative.shape
    assert count == dimension - len(CHAIN) + 1
    assert int(torch.linalg.matrix_rank(derivative)) == count


@settings(deadline=None, max_examples=20)
@given(logs, st.integers(0, 100), st.booleans())
def test_propositions_2_3_and_2_5_the_metric_is_invariant(logarithms, seed, bias):
    point, chain = (POINT, CHAIN) if bias else (PLAIN, Chain.of(PLAIN_NET))
    random = generator(seed)
    left, right = gaussian(point, random), gaussian(point, random)
    moved = [
        rescale_layers(vector, chain, alphas(logarithms))
        for vector in (point, left, right)
    ]
    before = metric(point, left, right)
    assert metric(*moved) == pytest.approx(before, rel=1e-11, abs=1e-11)
    euclidean = float(dot(moved[1], moved[1]))
    if max(map(abs, logarithms)) > 0.1:
        assert euclidean != pytest.approx(float(dot(left, left)), rel=1e-6)


def test_proposition_2_5_is_not_invariant_under_an_output_shift():
    vector = gaussian(POINT, generator(3))
    last = CHAIN.layers[-1]
    step = {last.bias: torch.ones(1, dtype=torch.float64)}
    shifted = shift_output(POINT, axes_of(last), step)
    assert metric(shifted, vector, vector) != pytest.approx(
        metric(POINT, vector, vector), rel=1e-2
    )


def vertical(beta: tuple[float, float, float]) -> Params:
    """(β_i W_i, γ_i b_i) with γ_i = Σ_{j ≤ i} β_j: Lemma 2.6."""
    vector, gamma = {}, 0.0
    for layer, value in zip(CHAIN.layers, beta, strict=True):
        gamma += value
        vector[layer.weight] = value * POINT[layer.weight]
        vector[str(layer.bias)] = gamma * POINT[str(layer.bias)]
    return vector


BETAS = [(1.0, -1.0, 0.0), (0.0, 1.0, -1.0), (0.7, 0.8, -1.5)]


@pytest.mark.parametrize("beta", BETAS)
def test_lemmas_2_4_and_2_6_vertical_vectors_are_derivatives_of_the_action(beta):
    step = 1e-5
    there, back = (
        rescale_layers(POINT, CHAIN, [math.exp(sign * step * b) for b in beta])
        for sign in (1, -1)
    )
    difference = (ravel(there) - ravel(back)) / (2 * step)
    torch.testing.assert_close(difference, ravel(vertical(beta)), rtol=1e-9, atol=1e-9)
    assert float(dot(gradient(LOSS, POINT), vertical(beta))) == pytest.approx(
        0, abs=1e-11
    )


def test_lemma_2_6_the_vertical_space_has_dimension_one_less_than_the_layers():
    vectors = torch.stack([ravel(vertical(beta)) for beta in BETAS])
    assert int(torch.linalg.matrix_rank(vectors)) == len(CHAIN) - 1


@settings(deadline=None, max_examples=20)
@given(logs)
def test_the_invariant_of_a_class(logarithms):
    moved = rescale_layers(POINT, CHAIN, alphas(logarithms))
    assert invariant(moved) == pytest.approx(invariant(POINT), rel=1e-12)
    assert invariant({**moved, "2.bias": moved["2.bias"] * 2}) != pytest.approx(
        invariant(POINT), rel=1e-3
    )


def test_a_straight_line_along_a_vertical_vector_leaves_the_class():
    """A curve that starts vertically need not stay: only the first order is fixed."""
    direction = vertical((1.0, -1.0, 0.0))
    start = float(LOSS(POINT))
    changes = [
        abs(float(LOSS(add(POINT, direction, step))) - start) for step in (1e-2, 1e-3)
    ]
    assert changes[0] > 1e-6
    assert changes[0] / changes[1] == pytest.approx(100, rel=0.2)
