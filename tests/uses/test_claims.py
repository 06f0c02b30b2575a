"""Claims hold for weights that are used as several matrices."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.numerical_dimension import numerical_dimension
from support.used_networks import KINDS, Built, batched, data, slices, stack

import flatgauge as fg
from flatgauge.results import Measurement, Status

SHARPNESS = "normalized-sharpness[surrogate=objective]"
EXACT = (
    SHARPNESS,
    "riemannian-spectral-norm[metric=node,tol=1e-12]",
    "fisher-rao-norm[diagonal=True]",
)
NODE = "pac-bayes-bound[posterior=node,samples=8,surrogate=objective]"


def objective(network: Built, **options) -> fg.Objective:
    return fg.Objective(network, data(), batch_size=5, **options)


def values(at: fg.Objective, *requests: str) -> dict[str, Measurement]:
    return fg.measure(at, *requests).measurements


@settings(max_examples=5, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(KINDS), st.integers(2, 4), st.integers(0, 3))
def test_rescaled_units_change_no_invariant_number(build, width: int, seed: int):
    width = 4 if build is stack else width
    network = build(width, seed)
    twin = network.twin(seed + 1)
    here = objective(network)
    there = here.at(twin)
    x, _ = data()
    assert torch.allclose(there.model()(x), network(x), rtol=1e-10)
    before, after = values(here, *EXACT), values(there, *EXACT)
    for request, found in before.items():
        assert found.value == pytest.approx(after[request].value, rel=1e-9), request
    assert before[SHARPNESS].details["left_out"] == []
    assert before[SHARPNESS].status is Status.EXACT


@pytest.mark.parametrize("build", [batched, slices])
def test_node_posterior(build):
    network = build()
    here = objective(network)
    powers = network.rescale(network.weights(), _powers(network))
    before, after = values(here, NODE)[NODE], values(here.at(powers), NODE)[NODE]
    assert before.value == pytest.approx(after.value, rel=1e-9)


def _powers(network: Built) -> torch.Tensor:
    random = torch.Generator().manual_seed(3)
    draw = torch.randint(-2, 3, (network.units,), generator=random)
    return 2.0 ** draw.double()


@pytest.mark.parametrize("build", KINDS, ids=lambda build: build.__name__)
def test_all_rescalings_are_found_and_change_no_invariant_number(build):
    network = build()
    here = objective(network)
    group = fg.symmetries(here)
    assert group.complete
    assert group.dimension == network.units
    moved = here.at(group.act(here.parameters, group.random_element(seed=4)))
    before, after = (values(at, SHARPNESS) for at in (here, moved))
    assert before[SHARPNESS].value == pytest.approx(after[SHARPNESS].value, rel=1e-9)


@pytest.mark.parametrize("build", [batched, slices, stack])
def test_counts_agree_with_linear_algebra(build):
    network = build(4)
    assert numerical_dimension(network, (data(4)[0],)) == (network.units, 0)
