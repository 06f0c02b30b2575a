from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import KNOWN
from support.small_nets import (
    assert_close,
    hessian,
    mlp,
    normal,
    params_of,
    squared_loss,
)
from torch import Tensor

from flatgauge.errors import OptionError, VectorError
from flatgauge.vectors import Params, ravel, unravel
from papers.dinh2017.radial_map import RadialMap, psi, psi_derivative

CLOSED = KNOWN["closed_forms"]
RADIAL = CLOSED["radial rhat=.3 delta=1 rho=.7 at theta-thetahat=(.3,.4)"]
CENTER = {"a": torch.tensor([1.0], dtype=torch.float64), "b": normal(1, 1, seed=0)}

radii = st.floats(0.05, 0.95)
distances = st.floats(0, 2)


def radial(rhat: float = 0.3, rho: float = 0.7) -> RadialMap:
    return RadialMap(CENTER, rhat=rhat, delta=1.0, rho=rho)


def at(x: float, y: float) -> Params:
    return {"a": CENTER["a"] + x, "b": CENTER["b"] + y}


def numbers(values: list) -> Tensor:
    return torch.tensor(
        [[float(item) for item in row] for row in values], dtype=torch.float64
    )


def test_known_answer():
    point = at(0.3, 0.4)
    radius = torch.tensor(0.5, dtype=torch.float64)
    assert float(psi(radius, 0.3, 1.0, 0.7)) == pytest.approx(
        float(RADIAL["psi"]), rel=1e-13
    )
    image = ravel(radial()(point)) - ravel(CENTER)
    torch.testing.assert_close(
        image[None], numbers([RADIAL["image"]]), rtol=1e-14, atol=0
    )
    torch.testing.assert_close(
        radial().jacobian(point), numbers(RADIAL["J"]), rtol=1e-14, atol=0
    )
    assert radial().determinant(point) == pytest.approx(float(RADIAL["det"]), rel=1e-14)
    centre = (radial().jacobian(CENTER)[0, 0] ** 2).item()
    assert centre == pytest.approx(float(RADIAL["hess_factor_at_centre"]), rel=1e-14)


@settings(deadline=None, max_examples=50)
@given(distances, radii, radii)
def test_swapping_rho_and_rhat_inverts_the_profile(distance, rhat, rho):
    radius = torch.tensor(distance, dtype=torch.float64)
    there = psi(radius, rhat, 1.0, rho)
    back = psi(there, rho, 1.0, rhat)
    assert float(back) == pytest.approx(distance, rel=1e-12, abs=1e-15)


@settings(deadline=None, max_examples=50)
@given(st.floats(-2, 2), st.floats(-2, 2), radii, radii)
def test_the_map_has_its_inverse(x, y, rhat, rho):
    forward = radial(rhat, rho)
    assert_close(forward.inverse()(forward(at(x, y))), at(x, y), 1e-12)
    assert_close(forward(forward.inverse()(at(x, y))), at(x, y), 1e-12)


def test_profile_is_monotone_through_its_fixed_points():
    grid = torch.linspace(0, 2, 401, dtype=torch.float64)
    values = psi(grid, 0.3, 1.0, 0.7)
    assert bool((values.diff() > 0).all())
    ends = psi(torch.tensor([0.0, 0.3, 1.0, 1.5], dtype=torch.float64), 0.3, 1.0, 0.7)
    torch.testing.assert_close(
        ends, torch.tensor([0.0, 0.7, 1.0, 1.5], dtype=torch.float64)
    )


def test_slope_is_the_derivative_of_the_profile():
    grid = torch.tensor([0.1, 0.2, 0.5, 0.9, 1.5], dtype=torch.float64)
    slope = (psi(grid + 1e-6, 0.3, 1.0, 0.7) - psi(grid - 1e-6, 0.3, 1.0, 0.7)) / 2e-6
    torch.testing.assert_close(
        psi_derivative(grid, 0.3, 1.0, 0.7), slope, rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("offset", [(0.0, 0.0), (0.1, 0.1), (0.3, 0.4), (1.0, 1.0)])
def test_jacobian_and_determinant_are_those_of_the_map(offset):
    point = at(*offset)

    def flat_map(flat: Tensor) -> Tensor:
        return ravel(radial()(unravel(flat, point)))

    expected = torch.autograd.functional.jacobian(flat_map, ravel(point))
    found = radial().jacobian(point)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    determinant = float(torch.linalg.det(found))
    assert radial().determinant(point) == pytest.approx(determinant, rel=1e-12)
    assert radial().log_determinant(point) == pytest.approx(math.log(determinant))


def test_centre_stays_and_the_outside_does_not_move():
    assert_close(radial()(CENTER), CENTER, 0)
    assert_close(radial()(at(0.8, 0.8)), at(0.8, 0.8), 1e-13)


@pytest.mark.parametrize("critical", [True, False])
def test_hessian_at_the_centre_is_multiplied(critical):
    """(ρ/r̂)² H, at a minimum and away from one: the map is linear near the centre."""
    net = mlp([2, 2, 1], seed=1)
    center, inputs = params_of(net), normal(20, 2, seed=2)
    targets = net(inputs).detach() + (0.0 if critical else 1.0)
    loss = squared_loss(net, inputs, targets)
    moved = RadialMap(center, rhat=0.2, delta=1.0, rho=0.6).compose(loss)
    torch.testing.assert_close(
        hessian(moved, center), 9 * hessian(loss, center), rtol=1e-11, atol=1e-11
    )


def test_two_minima_change_their_ranking():
    """A sharp minimum at -3 and a flat one at 3: one radial map each swaps them."""

    def loss(params: Params) -> Tensor:
        (x,) = params["x"]
        return torch.where(x < 0, 8 * (x + 3) ** 2, (x - 3) ** 2)

    sharp = {"x": torch.tensor([-3.0], dtype=torch.float64)}
    flat = {"x": torch.tensor([3.0], dtype=torch.float64)}
    assert float(hessian(loss, sharp)) == pytest.approx(16)
    assert float(hessian(loss, flat)) == pytest.approx(2)
    moved = RadialMap(flat, rhat=0.1, delta=1.0, rho=0.5).compose(loss)
    moved = RadialMap(sharp, rhat=0.4, delta=1.0, rho=0.1).compose(moved)
    assert float(hessian(moved, sharp)) == pytest.approx(1)
    assert float(hessian(moved, flat)) == pytest.approx(50)
    assert float(moved(sharp)) == float(moved(flat)) == 0


@pytest.mark.parametrize(
    ("rhat", "delta", "rho"), [(0.0, 1.0, 0.5), (1.0, 1.0, 0.5), (0.5, 1.0, 1.5)]
)
def test_impossible_radii_are_refused(rhat, delta, rho):
    with pytest.raises(OptionError, match="0 < rhat < delta"):
        RadialMap(CENTER, rhat, delta, rho)
    with pytest.raises(OptionError, match="0 < rhat < delta"):
        psi(torch.tensor(0.5), rhat, delta, rho)


def test_another_space_is_refused():
    with pytest.raises(VectorError):
        radial()({"a": CENTER["a"]})


def test_large_determinants_are_infinite_but_their_logarithm_is_not():
    center = {"x": torch.zeros(5000, dtype=torch.float64)}
    large = RadialMap(center, rhat=0.1, delta=1.0, rho=0.9)
    assert large.determinant(center) == math.inf
    assert large.log_determinant(center) == pytest.approx(5000 * math.log(9))
