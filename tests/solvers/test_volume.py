import math

import pytest
import torch

from flatgauge.errors import OptionError
from flatgauge.results import Status
from flatgauge.solvers.volume import log_ball_volume, star_volume


def ellipsoid(axes):
    return lambda d: float((d["x"] / axes).norm())


@pytest.mark.parametrize("dimension", [2, 6])
def test_volume_of_an_ellipsoid(dimension):
    axes = torch.linspace(0.7, 1.3, dimension).double()
    space = {"x": torch.zeros(dimension).double()}
    found = star_volume(ellipsoid(axes), space, 1.0, 5.0, directions=400, tol=1e-4)
    expected = log_ball_volume(dimension, 1.0) + float(axes.log().sum())
    assert found.status is Status.ESTIMATED
    assert "lower bound" in found.message
    assert found.standard_error < 0.1
    assert abs(found.log_volume - expected) < 3 * found.standard_error + 1e-4


def test_the_ball_caps_the_volume():
    space = {"x": torch.zeros(3).double()}
    found = star_volume(lambda d: 0.0, space, 1.0, 2.0)
    assert found.log_volume == pytest.approx(log_ball_volume(3, 2.0), rel=1e-14)
    assert found.capped == 1.0
    assert found.standard_error == 0.0


def test_far_smaller_than_the_ball():
    space = {"x": torch.zeros(3).double()}
    found = star_volume(lambda d: float(d["x"].norm()), space, 1e-9, 1.0, tol=1e-5)
    assert found.log_volume == pytest.approx(log_ball_volume(3, 1e-9), abs=2e-5)


def test_the_first_exit_counts_and_not_the_last():
    space = {"x": torch.zeros(2).double()}

    def ring(d):
        radius = float(d["x"].norm())
        return 1.0 if 1 < radius < 3 else 0.0

    found = star_volume(ring, space, 0.5, 8.0, directions=10, tol=1e-4)
    assert found.log_volume == pytest.approx(math.log(math.pi), abs=2e-4)


def test_one_direction_that_dominates_is_not_converged():
    space = {"x": torch.zeros(60).double()}
    axes = torch.logspace(-2, 2, 60).double()
    found = star_volume(ellipsoid(axes), space, 1.0, 1e3, directions=50)
    assert found.effective_directions < 10
    assert found.status is Status.NOT_CONVERGED
    assert "raise directions=" in found.message


def test_a_set_without_inside():
    found = star_volume(lambda d: 1.0, {"x": torch.zeros(2).double()}, 1.0, 1.0)
    assert found.log_volume == -math.inf
    assert found.status is Status.NOT_CONVERGED


def test_out_of_range():
    with pytest.raises(OptionError, match="positive"):
        star_volume(lambda d: 0.0, {"x": torch.zeros(2).double()}, 1.0, 0.0)
