import math

import pytest
import torch

from flatgauge.errors import NonFiniteError, OptionError
from flatgauge.results import Status
from flatgauge.solvers.ascent import maximize_on_ball
from flatgauge.vectors import norm


def space(n, dtype=torch.float64):
    return {"x": torch.zeros(n, dtype=dtype)}


def quadratic(matrix, linear, offset=0.0):
    def function(point):
        x = point["x"]
        value = offset + float(0.5 * x @ matrix @ x + linear @ x)
        return value, {"x": matrix @ x + linear}

    return function


def trust_region_maximum(matrix, linear, radius):
    """max ½xᵀAx + bᵀx on the ball, from the secular equation by bisection."""
    values, vectors = torch.linalg.eigh(matrix)
    b = vectors.T @ linear

    def length(shift):
        return float((b / (shift - values)).norm())

    low, high = float(values.max()), float(values.max()) + 1e6
    if low <= 0 and length(0.0) <= radius:
        x = b / -values
    else:
        low = max(low, 0.0)
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if length(middle) > radius else (low, middle)
        x = b / (high - values)
    return float(0.5 * (values * x * x).sum() + b @ x)


@pytest.mark.parametrize("shift", [-4.0, 0.0, 4.0])
@pytest.mark.parametrize("seed", range(4))
def test_quadratics_on_a_ball(seed, shift):
    random = torch.Generator().manual_seed(seed)
    matrix = torch.randn(8, 8, generator=random).double()
    matrix = matrix + matrix.T + shift * torch.eye(8).double()
    linear = torch.randn(8, generator=random).double()
    found = maximize_on_ball(quadratic(matrix, linear), space(8), 0.7, tol=1e-9)
    assert found.status is Status.CONVERGED
    expected = trust_region_maximum(matrix, linear, 0.7)
    assert found.value == pytest.approx(expected, rel=1e-11)


def test_maximum_inside_the_ball():
    matrix, linear = (
        -torch.eye(3).double(),
        torch.tensor([0.1, 0.2, 0.0], dtype=torch.float64),
    )
    found = maximize_on_ball(quadratic(matrix, linear), space(3), 2.0)
    assert found.status is Status.CONVERGED
    assert found.value == pytest.approx(0.025, rel=1e-12)
    assert float(norm(found.point)) == pytest.approx(math.sqrt(0.05), rel=1e-6)


def test_slow_gap_and_rounding_of_a_large_offset():
    matrix = torch.diag(torch.tensor([1.0, 0.99, 0.5]).double()) * 1e-4
    function = quadratic(matrix, torch.zeros(3).double(), offset=1.0)
    found = maximize_on_ball(function, space(3), 1.0, tol=1e-9)
    assert found.status is Status.CONVERGED
    assert abs(found.value - 1 - 5e-5) <= found.rounding


def test_never_below_a_point_that_was_evaluated():
    met = []

    def function(point):
        x = point["x"]
        met.append(float(torch.cos(9 * x).sum() + x.sum()))
        return met[-1], {"x": -9 * torch.sin(9 * x) + 1}

    found = maximize_on_ball(function, space(4), 1.5, restarts=5)
    assert found.value == max(met)
    assert found.value >= found.center == met[0]
    assert found.evaluations == len(met)
    assert len(found.climbs) == 6
    assert "lower bound of the maximum" in found.message


def test_too_few_steps_say_so():
    random = torch.Generator().manual_seed(0)
    matrix = torch.randn(20, 20, generator=random).double()
    function = quadratic(matrix + matrix.T, torch.zeros(20).double())
    found = maximize_on_ball(function, space(20), 1.0, steps=2)
    assert found.status is Status.NOT_CONVERGED
    assert "raise steps=" in found.message


def test_a_maximum_on_a_kink_is_not_called_converged():
    def function(point):
        x = point["x"]
        ridge = torch.tensor([1.0, 0.0]).double()
        slope = -3 * torch.sign(x[1] - 0.3) * torch.tensor([0.0, 1.0]).double()
        return float(x[0] - 3 * (x[1] - 0.3).abs()), {"x": ridge + slope}

    found = maximize_on_ball(function, space(2), 1.0)
    assert found.status is Status.NOT_CONVERGED
    assert "kink" in found.message
    assert found.value <= math.sqrt(1 - 0.09)


def test_a_constant_is_its_own_maximum():
    found = maximize_on_ball(
        quadratic(torch.zeros(2, 2).double(), torch.zeros(2).double(), 3.0),
        space(2),
        1.0,
    )
    assert (found.value, found.status) == (3.0, Status.CONVERGED)


def test_out_of_range():
    function = quadratic(torch.eye(2).double(), torch.ones(2).double())
    with pytest.raises(OptionError, match="radius"):
        maximize_on_ball(function, space(2), 0.0)
    with pytest.raises(OptionError, match="tol"):
        maximize_on_ball(function, space(2), 1.0, tol=0.0)
    with pytest.raises(OptionError, match="steps"):
        maximize_on_ball(function, space(2), 1.0, steps=0)
    with pytest.raises(NonFiniteError, match="smaller ball"):
        maximize_on_ball(lambda x: (math.nan, x), space(2), 1.0)


def test_the_seed_decides():
    function = quadratic(torch.eye(3).double(), torch.ones(3).double())
    one, same = (maximize_on_ball(function, space(3), 1.0, seed=4) for _ in range(2))
    assert one.climbs == same.climbs
    assert one.climbs != maximize_on_ball(function, space(3), 1.0, seed=5).climbs
