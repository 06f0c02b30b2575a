from __future__ import annotations

import pytest
import torch
from support.cases import known_network

import flatgauge as fg
from flatgauge.spectrum import (
    measure_spectrum,
    spectral_density,
    spectrum_data,
    top_eigenvalues,
)


def dense(objective: fg.Objective) -> torch.Tensor:
    return torch.linalg.eigvalsh(fg.Hessian(objective).to_dense())


def test_an_exact_density_has_integral_one_and_no_error():
    objective = known_network("A/ce")
    found = spectrum_data(spectral_density(objective))
    step = found["grid"][1] - found["grid"][0]
    assert sum(found["density"]) * step == pytest.approx(1, abs=1e-3)
    assert found["status"] == "EXACT"
    assert set(found["standard_error"]) == {0.0}
    assert found["eigenvalues"] == {}


def test_an_estimated_density_has_standard_errors():
    objective = known_network("A/ce")
    density = spectral_density(objective, probes=4, steps=5)
    found = spectrum_data(density, top_eigenvalues(objective, k=2))
    assert found["status"] == "ESTIMATED"
    assert max(found["standard_error"]) > 0
    assert len(found["grid"]) == len(found["density"]) == len(found["standard_error"])
    expected = dense(objective).flip(0)[:2].tolist()
    assert found["eigenvalues"]["values"] == pytest.approx(expected, rel=1e-3)
    assert found["grid"][-1] > expected[0]


def test_density_and_eigenvalues_for_the_products_of_one():
    objective = known_network("A/ce")
    count = len(dense(objective)) - 1
    found = measure_spectrum(objective, k=2, probes=4, steps=count, tol=1e-9)
    alone = spectral_density(objective, probes=4, steps=count)
    assert found.products <= alone.products
    data = spectrum_data(found.density, found.largest, found.smallest)
    values = dense(objective)
    expected = values.flip(0)[:2].tolist()
    assert data["eigenvalues"]["values"] == pytest.approx(expected, rel=1e-9)
    assert data["smallest"]["values"] == pytest.approx([float(values[0])], abs=1e-9)
    assert found.density.moment(2) == pytest.approx(alone.moment(2), rel=1e-9)


def test_more_eigenvalues_than_there_are_is_all_of_them():
    objective = known_network("A/ce")
    found = top_eigenvalues(objective, k=10_000, tol=1e-9)
    assert found.values == pytest.approx(dense(objective).flip(0).tolist(), abs=1e-6)
