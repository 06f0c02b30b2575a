"""Patterns of real networks, counted by hand and once more by linear algebra."""

from __future__ import annotations

import pytest
import torch
from support.models import images
from torch import Tensor, nn

from flatgauge.symmetry import symmetries

UNSEEN = 1e-30
"""An eps that no derivative sees: what holds up to eps is counted, too."""


class Between(nn.Module):
    """Four units behind a ReLU, and something between them and the head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def between(self, h: Tensor) -> Tensor:
        return h

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.between(torch.relu(self.first(x)))))


class Fourier(Between):
    """A filter over the positions of each unit."""

    def between(self, h: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(h, dim=1)
        return torch.fft.irfft(spectrum * spectrum.abs().sign(), n=h.shape[1], dim=1)


class FourierOfUnits(Between):
    """FNet: positions and units are mixed, so that one scale is left."""

    def between(self, h: Tensor) -> Tensor:
        return torch.fft.fftn(h, dim=(1, 2)).real


class FourierOperator(Between):
    """A complex matrix of units for each of three frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4, 3, 2))

    def between(self, h: Tensor) -> Tensor:
        low = torch.fft.rfft(h, dim=1)[:, :3].transpose(1, 2)
        mixed = torch.einsum("bim,iom->bom", low, torch.view_as_complex(self.weight))
        return torch.fft.irfft(mixed, n=h.shape[1], dim=-1).transpose(1, 2)


class Rotary(Between):
    """Pairs of units turned as complex numbers."""

    def between(self, h: Tensor) -> Tensor:
        pairs = torch.view_as_complex(h.reshape(*h.shape[:-1], 2, 2))
        angles = torch.arange(h.shape[1]).to(h)[:, None]
        turned = pairs * torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(turned).flatten(-2)


class EinsumHeads(nn.Module):
    """Attention whose weights are [width, heads, size], with a softmax."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("query", "key", "value", "out"):
            setattr(self, name, nn.Parameter(torch.randn(4, 2, 3)))

    def forward(self, x: Tensor) -> Tensor:
        query = torch.einsum("bih,hnd->bind", x, self.query)
        key = torch.einsum("bjh,hnd->bjnd", x, self.key)
        value = torch.einsum("bjh,hnd->bjnd", x, self.value)
        scores = torch.einsum("bind,bjnd->bnij", query, key).softmax(-1)
        mixed = torch.einsum("bnij,bjnd->bind", scores, value)
        return torch.einsum("bind,hnd->bih", mixed, self.out)


class NormedTable(nn.Module):
    """Rows that nothing but a norm reads have scales of their own, up to its eps."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(6, 4), nn.LayerNorm(4, eps=UNSEEN)
        self.head = nn.Linear(4, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.table(tokens)).mean(1))


class SummedTable(NormedTable):
    """The same behind a sum over tokens, which ties the rows together."""

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.table(tokens).sum(1)))


class Positions(nn.Module):
    """A class token in front; each place has a scale of its own, up to eps."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.norm = (
            nn.Linear(3, 4, bias=False),
            nn.LayerNorm(4, eps=UNSEEN),
        )
        self.token, self.table = nn.Parameter(torch.randn(4)), nn.Embedding(7, 4)
        self.head = nn.Linear(20, 2)

    def forward(self, x: Tensor) -> Tensor:
        token = self.token.expand(len(x), 1, -1)
        x = torch.cat([token, self.patch(x)], 1)
        return self.head(self.norm(x + self.table(torch.arange(5))).flatten(1))


class LateToken(nn.Module):
    """A class token that joins late: what is added to the others then has no effect."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.token = nn.Linear(3, 4), nn.Parameter(torch.randn(1, 1, 4))
        self.norm, self.last = (nn.LayerNorm(4, eps=UNSEEN) for _ in range(2))
        self.mix, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(len(x), -1, -1), self.patch(x)], 1)
        y = self.norm(x)
        weights = (y[:, :1] @ y.transpose(1, 2)).softmax(-1)
        x = x + self.mix(weights @ y)
        return self.head(self.last(x[:, 0]))


class AlongTokens(nn.Module):
    """A convolution of each head along the tokens, which leaves its units apart."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.head = nn.Linear(3, 4), nn.Linear(24, 2)
        self.conv = nn.Conv2d(2, 2, (3, 1), padding=(1, 0), groups=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.value(x).unflatten(-1, (2, 2)).transpose(1, 2)
        return self.head(self.conv(heads).transpose(1, 2).flatten(1))


class SpreadScale(nn.Module):
    """One number that multiplies all tokens, of which the last alone are read."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(3, 4, bias=False), nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.full((1,), 0.7))

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.first(x).relu() * self.scale)[:, -1])


class NoExact(nn.Module):
    """Everything behind a batch norm enters a SiLU, so that only its inputs are free."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = (nn.Conv2d(n, 3, 1, bias=False) for n in (2, 3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(3) for _ in range(2))
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.silu(self.norms[0](self.stem(x)))
        x = nn.functional.silu(x + self.norms[1](self.body(x)))
        return self.head(x.mean((2, 3)))


TOKENS = torch.tensor(
    [[0, 1, 2], [4, 0, 3], [5, 2, 5], [3, 0, 4], [2, 1, 0], [5, 4, 1]]
)
CASES = {
    "Fourier": (Fourier, images(5, 6, 3), 4, 4),
    "FourierOfUnits": (FourierOfUnits, images(5, 6, 3), 1, 1),
    # Four units in front, four behind.
    "FourierOperator": (FourierOperator, images(5, 6, 3), 8, 8),
    "Rotary": (Rotary, images(5, 6, 3), 2, 2),
    # Four units, and a kernel for each head.
    "AlongTokens": (AlongTokens, images(5, 6, 3), 6, 6),
    # Four units, and the scale.
    "SpreadScale": (SpreadScale, images(5, 6, 3), 5, 5),
    # Two heads with three coordinates each: query-key and value-output.
    "EinsumHeads": (EinsumHeads, images(4, 5, 4), 12, 12),
    # Four gains; up to eps six rows.
    "NormedTable": (NormedTable, TOKENS, 4, 10),
    # Four gains; up to eps the table as a whole.
    "SummedTable": (SummedTable, TOKENS, 4, 5),
    # Four gains of the last norm, up to eps the patches, and the token and what is added
    # to it. Gain and bias of the first norm meet themselves in the scores: none.
    "LateToken": (LateToken, images(5, 4, 3), 4, 6),
    # Four gains; up to eps the token and its place, and the patches and theirs. Two
    # places that no input is long enough for go with the first.
    "Positions": (Positions, images(6, 4, 3), 4, 6),
}


@pytest.mark.parametrize("name", CASES)
def test_counts(name):
    build, inputs, exact, approximate = CASES[name]
    torch.manual_seed(0)
    group = symmetries(build(), inputs, strict=True, verify="dimension")
    assert (group.dimension, group.approximate_dimension) == (exact, approximate)
    assert group.numerical is not None
    assert group.numerical.counted == approximate
    assert group.numerical.missed == 0


def test_nothing_is_exact_where_a_silu_follows_every_batch_norm():
    """Up to eps, with running statistics that follow, 3 + 3 channels are free."""
    torch.manual_seed(0)
    group = symmetries(NoExact(), images(4, 2, 3, 3), verify="dimension")
    assert (group.dimension, group.approximate_dimension) == (0, 6)
    assert group.numerical is not None
    assert (group.numerical.counted, group.numerical.missed) == (0, 0)
