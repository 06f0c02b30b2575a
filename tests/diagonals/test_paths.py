"""Where slopes come in to a parameter, read off the graph."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.graph import get_gradient_edge

from flatgauge.diagonals.paths import ways_in


def leaf() -> torch.Tensor:
    return torch.rand(4, requires_grad=True)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        return x * w

    @staticmethod
    def backward(ctx, slope):
        return slope, slope


def once(w, v):
    inner = w * 2
    return inner.sin() + v, [inner]


def past_the_operation(w, v):
    inner = w * 2
    return inner.sin() + w.exp(), [inner]


def through_a_function(w, v):
    inner = w * 2
    return Twice.apply(inner, w), [inner]


def by_another_output(w, v):
    first, second = (w * 2).unflatten(0, (2, 2)).unbind(0)
    return first + second.sin(), [first]


def two_operations(w, v):
    first, second = w * 2, w * 3
    return first * second, [first, second]


def one_behind_the_other(w, v):
    first = v * w
    second = first.sin()
    return second.exp(), [first, second]


def behind_the_operation(w, v):
    inner = (v * w.exp()) * w
    return inner.sin(), [inner]


def the_outputs_themselves(w, v):
    inner = w * 2
    return inner, [inner]


def written_in_place(w, v):
    base = v.clone()
    inner = w[:2] * 2
    base[:2] = inner
    return base.sin(), [inner]


@pytest.mark.parametrize(
    ("network", "way"),
    [
        (once, 0),
        (past_the_operation, None),
        (through_a_function, None),
        (by_another_output, None),
        (two_operations, None),
        (one_behind_the_other, 0),
        (behind_the_operation, None),
        (the_outputs_themselves, 0),
        (written_in_place, 0),
    ],
)
def test_ways_in(network, way):
    w, v = leaf(), leaf()
    outputs, inner = network(w, v)
    found = ways_in(outputs, [get_gradient_edge(t) for t in inner], {"w": w, "v": v})
    assert found["w"] == way


def test_what_slopes_do_not_reach():
    w, v = leaf(), leaf()
    edges = [get_gradient_edge(w * 3)]
    assert ways_in(v * 2, edges, {"w": w, "v": v}) == {"v": None}


def test_long_graphs_take_steps_and_no_recursion():
    w = leaf()
    inner = w * 2
    outputs = inner
    for _ in range(3000):
        outputs = outputs + 1
    assert ways_in(outputs, [get_gradient_edge(inner)], {"w": w}) == {"w": 0}
