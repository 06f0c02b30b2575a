from __future__ import annotations

import pytest
import torch

from flatgauge.curvature.slots import Group, Pass, by_slot, grouped
from flatgauge.losses.loss import Rows


def test_slots_hold_one_row_a_sample():
    rows = Rows(torch.zeros(5, 2), torch.zeros(5).long(), torch.tensor([0, 0, 1, 3, 3]))
    passes = list(by_slot(rows, torch.ones(5, 2, 2), torch.tensor([[1.0, -1.0]] * 5)))
    used = [one.columns[:, 0].tolist() for one in passes]
    assert used == [[1, 0, 1, 1, 0]] * 2 + [[0, 1, 0, 0, 1]] * 2
    assert [one.signs.sum().item() for one in passes] == [3, -3, 2, -2]


@pytest.mark.parametrize(("count", "sizes"), [(1, [1] * 5), (2, [2, 2, 1]), (9, [5])])
def test_groups_hold_all_passes_in_order(count, sizes):
    passes = [
        Pass(torch.full((3, 2), float(i)), torch.full((3,), float(i))) for i in range(5)
    ]
    groups = list(grouped(iter(passes), count))
    assert [len(group.columns) for group in groups] == sizes
    firsts = [float(one[0, 0]) for group in groups for one in group.columns]
    assert firsts == [0, 1, 2, 3, 4]
    assert [int(one[0]) for group in groups for one in group.signs] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("count", [1, 3])
def test_slopes_are_stacked_like_their_passes(count):
    random = torch.Generator().manual_seed(0)
    x, unused = torch.randn(4, 2, generator=random).requires_grad_(), torch.ones(1)
    weight = torch.randn(2, 5, generator=random)
    columns = torch.randn(count, 4, 5, generator=random)
    group = Group.of([Pass(one, torch.ones(4)) for one in columns])
    slopes = group.pull(x @ weight, [x, unused.requires_grad_()])
    assert slopes[0] is not None
    torch.testing.assert_close(slopes[0], columns @ weight.T)
    assert slopes[1] is None
