from __future__ import annotations

import pytest
import torch
from support.cases import CASES

import flatgauge as fg
from flatgauge.curvature.samples import (
    first_with_several,
    sample_length,
    take_samples,
)
from flatgauge.data import Batch
from flatgauge.errors import ModelError


def test_batches_are_cut_into_samples():
    x = {"x": torch.arange(6).reshape(3, 2)}
    batch = Batch(0, (x, torch.arange(3)), x, torch.arange(3))
    assert sample_length(batch) == 3
    part = take_samples(batch, slice(1, 2))
    assert part.inputs["x"].tolist() == [[2, 3]]
    assert part.targets.tolist() == [1]
    odd = Batch(0, (torch.zeros(3), torch.zeros(2)), torch.zeros(3), torch.zeros(2))
    with pytest.raises(ModelError, match=r"leading sizes \[2, 3\]: give every tensor"):
        sample_length(odd)


def test_a_batch_with_several_samples_is_looked_for():
    x, y = CASES["mlp"].data(5)
    batches = [(x[:1], y[:1]), (x[1:4], y[1:4]), (x[4:], y[4:])]
    model = CASES["mlp"].model()
    assert first_with_several(fg.Objective(model, batches)).index == 1
    assert first_with_several(fg.Objective(model, batches[:1])).index == 0
