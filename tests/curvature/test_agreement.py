from __future__ import annotations

import math

import pytest
import torch
from support.cases import CASES, random_vector

from flatgauge.curvature.agreement import check_product, difference, is_near
from flatgauge.vectors import scale


def test_relative_distances_by_hand():
    right = {"a": torch.tensor([3.0, 4.0]).double()}
    found = difference({"a": torch.tensor([3.0, 4.5]).double()}, right)
    assert found == pytest.approx(0.1, rel=1e-14)
    assert difference({"a": torch.tensor([3.0, math.nan]).double()}, right) == math.inf
    zero = scale(right, 0.0)
    assert difference(zero, zero) == 0
    assert difference(right, zero) == pytest.approx(5, rel=1e-14)


def test_nothing_is_near_nothing():
    none = torch.ones(0, 3)
    assert is_near(none, none, 1e-3, none.amax(1, keepdim=True))


def test_only_what_is_wrong_altogether_is_refused():
    objective = CASES["mlp"].objective()
    right = random_vector(objective)
    check_product(scale(right, 1 + 1e-8), right, objective)
    with pytest.raises(RuntimeError, match=r"off by 1.0e-06"):
        check_product(scale(right, 1 + 1e-6), right, objective)
