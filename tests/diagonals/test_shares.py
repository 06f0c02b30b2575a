from __future__ import annotations

import pytest
import torch

from flatgauge.diagonals.shares import by_slot, stacked_slopes
from flatgauge.losses.loss import Rows


def test_slots_hold_one_row_a_sample():
    rows = Rows(torch.zeros(5, 2), torch.zeros(5).long(), torch.tensor([0, 0, 1, 3, 3]))
    pulls = list(by_slot(rows, torch.ones(5, 2, 2), torch.tensor([[1.0, -1.0]] * 5)))
    used = [one.columns[:, 0].tolist() for one in pulls]
    assert used == [[1, 0, 1, 1, 0]] * 2 + [[0, 1, 0, 0, 1]] * 2
    assert [one.signs.sum().item() for one in pulls] == [3, -3, 2, -2]


@pytest.mark.parametrize("count", [1, 3])
def test_slopes_are_stacked_like_their_columns(count):
    random = torch.Generator().manual_seed(0)
    x, unused = torch.randn(4, 2, generator=random).requires_grad_(), torch.ones(1)
    weight = torch.randn(2, 5, generator=random)
    columns = torch.randn(count, 4, 5, generator=random)
    slopes = stacked_slopes(x @ weight, [x, unused.requires_grad_()], columns)
    assert slopes[0] is not None
    torch.testing.assert_close(slopes[0], columns @ weight.T)
    assert slopes[1] is None
