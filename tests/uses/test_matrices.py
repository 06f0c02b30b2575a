from __future__ import annotations

import torch

from flatgauge.uses import Matrices, Matrix
from flatgauge.uses.matrices import regular


def test_matrices_sum_kernel_positions():
    kernel = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    first, second = regular(4, 3, positions=4, groups=2).matrices(kernel)
    assert torch.allclose(first, kernel[:2].sum((2, 3)))
    assert torch.allclose(second, kernel[2:].sum((2, 3)))


def test_values_return_to_their_places():
    weight = torch.arange(30.0).reshape(5, 6)
    odd = Matrix(torch.tensor([0, 6, 24]), torch.tensor([1, 2, 5]), torch.tensor([0]))
    rest = torch.ones(30, dtype=torch.bool)
    rest[odd.entries()] = False
    used = Matrices((odd,), rest.nonzero().squeeze(1))
    (found,) = used.matrices(weight)
    assert torch.equal(found, weight[[0, 1, 4]][:, [1, 2, 5]])
    assert torch.equal(used.laid_out([found, used.others(weight)], weight), weight)
    assert not used.laid_out([found], weight)[2].any()
    strange = weight.t().contiguous().t()
    assert torch.equal(used.matrices(strange)[0], found)
