from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from flatgauge.solvers.pac_bayes import ScaleGrid
from flatgauge.solvers.posterior import (
    entry_block,
    matrix_posterior,
    matrix_posteriors,
    tensor_block,
)
from flatgauge.uses.matrices import regular

GRID = ScaleGrid(2.0)
FINE = ScaleGrid(1.001)


def normal(*shape: int, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=random, dtype=torch.float64)


def test_tensor_block_follows_the_corrected_equation_11():
    weight = normal(3, 4)
    square = float(weight.square().sum())
    block = tensor_block(weight, 2.5, 7.0, 100.0, FINE)
    assert float(block.variance[0, 0]) == pytest.approx(math.sqrt(square / (7 * 2.5)))
    assert block.equal_kl == pytest.approx(square / (2 * float(block.variance[0, 0])))
    assert block.least_kl <= block.kl <= block.least_kl + block.resolution
    assert block.kl < block.equal_kl
    assert block.tuned == 1


@pytest.mark.parametrize("curvature", [0.0, -3.0, 1e-30])
def test_without_curvature_the_variance_is_capped(curvature: float):
    weight = normal(3, 4)
    block = tensor_block(weight, curvature, 7.0, 5.0, GRID)
    assert block.variance.unique().tolist() == pytest.approx(
        [5 * float(weight.square().mean())]
    )
    entries = entry_block(weight, torch.full_like(weight, curvature), 7.0, 5.0, GRID)
    torch.testing.assert_close(entries.variance, 5 * weight.square())


def test_zero_weights_cost_nothing_but_their_scales():
    weight = torch.zeros(4, dtype=torch.float64)
    for h in (torch.zeros_like(weight), torch.ones_like(weight)):
        for block in (
            tensor_block(weight, float(h.sum()), 7.0, 5.0, GRID),
            entry_block(weight, h, 7.0, 5.0, GRID),
            matrix_posterior(h.view(2, 2), weight.view(2, 2)).block(7.0, 5.0, GRID),
        ):
            assert block.kl == pytest.approx(0, abs=1e-9)
            assert float(block.variance.max()) < 1e-25


def test_matrix_variances_minimize_the_second_order_bound():
    h, square = normal(3, 4).square(), normal(3, 4, seed=1).square()
    posterior = matrix_posterior(h, square)
    x, y = posterior.log_scales(7.0, 1e9)
    z = x[:, None] + y
    up, down = h * z.exp() / 2, square * (-z).exp() / 14
    value = float((up + down).sum())
    assert value == pytest.approx(posterior.solved.value / (2 * math.sqrt(7)))
    slope = up - down
    for axis in (0, 1):
        assert float(slope.sum(axis).abs().max()) < 1e-6


def test_matrix_prior_is_nearly_the_best_product_on_the_grid():
    h, square = normal(2, 2).square(), normal(2, 2, seed=1).square()
    posterior = matrix_posterior(h, square)
    block = posterior.block(7.0, 100.0, GRID)
    logs = torch.arange(-6, 7, dtype=torch.float64) * GRID.spacing
    # The second column's scale is that of the first, times powers of the ratio.
    first = logs[:, None, None]
    best = 0.0
    for row in (0, 1):
        costs = []
        for column in (0, 1):
            prior = first if column == 0 else first + logs[None, :, None]
            variance, weight = block.variance[row, column], square[row, column]
            log_ratio = variance.log() - prior
            kl = 0.5 * (weight * (-prior).exp() + log_ratio.expm1() - log_ratio)
            costs.append(kl)
        # Each row takes its own best scale, for every scale of the second column.
        best = best + (costs[0] + costs[1]).amin(0)
    lowest = float(best.min())
    assert block.least_kl <= lowest <= block.kl <= block.least_kl + block.resolution


def test_fine_grid_reaches_the_least_divergence():
    h, square = normal(5, 6).square(), normal(5, 6, seed=1).square()
    block = matrix_posterior(h, square).block(7.0, 100.0, FINE)
    assert block.kl == pytest.approx(block.least_kl, rel=1e-5)
    assert block.least_kl <= block.kl
    assert block.tuned == 11


@pytest.mark.parametrize("dead", ["none", "row", "column", "both", "all", "zero row"])
def test_posterior_is_equivariant_also_where_units_are_dead(dead: str):
    h, square = normal(4, 5).square(), normal(4, 5, seed=1).square()
    if dead in ("row", "both"):
        h[1] = 0
    if dead in ("column", "both"):
        h[:, 2] = 0
    if dead == "all":
        h = torch.zeros_like(h)
    if dead == "zero row":
        square[1] = 0
    # Powers of the grid's ratio: the divergence on the grid must not move either.
    rows = 2.0 ** torch.tensor([2, -3, 0, 5], dtype=torch.float64)[:, None]
    columns = 2.0 ** torch.tensor([1, -1, 4, 0, -2], dtype=torch.float64)
    factor = (rows * columns).square()
    block = matrix_posterior(h, square).block(7.0, 10.0, GRID)
    moved = matrix_posterior(h / factor, square * factor).block(7.0, 10.0, GRID)
    live = square > 0
    torch.testing.assert_close(moved.variance[live], (block.variance * factor)[live])
    assert moved.kl == pytest.approx(block.kl, rel=1e-6)
    assert moved.least_kl == pytest.approx(block.least_kl, rel=1e-6)


def test_any_rescaling_stays_within_the_resolution():
    h, square = normal(4, 5).square(), normal(4, 5, seed=1).square()
    factor = torch.exp(normal(4, 1, seed=2) + normal(5, seed=3)).square()
    block = matrix_posterior(h, square).block(7.0, 10.0, GRID)
    moved = matrix_posterior(h / factor, square * factor).block(7.0, 10.0, GRID)
    assert moved.kl != block.kl
    assert abs(moved.kl - block.kl) <= block.resolution
    assert moved.least_kl == pytest.approx(block.least_kl, rel=1e-6)


def test_groups_and_kernel_positions():
    weight, h = normal(4, 3, 2, 2), normal(4, 3, 2, 2, seed=1)
    matrix = regular(4, 3, positions=4, groups=2)
    parts = matrix_posteriors(matrix, h, weight)
    blocks = [part.block(7.0, 100.0, GRID) for part in parts]
    assert [part.positions for part in parts] == [4, 4]
    variance = matrix.laid_out([block.variance for block in blocks], weight)
    assert variance.shape == weight.shape
    assert torch.equal(variance[2:, :, 0, 1], blocks[1].variance)
    equal = float((weight.square() / variance).sum()) / 2
    assert sum(block.equal_kl for block in blocks) == pytest.approx(equal)
