"""Every claim of every measure, on networks of every kind, along random elements.

A new measure is tested here without writing a test: its claims are read off the
registry. For each measure there is also a kind of symmetry that moves it, so that the
tests of invariance are seen to be able to fail.
"""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import CASES, Attention, Case, _normal, mlp
from torch import nn

import flatgauge as fg
from flatgauge.measures.registry import claims_of
from flatgauge.results import Measurement, Status
from flatgauge.twins import families


def odd_with_a_factor() -> nn.Module:
    """Signs of the tanh's units may turn, and the last two matrices are one product."""
    return nn.Sequential(
        nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3), nn.ReLU(),
        nn.Linear(3, 2), nn.Linear(2, 3),
    )  # fmt: skip


NETWORKS = {
    "mlp": CASES["mlp"],
    "mlp without biases": Case(
        "bias-free", lambda: mlp(4, 12, 10, 3, bias=False), _normal(4)
    ),
    "convolutional": CASES["lenet"],
    "residual with batch norm": CASES["resnet"],
    "attention": Case("attention", Attention, _normal(4, 4)),
    "odd, with a factor": Case("odd", odd_with_a_factor, _normal(4)),
}
EACH = [
    pytest.param(name, marks=pytest.mark.slow if name.startswith("odd") else ())
    for name in NETWORKS
]
TIGHT = {"tol": 1e-12}
# Options under which a measure's claims differ, tight enough for 1e-9.
VARIANTS: dict[str, list[dict]] = {
    "hessian-spectral-norm": [TIGHT],
    "matrix-normalized-sharpness": [
        {},
        {"surrogate": "objective"},
        {"center_output": True},
        {"curvature": "ggn"},
    ],
    "normalized-sharpness": [
        {},
        {"surrogate": "objective"},
        {"center_output": True},
        {"curvature": "ggn"},
    ],
    "fisher-rao-norm": [
        {},
        {"diagonal": True},
        {"diagonal": True, "center_output": True},
    ],
    "riemannian-spectral-norm": [
        {"metric": metric, **more, **TIGHT}
        for metric in ("layer", "node")
        for more in ({}, {"connection": "levi-civita"}, {"center_output": True})
    ],
}
# These draw or ascend: their own tests hold them to their own tolerances.
ITERATIVE = (
    "epsilon-sharpness",
    "riemannian-sharpness",
    "volume-flatness",
    "normalized-sharpness-direct",
    "pac-bayes-bound",
)
MEASURED = [
    (info.name, options)
    for info in fg.list_measures()
    if info.name not in ITERATIVE
    for options in VARIANTS.get(info.name, [{}])
]


def request(name: str, options: dict) -> str:
    inside = ",".join(f"{key}={value}" for key, value in options.items())
    return f"{name}[{inside}]"


REQUESTS = [request(name, options) for name, options in MEASURED]


def drift(before: Measurement, after: Measurement) -> float:
    assert before.value is not None
    assert after.value is not None
    scale = max(abs(before.value), 1e-12)
    return abs(after.value - before.value) / scale


@cache
def problem(network: str, loss: str):
    """The objective, its base values and its families, computed once."""
    objective = NETWORKS[network].objective(loss)
    return fg.measure(objective, *REQUESTS), families(objective)


@pytest.mark.parametrize(
    "loss",
    [
        "cross-entropy",
        pytest.param("normalized-cross-entropy", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("network", EACH)
@settings(max_examples=2)
@given(seed=st.integers(0, 10_000))
def test_claims_hold(network: str, loss: str, seed: int):
    base, found = problem(network, loss)
    assert "node-rescale" in {family.kind for family in found}
    for family in found:
        if not family.exact:
            continue
        asked = [one for one in REQUESTS if family.kind in claims_of(base[one])]
        twin = family.twin(seed)
        assert twin.holds, (family.kind, twin.miss)
        moved = fg.measure(twin.objective, *asked)
        for one in asked:
            before, after = base[one], moved[one]
            if before.value is None:
                continue
            assert before.status in (Status.EXACT, Status.CONVERGED), (
                one,
                before.message,
            )
            drifted = drift(before, after)
            assert drifted <= 1e-9, (one, family.kind, before.value, after.value)


@pytest.mark.parametrize(
    ("kind", "claims"),
    [
        ("sign-flip", {"hessian-trace", "fisher-rao-norm", "normalized-sharpness"}),
        ("factor-gl", {"fisher-rao-norm"}),
    ],
)
def test_hidden_units_that_are_turned_or_mixed(kind: str, claims: set[str]):
    objective = NETWORKS["odd, with a factor"].objective("cross-entropy")
    (family,) = (one for one in families(objective) if one.kind == kind)
    twin = family.twin(seed=1, spread=1.0)
    assert twin.change <= 1e-13
    for name in ("hessian-trace", "fisher-rao-norm", "normalized-sharpness"):
        before, after = (fg.measure(o, name)[name] for o in (objective, twin.objective))
        assert (kind in claims_of(before)) == (name in claims)
        assert (drift(before, after) <= 1e-9) == (name in claims), name


@pytest.mark.parametrize("one", REQUESTS)
def test_something_else_moves_each_measure(one: str):
    moved = {}
    for network in ("mlp", "attention"):
        base, found = problem(network, "cross-entropy")
        for family in found:
            if family.kind not in claims_of(base[one]):
                twins = [family.twin(seed, 2.0).objective for seed in (5, 6)]
                moved[network, family.kind] = max(
                    drift(base[one], fg.measure(twin, one)[one]) for twin in twins
                )
    assert max(moved.values()) > 0.1, moved


def test_the_full_fisher_rao_norm_moves_under_output_scale_alone():
    base, found = problem("mlp", "cross-entropy")
    claimed = claims_of(base["fisher-rao-norm[]"])
    assert {f.kind for f in found} - claimed == {"output-scale"}


@pytest.mark.parametrize("network", EACH)
def test_twins_keep_the_function(network: str):
    for family in problem(network, "cross-entropy")[1]:
        if family.kind not in ("output-scale", "output-shift"):
            twin = family.twin(seed=3)
            assert twin.change <= (1e-12 if twin.exact else 1e-2), twin.kind


def test_float32_power_of_two_rescalings_change_nothing():
    model = mlp(4, 24, 16, 3, bias=False)
    data = CASES["mlp"].data(20)
    group = fg.symmetries(model, data[0].float())
    twin = group.act(model, group.random_element(seed=1, spread=2.0, power_of_two=True))
    names = ("normalized-sharpness", "riemannian-spectral-norm[metric=node]")
    first, second = (
        fg.measure(fg.Objective(one, data, dtype=torch.float32), *names)
        for one in (model, twin)
    )
    for name in names:
        assert math.isclose(first[name].value, second[name].value, rel_tol=1e-6)


@pytest.mark.parametrize("spread", [1.0, 4.0])
@pytest.mark.parametrize(
    ("dtype", "limit"), [(torch.float64, 1e-9), (torch.float32, 1e-4)]
)
def test_normalized_sharpness_stands_any_node_rescaling(dtype, limit, spread):
    model = CASES["mlp"].model()
    data = CASES["mlp"].data(20)
    group = fg.symmetries(model, data[0])
    twin = group.act(model, group.random_element(seed=1, spread=spread))
    first, second = (
        fg.measure(fg.Objective(one, data, dtype=dtype), "normalized-sharpness")
        for one in (model, twin)
    )
    name = "normalized-sharpness"
    assert math.isclose(first[name].value, second[name].value, rel_tol=limit)
