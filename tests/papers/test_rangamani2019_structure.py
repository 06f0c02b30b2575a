"""Rangamani et al.: the definitions, propositions and lemmas as the page measures them."""

from __future__ import annotations

import pytest
import torch

from flatgauge.curvature.dense import dense_hessian
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers
from flatgauge.vectors import ravel, unravel
from papers.experiment import Context, Results
from papers.rangamani2019 import quotient, riemannian, structure
from papers.rangamani2019.point import alphas, at_random, inner
from papers.store import plain

QUICK = Context(True, None, torch.device("cpu"))
SMALL = {"widths": [2, 3, 3, 2], "samples": 12, "seed": 0}


@pytest.fixture(scope="module")
def results() -> Results:
    records = {}
    for run in (*quotient.runs(True), *riemannian.runs(True)):
        settings = plain({**run.settings, **SMALL})
        result = plain(run.compute(QUICK, settings))
        records[run.name] = {"result": result, "settings": settings}
    return Results(records)


def test_factors_multiply_to_one():
    random = torch.Generator().manual_seed(0)
    assert torch.tensor(alphas(4, 1.0, random)).prod() == pytest.approx(1)


@pytest.mark.parametrize("kind", ["without biases", "with biases"])
def test_propositions_and_lemmas(results, kind):
    found = results["quotient"][kind]
    for key in ("reflexive", "symmetric", "transitive", "loss", "metric", "invariant"):
        assert found[key] < 1e-12
    assert found["euclidean"] > 0.1
    assert found["graph"] < 1e-12 < 0.1 < found["least off graph"]
    assert found["rank"] == found["rows"] == found["parameters"] - 2
    assert found["vertical"] < 1e-9
    assert found["vertical dimension"] == 2
    assert found["slope"] < 1e-12
    assert found["straight line, order"] == pytest.approx(2, abs=0.05)
    if kind == "with biases":
        assert found["printed rows"] > 0.01


def test_the_metric_is_the_identity_in_units_of_the_norms():
    here = at_random(SMALL, bias=True)
    point = here.parameters
    units = {name: tensor / tensor.norm() for name, tensor in point.items()}
    scaled = {name: tensor.norm() * units[name] for name, tensor in point.items()}
    assert inner(point, scaled, scaled) == pytest.approx(len(point))


def test_at_a_minimum_the_loss_is_zero():
    assert at_random(SMALL, bias=True, minimum=True).value() == 0
    near, far = (at_random(SMALL, True, targets_scale=s).value() for s in (1.0, 1000.0))
    assert 0 < near < far


def test_definitions_at_a_minimum_and_away(results):
    remarks = results["definitions"]["remarks"]
    at, away = remarks["minimum"], remarks["away"]
    assert at["gradient"] == 0 < away["gradient"]
    for one in (at, away):
        assert one["definition"] < 1e-12
        assert max(one["drift"], one["drift, Levi-Civita"]) < 1e-10
    assert at["frozen"] < 1e-12 < 1e-3 < away["frozen"]
    assert at["vertical image"] < 1e-12 < 1e-5 < away["vertical image"]
    for name in ("largest, projected", "largest, Levi-Civita"):
        assert at[name] == pytest.approx(at["largest"], rel=1e-10)
        assert away[name] != pytest.approx(away["largest"], rel=1e-6)


def test_definition_2_to_the_letter():
    """grad g(grad f, ξ) is G⁻¹ ∇²f ξ, tensor by tensor, at any point."""
    here = at_random(SMALL, bias=True)
    point = here.parameters
    tangent = {name: torch.ones_like(one) for name, one in point.items()}
    found = riemannian.literal_hessian(here, tangent, frozen=False)
    image = unravel(dense_hessian(here) @ ravel(tangent), point)
    for name, one in point.items():
        torch.testing.assert_close(found[name], one.square().sum() * image[name])


def test_the_levi_civita_hessian_is_that_of_geodesics():
    """The second derivative of f along a geodesic of g: radius e^{at}, turned by bt."""
    here = at_random(SMALL, bias=False)
    name, weight = next(iter(here.parameters.items()))
    size = weight.norm()
    turned = torch.randn(
        weight.shape, generator=torch.Generator().manual_seed(1), dtype=weight.dtype
    )
    turned -= (turned * weight).sum() / size**2 * weight
    turned *= size / turned.norm()
    radial, angular = 0.6, 0.8

    def value(t: float) -> float:
        angle = torch.tensor(angular * t, dtype=weight.dtype)
        moved = weight * angle.cos() + turned * angle.sin()
        factor = torch.tensor(radial * t, dtype=weight.dtype).exp()
        return here.at({**here.parameters, name: factor * moved}).value()

    step = 1e-4
    second = (value(step) - 2 * value(0.0) + value(-step)) / step**2
    tangent = {n: torch.zeros_like(w) for n, w in here.parameters.items()}
    tangent[name] = (radial * weight + angular * turned) / size
    along = ravel(tangent)
    matrix = riemannian.whitened(here) + riemannian.connection(here)
    assert float(along @ matrix @ along) == pytest.approx(second, rel=1e-5)


def test_sharpness_tends_to_its_second_order(results):
    rows = results["definitions"]["sharpness"]
    for key in ("epsilon", "manifold"):
        errors = [abs(row[key] / row[f"{key}, second order"] - 1) for row in rows]
        assert errors[-1] < min(0.1, errors[0])


def test_theorem_1_1_and_its_limit(results):
    rows = results["definitions"]["theorem"]
    assert all(row["largest"] >= max(row["bound"], row["floor"]) for row in rows)
    assert rows[0]["largest"] > 100 * rows[0]["floor"]


def test_algorithm_1_finds_the_largest_magnitude():
    run = riemannian.runs(True)[0]
    found = riemannian.compute(QUICK, plain(run.settings))["spectral"]
    assert found["found"]
    assert found["algorithm"] == pytest.approx(found["smallest"], rel=1e-4)
    assert found["library"] == pytest.approx(found["largest"], rel=1e-8)
    assert found["smallest"] < 0 < found["largest"] < -found["smallest"]


def test_section_6(results):
    found = results["definitions"]["nodes"]
    assert max(found["node"], found["loss"]) < 1e-10
    assert min(found["layer"], found["loss, printed"]) > 1e-3


def test_a_network_outside_of_the_class_is_seen():
    here = at_random(SMALL, bias=True)
    chain = Chain.of(here.model())
    moved = rescale_layers(here.parameters, chain, (2.0, 4.0, 0.125))
    assert quotient.graph_function(here.parameters, moved, chain).abs().max() < 1e-12
    wrong = {**moved, "1.bias": 2 * moved["1.bias"]}
    assert quotient.graph_function(here.parameters, wrong, chain).abs().max() > 0.5
    assert quotient.invariant(wrong, chain) != pytest.approx(
        quotient.invariant(moved, chain)
    )


def test_the_sections_follow_the_results(results):
    text = structure.propositions(results) + structure.definitions(results)
    assert "2 at 3" in text
    assert "not run" not in text
    assert "not run" in structure.propositions(Results({}))
    assert "not run" in structure.definitions(Results({}))
