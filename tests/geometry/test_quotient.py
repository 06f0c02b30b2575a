from __future__ import annotations

import pytest
from support.cases import CASES, assert_close, random_vector

import flatgauge as fg
from flatgauge.errors import OptionError
from flatgauge.geometry import quotient
from flatgauge.geometry.metric import LayerMetric, NodeMetric
from flatgauge.vectors import add, dot, multiply

METRICS = [(LayerMetric(), "layer-rescale"), (NodeMetric(), "node-rescale")]


@pytest.mark.parametrize(("metric", "kind"), METRICS)
def test_projections_are_orthogonal_and_complete(metric, kind: str):
    objective = CASES["lenet"].objective()
    point = objective.parameters
    vertical = fg.symmetries(objective).vertical(point, kind)
    up = quotient.vertical_projection(vertical, metric, point)
    along = quotient.horizontal_projection(vertical, metric, point)
    vector = random_vector(objective)
    assert_close(add(up(vector), along(vector)), vector, 1e-12)
    assert_close(up(up(vector)), up(vector), 1e-10)
    assert abs(float(dot(up(vector), along(vector)))) < 1e-10
    for direction in quotient.whitened_vertical(vertical, metric, point)[:5]:
        assert_close(up(direction), direction, 1e-10)


@pytest.mark.parametrize(("metric", "kind"), METRICS)
def test_the_gradient_is_horizontal(metric, kind: str):
    objective = CASES["lenet"].objective()
    point = objective.parameters
    vertical = fg.symmetries(objective).vertical(point, kind)
    whitened = multiply(objective.gradient(), metric.scales(point))
    found = quotient.horizontal_projection(vertical, metric, point)(whitened)
    assert_close(found, whitened, 1e-10)


def test_limits(monkeypatch):
    objective = CASES["mlp"].objective()
    point = objective.parameters
    monkeypatch.setattr(quotient, "LIMIT", 1)
    vertical = fg.symmetries(objective).vertical(point)
    with pytest.raises(OptionError, match="above the limit"):
        quotient.vertical_projection(vertical, LayerMetric(), point)
