"""The network cases of known_answers.json, through `fg.measure` alone."""

from __future__ import annotations

import pytest
from support.cases import KNOWN, NETWORK_CASES, known, known_network

import flatgauge as fg

OWN = {"surrogate": "objective"}
TIGHT = {"tol": 1e-12, "full": True}
LAYER = "riemannian-spectral-norm[metric=layer]"
NODE = "riemannian-spectral-norm[metric=node]"
# The key in the file, the request, and the detail (None: the value itself).
WHERE = {
    "trace": ("hessian-trace", None),
    "lmax": ("hessian-spectral-norm", None),
    "lmin": ("hessian-spectral-norm", "smallest"),
    "spectral": ("hessian-spectral-norm", "radius"),
    "msharp13_all": ("matrix-normalized-sharpness", None),
    "msharp13_weights": ("matrix-normalized-sharpness", "weights_only"),
    "ns17_lam0.5": ("normalized-sharpness", None),
    "ns17_lam1": ("normalized-sharpness[lam=1]", None),
    "ns17_elementwise_lower": ("normalized-sharpness", "elementwise"),
    "riem_layer_lmax": (LAYER, None),
    "riem_layer_lmin": (LAYER, "smallest"),
    "riem_layer_lmax_weights_only": (LAYER, "weights_only"),
    "riem_node_lmax": (NODE, None),
    "riem_node_lmin": (NODE, "smallest"),
    "fr_diag25": ("fisher-rao-norm[diagonal=True]", None),
    "fr_full": ("fisher-rao-norm", None),
    "eps_sharp_2nd_eps1e-3": ("epsilon-sharpness", "quadratic"),
}
OPTIONS = {
    "matrix-normalized-sharpness": OWN,
    "normalized-sharpness": OWN,
    "hessian-spectral-norm": TIGHT,
    "riemannian-spectral-norm": TIGHT,
    "epsilon-sharpness": {"epsilon": 1e-3},
}


@pytest.mark.parametrize("name", NETWORK_CASES)
def test_network_case(name: str):
    objective = known_network(name)
    report = fg.measure(
        objective, *dict.fromkeys(one for one, _ in WHERE.values()), options=OPTIONS
    )
    left = set(KNOWN[name]["measures"]) - set(WHERE)
    assert left == {"loss", "grad_norm", "nuclear"}
    for key, (one, detail) in WHERE.items():
        if key not in KNOWN[name]["measures"]:
            continue
        found = report[one].value if detail is None else report[one].details[detail]
        tolerance = 1e-8 if key == "ns17_elementwise_lower" else 1e-10
        assert found == pytest.approx(known(name, key), rel=tolerance, abs=1e-12), key
    assert objective.value() == pytest.approx(known(name, "loss"), rel=1e-12)
