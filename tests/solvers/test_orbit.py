import math

import pytest
import torch

from flatgauge.solvers.orbit import inscribed_box, orbit_sum


def test_images_are_disjoint_and_grow():
    point = torch.tensor([2.0, -1.0, 0.5, 0.0]).double()
    rates = torch.tensor([1.0, 1.0, -1.0, -2.0]).double()
    found = orbit_sum(point, rates, 0.1, counts=(1, 2, 50))
    assert found is not None
    assert found.log_determinant > 0
    boxes = []
    for k in range(50):
        scale = (k * found.power * rates).exp()
        boxes.append(torch.stack([(point - 0.1) * scale, (point + 0.1) * scale]))
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            meet = (one[0] < other[1]) & (other[0] < one[1])
            assert not bool(meet.all())
    total = sum(float((box[1] - box[0]).prod()) for box in boxes)
    assert found.totals[0][1] == pytest.approx(4 * math.log(0.2))
    assert found.totals[2] == (50, pytest.approx(math.log(total)))


def test_the_sum_has_no_bound():
    point, rates = torch.ones(2).double(), torch.tensor([1.0, -1.0]).double()
    found = orbit_sum(point, rates, 0.1, counts=(1, 10**6))
    assert found is not None
    assert found.totals[1][1] - found.totals[0][1] == pytest.approx(6 * math.log(10))


def test_no_coordinate_separates():
    point = torch.tensor([0.05, 1.0]).double()
    assert orbit_sum(point, torch.tensor([1.0, 0.0]).double(), 0.1) is None
    assert orbit_sum(point, torch.zeros(2).double(), 0.01) is None
    assert orbit_sum(point, torch.ones(2).double(), 0.0) is None


def test_the_box_is_inside():
    space = {"x": torch.zeros(2).double()}
    ball = inscribed_box(lambda d: float(d["x"].norm()), space, 1.0, 1.0)
    assert ball == 0.5
    assert inscribed_box(lambda d: 2.0, space, 1.0, 1.0) == 0.0


def test_a_given_corner_is_tried():
    space = {"x": torch.zeros(40).double()}
    signs = {"x": torch.arange(40).double() % 2 - 0.5}

    def loss(d):
        return float((d["x"] * signs["x"].sign()).sum())

    assert inscribed_box(loss, space, 30.0, 1.0) == 1.0
    assert inscribed_box(loss, space, 30.0, 1.0, corners=[signs]) == 0.5
