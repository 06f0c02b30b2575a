from __future__ import annotations

import pytest
import torch
from support.cases import CASES, KNOWN, known, known_network

import flatgauge as fg
from flatgauge.curvature.operator import SymmetricOperator

NAMES = [name for name in KNOWN if "trace" in KNOWN[name].get("measures", {})]


@pytest.mark.parametrize("name", NAMES)
def test_the_exact_diagonal_takes_no_product(name: str, monkeypatch):
    def refuse(operator, vectors):
        raise AssertionError("a product was computed")

    monkeypatch.setattr(SymmetricOperator, "__matmul__", refuse)
    found = fg.measure(known_network(name), "hessian-trace")["hessian-trace"]
    assert found.value == pytest.approx(known(name, "trace"), rel=1e-12)
    assert found.status is fg.Status.EXACT
    assert found.details["method"] == "exact"
    assert found.cost.products == 0


def test_it_is_the_sum_of_the_diagonal_elsewhere_too():
    objective = CASES["gelu"].objective()
    found = fg.measure(objective, "hessian-trace")["hessian-trace"]
    truth = float(torch.trace(fg.Hessian(objective).to_dense()))
    assert found.value == pytest.approx(truth, rel=1e-10)
    assert found.details["method"] == "basis"
