from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import flatgauge as fg
from flatgauge.arrays import as_tensors
from flatgauge.errors import DataError

X = np.random.default_rng(0).normal(size=(12, 3))
Y = np.arange(12, dtype=np.int32) % 2


def test_arrays_are_data():
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    expected = fg.Objective(model, (torch.from_numpy(X), torch.from_numpy(Y))).value()
    frozen = X.copy()
    frozen.flags.writeable = False
    for data, more in (
        ((X, Y), {}),
        ((X, Y), {"batch_size": 5}),
        ((frozen, Y), {}),
        ((X[::-1], Y[::-1]), {}),
        ([(X[:5], Y[:5]), (X[5:], Y[5:])], {}),
        ([{"input": X, "labels": Y}], {}),
    ):
        found = fg.Objective(model, data, **more).value()
        assert found == pytest.approx(expected, rel=1e-12)


def test_what_is_no_array_stays_itself():
    data = [(torch.ones(2, 3), torch.zeros(2))]
    assert as_tensors(data) is data


def test_arrays_of_no_numbers_are_refused():
    words = np.array(["a", "b"])
    with pytest.raises(DataError, match=r"array of <U1.*convert it to numbers"):
        fg.Objective(nn.Linear(3, 2), (words, Y))
