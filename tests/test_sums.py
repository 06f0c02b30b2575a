"""Sums over the data, and that there is one place where they are made."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from support.cases import mlp
from torch import nn

import flatgauge as fg
from flatgauge.errors import DataError
from flatgauge.sums import summed

SOURCE = Path(__file__).parent.parent / "src" / "flatgauge"
# The place itself; what an objective is asked first; products, whose batches are kept, and
# how they are read, which is the business of each process.
PLACES = {
    "readings.py",
    "objective.py",
    "curvature/joining.py",
    "curvature/plan.py",
    "curvature/products.py",
    "curvature/samples.py",
}


def test_equal_structures_are_added_up():
    first = torch.ones(2)
    terms = [(1, {"a": first, "b": None}), (2, {"a": 2 * first, "b": None})] * 2
    number, found = summed(iter(terms))
    assert number == 6
    assert found["b"] is None
    assert torch.equal(found["a"], torch.full((2,), 6.0))
    assert torch.equal(first, torch.ones(2))


def test_views_can_be_added_up():
    total = summed([torch.ones(()).expand(3), torch.ones(3), torch.ones(3)])
    assert torch.equal(total, torch.full((3,), 3.0))


def test_nothing_is_refused():
    with pytest.raises(DataError, match="nothing to add up"):
        summed([])


@pytest.mark.parametrize("sizes", [[12], [5, 4, 3], [1] * 12])
def test_batches_make_no_difference(sizes):
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)).double()
    targets = torch.zeros(12, 2).double().split(sizes)
    batches = list(zip(x.split(sizes), targets, strict=True))
    objective = fg.Objective(mlp(4, 3, 2, activation=nn.Tanh).double(), batches, "mse")
    total = objective.sum(lambda batch: batch.inputs.sum(0))
    assert torch.allclose(total, x.sum(0))
    assert torch.equal(objective.first_batch().inputs, x[: sizes[0]])


def reads_batches(path: Path) -> bool:
    """Whether a file calls `batches()` of anything."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("batches", "held_batches")
        for node in ast.walk(ast.parse(path.read_text()))
    )


def test_one_place_reads_the_batches():
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if reads_batches(path)
    }
    assert found == PLACES
