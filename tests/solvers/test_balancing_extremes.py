from __future__ import annotations

import math
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flatgauge.errors import NonFiniteError
from flatgauge.results import Status
from flatgauge.solvers.balancing import balance

ALPHA = torch.tensor([[1.0, 0.5, 0.25], [0.5, 1.0, 0.125]], dtype=torch.float64)
BETA = torch.tensor([[0.5, 1.0, 0.5], [1.0, 0.25, 0.75]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("first", "second"), [(1e308, 1.0), (1.0, 1e308), (1e308, 1e-300), (1e-300, 1e308)]
)
def test_the_largest_numbers(first, second):
    found = balance(first * ALPHA, second * BETA)
    expected = balance(ALPHA, BETA).value * math.sqrt(first) * math.sqrt(second)
    assert found.status is Status.CONVERGED
    assert found.value == pytest.approx(expected, rel=1e-11)
    assert torch.isfinite(found.row_scale).all()


def test_a_value_beyond_float64_is_refused():
    with pytest.raises(NonFiniteError, match="larger than float64 can hold"):
        balance(1e308 * ALPHA, 1e308 * BETA)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(
    st.lists(
        st.sampled_from([0.0, 1e-308, 1e-200, 1.0, 1e200, 1e308]),
        min_size=12,
        max_size=12,
    )
)
def test_any_finite_entries_give_a_number_or_one_sentence(entries):
    upper, lower = torch.tensor(entries, dtype=torch.float64).view(2, 2, 3)
    with suppress(NonFiniteError):
        found = balance(upper, lower)
        assert math.isfinite(found.value)
        assert found.value >= 0
