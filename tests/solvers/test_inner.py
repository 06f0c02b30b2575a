from __future__ import annotations

import pytest
import torch

from flatgauge.solvers.inner import combination, inner_products
from flatgauge.vectors import generator


@pytest.mark.parametrize("size", [1, 1023, 1024, 5000])
@pytest.mark.parametrize(("left", "right"), [(0, 1), (1, 1), (3, 2)])
def test_it_is_the_matrix_product(size, left, right):
    random = generator(0)
    first = torch.randn(left, size, generator=random, dtype=torch.float64)
    second = torch.randn(right, size, generator=random, dtype=torch.float64)
    assert torch.allclose(inner_products(first, second), first @ second.T, atol=1e-12)


def test_long_float32_rows_lose_nothing():
    rows = torch.rand(2, 3_000_000, generator=generator(0))
    exact = rows.double() @ rows.double().T
    found = inner_products(rows, rows)
    assert found.dtype == torch.float64
    assert torch.allclose(found, exact, rtol=1e-7)


def test_combinations_are_matrix_products():
    rows = torch.randn(3, 50, generator=generator(0))
    weights = torch.randn(2, 3, generator=generator(1), dtype=torch.float64)
    expected = weights @ rows.double()
    assert torch.allclose(combination(weights, rows).double(), expected, atol=1e-5)
    assert torch.allclose(
        combination(weights[0], rows).double(), expected[0], atol=1e-5
    )
