from __future__ import annotations

import pytest
import torch
from support.cases import CASES

import flatgauge as fg
from flatgauge.curvature.dense import dense_hessian
from flatgauge.errors import OptionError
from flatgauge.geometry.metric import Euclidean, LayerMetric, NodeMetric, resolve_metric
from flatgauge.vectors import ravel

POINT = {"w": torch.tensor([[3.0, 4.0]]), "b": torch.tensor([2.0]), "z": torch.zeros(2)}


def test_scales():
    assert LayerMetric().scales(POINT)["w"].tolist() == [[5.0, 5.0]]
    assert LayerMetric().scales(POINT)["b"].tolist() == [2.0]
    assert NodeMetric().scales(POINT)["w"].tolist() == [[3.0, 4.0]]
    assert Euclidean().scales(POINT)["z"].tolist() == [1.0, 1.0]
    assert LayerMetric().scales(POINT)["z"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ["euclidean", "layer", "node"])
def test_whitening_is_s_h_s(name: str):
    objective = CASES["mlp"].objective()
    metric = resolve_metric(name)
    scales = ravel(metric.scales(objective.parameters))
    expected = scales[:, None] * dense_hessian(objective) * scales
    found = metric.whiten(fg.Hessian(objective), objective.parameters).to_dense()
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_unknown_metrics_are_named():
    with pytest.raises(OptionError, match="'fisher' is not known: use 'euclidean'"):
        resolve_metric("fisher")
