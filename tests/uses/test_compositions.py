"""Networks whose layers take their weights in ways drawn at random."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support.numerical_dimension import numerical_dimension
from torch import Tensor, nn

import flatgauge as fg

WIDTH = 3
SHARPNESS = "normalized-sharpness[surrogate=objective]"
ORDER = torch.tensor([2, 0, 1])
MASK = 2 - torch.eye(WIDTH, dtype=torch.float64)
Maker = Callable[..., Tensor]

# The shapes of a layer's own parameters, and the square weight that is made of them.
MAKERS: dict[str, tuple[list[tuple[int, ...]], Maker]] = {
    "plain": ([(3, 3)], lambda w: w),
    "slice": ([(5, 3)], lambda w: w[1:4]),
    "of a stack": ([(2, 3, 3)], lambda w: w.mT.contiguous()[1]),
    "view": ([(3, 1, 3)], lambda w: w.reshape(3, 3)),
    "of a vector": ([(11,)], lambda w: w[1:10].view(3, 3)),
    "masked": ([(3, 3)], lambda w: w * MASK),
    "low rank": ([(3, 3), (1, 3), (3, 1)], lambda w, a, b: w + 0.3 * b @ a),
    "row gains": ([(3, 3), (3, 1)], lambda w, g: w * g),
    "joined": ([(1, 3), (2, 3)], lambda a, b: torch.cat([a, b])),
    "permuted": ([(3, 3)], lambda w: w[ORDER]),
    "padded": ([(3, 2)], lambda w: F.pad(w, (1, 0))),
    "product": ([(3, 3), (3, 3)], lambda w, v: w * v),
}
CONTRACTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "linear": F.linear,
    "mm": lambda x, w: x @ w,
    "bmm": lambda x, w: torch.bmm(x.expand(2, -1, -1), w.expand(2, -1, -1)).mean(0),
    "einsum": lambda x, w: torch.einsum("bi,oi->bo", x, w),
}


class Composed(nn.Module):
    def __init__(self, layers: list[tuple[str, str]], residual: bool) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(0)
        self.layers, self.residual = layers, residual
        self.weights = nn.ModuleList()
        for maker, _ in layers:
            draws = [
                torch.randn(shape, generator=random, dtype=torch.float64)
                for shape in MAKERS[maker][0]
            ]
            self.weights.append(nn.ParameterList(draws))

    def forward(self, x: Tensor) -> Tensor:
        for number, (maker, contraction) in enumerate(self.layers):
            weight = MAKERS[maker][1](*self.weights[number])
            result = CONTRACTIONS[contraction](x, weight)
            if number + 1 < len(self.layers):
                result = result.relu() + (x if self.residual and number else 0)
            x = result
        return x


layer = st.tuples(
    st.sampled_from(sorted(MAKERS)), st.sampled_from(sorted(CONTRACTIONS))
)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(st.lists(layer, min_size=2, max_size=3), st.booleans())
def test_every_rescaling_is_found_and_keeps_the_sharpness(layers, residual: bool):
    network = Composed(layers, residual)
    random = torch.Generator().manual_seed(9)
    x = torch.randn(8, WIDTH, generator=random, dtype=torch.float64)
    group = fg.symmetries(network, x)
    count, dead = numerical_dimension(network, (x[:3],))
    assert group.complete
    assert count - dead <= group.dimension <= count
    here = fg.Objective(network, (x, torch.arange(8) % WIDTH), batch_size=3)
    there = here.at(group.act(here.parameters, group.random_element(seed=1)))
    before, after = (fg.measure(at, SHARPNESS)[SHARPNESS].value for at in (here, there))
    if before is not None:
        assert after == pytest.approx(before, rel=1e-8)
