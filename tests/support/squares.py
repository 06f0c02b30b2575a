"""Squares of per-sample gradients by plain differentiation."""

from __future__ import annotations

import torch
from support.cases import assert_close

import flatgauge as fg
from flatgauge.diagonals.shares import by_slot
from flatgauge.losses.loss import Rows
from flatgauge.vectors import Params, zeros_like


def slopes(rows: Rows):
    """One pass a slot with the derivative of the squared outputs: f itself."""
    columns = rows.outputs.detach()[:, :, None]
    return by_slot(rows, columns, torch.ones_like(columns[:, :1, 0]))


def slowly(objective: fg.Objective) -> Params:
    """(1/N) Σ_rows (∇ ½‖f_row‖²)², row by row with plain autograd."""
    total = zeros_like(objective.parameters)
    with objective.isolated():
        for batch in objective.batches():
            point = objective.leaves()
            rows = objective.loss.rows(*objective.evaluate(point, batch))
            for f in rows.outputs:
                value = f.square().sum() / 2
                found = torch.autograd.grad(
                    value,
                    list(point.values()),
                    retain_graph=True,
                    allow_unused=True,
                    materialize_grads=True,
                )
                for name, slope in zip(point, found, strict=True):
                    total[name] += slope.square()
    return {name: tensor / objective.sample_count for name, tensor in total.items()}


def assert_same(found: Params, right: Params) -> None:
    """Every parameter by itself: a small one must not hide behind a large one."""
    assert list(found) == list(right)
    for name, tensor in right.items():
        assert_close(found[name], tensor, 1e-10)
