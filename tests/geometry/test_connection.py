"""The Levi-Civita Hessian against second derivatives along geodesics."""

from __future__ import annotations

import pytest
import torch
from support.cases import CASES, random_vector

import flatgauge as fg
from flatgauge.errors import OptionError
from flatgauge.geometry.connection import LeviCivita
from flatgauge.geometry.metric import Euclidean, LayerMetric, NodeMetric
from flatgauge.vectors import dot


def cylinder(w, xi, t: float):
    """The geodesic of |dw|²/|w|²: a logarithmic radius and a great circle."""
    radius = w.norm()
    unit = w / radius
    radial = (unit * xi).sum() / radius
    across = xi / radius - radial * unit
    angle = across.norm()
    side = across / angle if angle > 0 else across
    return (
        radius
        * torch.exp(t * radial)
        * (torch.cos(t * angle) * unit + torch.sin(t * angle) * side)
    )


@pytest.mark.parametrize("metric", [LayerMetric(), NodeMetric()])
def test_quadratic_form_is_the_second_derivative_along_geodesics(metric):
    objective = CASES["tanh"].objective()
    point = objective.parameters
    operator = LeviCivita(fg.Hessian(objective), metric, point, objective.gradient())
    eta = {n: 0.3 * t for n, t in random_vector(objective).items()}
    scales = metric.scales(point)
    xi = {n: scales[n] * t for n, t in eta.items()}

    def moved(t: float) -> float:
        if isinstance(metric, NodeMetric):
            there = {n: w * torch.exp(t * xi[n] / w) for n, w in point.items()}
        else:
            there = {n: cylinder(w, xi[n], t) for n, w in point.items()}
        return objective.at(there).value()

    step = 1e-3
    second = (moved(step) - 2 * moved(0.0) + moved(-step)) / step**2
    assert float(dot(eta, operator @ eta)) == pytest.approx(second, rel=1e-4)


def test_vertical_directions_are_annihilated():
    objective = CASES["mlp"].objective()
    metric = NodeMetric()
    operator = LeviCivita(
        fg.Hessian(objective), metric, objective.parameters, objective.gradient()
    )
    group = fg.symmetries(objective)
    for direction in group.vertical(objective.parameters)[:3]:
        # In whitened coordinates S⁻¹v, whose signs are those of the weights.
        eta = {
            n: torch.where(t != 0, t / objective.parameters[n].abs(), 0.0)
            for n, t in direction.items()
        }
        # The form with diag(w) instead of diag(|w|): flip the signs of negative weights.
        assert float(dot(eta, operator @ eta)) == pytest.approx(0.0, abs=1e-10)


def test_the_euclidean_metric_is_flat():
    objective = CASES["mlp"].objective()
    with pytest.raises(OptionError, match="flat"):
        LeviCivita(
            fg.Hessian(objective),
            Euclidean(),
            objective.parameters,
            objective.gradient(),
        )
