from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import flatgauge as fg
from flatgauge.fingerprints import (
    AT_ONCE,
    _row_sums,
    _weights,
    data_fingerprint,
    parameters_fingerprint,
)

torch.manual_seed(0)
X, Y = torch.randn(24, 5), torch.randint(0, 3, (24,))


def fingerprint(data, dtype=torch.float32, **more) -> str:
    torch.manual_seed(1)
    model = nn.Linear(5, 3).to(dtype)
    return data_fingerprint(fg.Objective(model, data, **more))


def test_batches_order_precision_and_container_do_not_matter():
    first = fingerprint((X, Y))
    assert len(first) == 16
    order = torch.randperm(24)
    loader = DataLoader(TensorDataset(X, Y), batch_size=7)
    assert {
        fingerprint((X, Y), batch_size=5),
        fingerprint((X[order], Y[order]), batch_size=11),
        fingerprint((X.double(), Y), torch.float64),
        fingerprint(loader),
        fingerprint([(X[:9], Y[:9]), (X[9:], Y[9:])]),
    } == {first}


def test_every_other_data_are_other_data():
    moved, label, swapped = X.clone(), Y.clone(), X.clone()
    moved[3, 2] = moved[3, 2].nextafter(torch.tensor(9.0))
    label[5] = (label[5] + 1) % 3
    swapped[0, 0], swapped[0, 1] = X[0, 1], X[0, 0]
    others = [
        (X, Y),
        (moved, Y),
        (X, label),
        (swapped, Y),
        (X[:-1], Y[:-1]),
        (X.repeat(2, 1), Y.repeat(2)),
        (X, Y.flip(0)),
    ]
    found = [fingerprint(one) for one in others]
    assert len(set(found)) == len(found)


def sums(rows) -> torch.Tensor:
    return _row_sums(rows, _weights(rows.shape[1], rows.device))


def test_many_numbers_are_mixed_in_pieces():
    rows = torch.arange(6.0).reshape(3, 2).expand(3, 2)
    wide = torch.randint(0, 9, (3, AT_ONCE // 2 + 1))
    pieces = torch.cat([sums(wide[index : index + 1]) for index in range(3)])
    assert torch.equal(sums(wide), pieces)
    assert sums(rows).shape == (3,)


@pytest.mark.parametrize("values", [torch.zeros(2, 0), torch.zeros(2, 1).bool()])
def test_odd_tensors_have_one_too(values):
    assert sums(values).tolist() == [0, 0]


def test_it_is_in_the_provenance():
    torch.manual_seed(1)
    objective = fg.Objective(nn.Linear(5, 3), (X, Y))
    report = fg.measure(objective, "hessian-trace")
    assert report.provenance.data == data_fingerprint(objective)
    assert report.provenance.precision == "ieee"


def weights(change=None, device="cpu") -> str:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(90, 100), nn.Linear(100, 3)).double()
    if change is not None:
        with torch.no_grad():
            change(model)
    x = torch.zeros(2, 90, dtype=torch.float64)
    objective = fg.Objective(model, (x, torch.zeros(2).long()), device=device)
    return parameters_fingerprint(objective)


def test_a_bit_of_any_parameter_shows():
    def last_bit(model):
        entry = model[0].weight[99, 89]
        entry.copy_(torch.nextafter(entry, torch.ones_like(entry)))

    def swapped(model):
        row = model[0].weight[:2].clone()
        model[0].weight[:2] = row.flip(0)

    def moved(model):
        entries = model[0].weight.view(-1)[[0, 4096]].clone()
        model[0].weight.view(-1)[[0, 4096]] = entries.flip(0)

    assert len({weights(), *map(weights, (last_bit, swapped, moved))}) == 4
    assert weights() == weights()


@pytest.mark.gpu
def test_weights_on_a_gpu_have_the_same():
    assert weights(device="cuda") == weights()
