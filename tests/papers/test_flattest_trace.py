from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_nets import hessian, mlp, normal, params_of, squared_loss

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.maps.chain import Chain, Layer
from flatgauge.symmetry.maps.rescale import rescale_layers
from flatgauge.vectors import unravel
from papers.dinh2017.flattest_trace import flattest_trace


def block_diagonal(values: dict[str, float]) -> dict[str, torch.Tensor]:
    return {
        name: torch.tensor([value], dtype=torch.float64)
        for name, value in values.items()
    }


@settings(deadline=None, max_examples=20)
@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=5))
def test_flattest_trace_is_the_mean_of_the_block_traces(traces):
    layers = [f"w{i}" for i in range(len(traces))]
    chain = Chain(tuple(Layer(name) for name in layers))
    found = flattest_trace(
        block_diagonal(dict(zip(layers, traces, strict=True))), chain
    )
    count = len(traces)
    assert found.trace == pytest.approx(
        count * math.prod(traces) ** (1 / count), rel=1e-12
    )
    assert math.prod(found.alphas) == pytest.approx(1, rel=1e-12)


def test_flattest_trace_is_reached_by_its_factors():
    net = mlp([2, 2, 2, 2], seed=27)
    chain, point = Chain.of(net), params_of(net)
    inputs = normal(30, 2, seed=28)
    loss = squared_loss(net, inputs, net(inputs).detach())
    diagonal = unravel(hessian(loss, point).diagonal(), point)
    found = flattest_trace(diagonal, chain)

    def trace(alphas):
        return float(hessian(loss, rescale_layers(point, chain, alphas)).trace())

    assert trace(found.alphas) == pytest.approx(found.trace, rel=1e-11)
    assert found.trace < trace((1.0, 1.0, 1.0))
    for first, second in ((1.01, 1.0), (1.0, 0.99), (0.99, 1.01), (1.02, 1.02)):
        nearby = [
            alpha * factor
            for alpha, factor in zip(
                found.alphas, (first, second, 1 / (first * second)), strict=True
            )
        ]
        assert trace(nearby) > found.trace


def test_flattest_trace_of_one_biased_hidden_layer_in_closed_form():
    """(t_W1 + t_b1)/α² + α² t_W2 + t_b2 is least at 2 sqrt((t_W1+t_b1) t_W2) + t_b2."""
    chain = Chain((Layer("a", "ab"), Layer("b", "bb")))
    values = {"a": 3.0, "ab": 1.0, "b": 1e8, "bb": 5.0}
    found = flattest_trace(block_diagonal(values), chain)
    assert found.trace == pytest.approx(2 * math.sqrt(4 * 1e8) + 5, rel=1e-14)
    assert found.alphas[0] == pytest.approx((4 / 1e8) ** 0.25, rel=1e-12)


@pytest.mark.parametrize(
    "values",
    [
        {"a": 1.0, "ab": 0.0, "b": -1.0},
        {"a": 0.0, "ab": 0.0, "b": 1.0},
        {"a": 1.0, "ab": -1.0, "b": 1.0},
        {"a": 1.0, "b": 1.0},
    ],
)
def test_flattest_trace_refuses_what_has_no_minimum(values):
    with pytest.raises(SymmetryError):
        flattest_trace(block_diagonal(values), Chain((Layer("a", "ab"), Layer("b"))))
