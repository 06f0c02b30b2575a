"""Fields, flows, operators, and networks that make or choose weights, in plain torch."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.others_plain import INPUTS, SAMPLES, WIDTH, chain, classified, features
from zoo.registry import CLASSES, Trial, labels, network


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(3.0 * x)


@network("others")
def siren_mse() -> Trial:
    model = nn.Sequential(
        nn.Linear(2, 8), Sine(), nn.Linear(8, 8), Sine(), nn.Linear(8, 1)
    )
    return Trial(model, features(2), torch.randn(SAMPLES, 1), "mse")


class Field(nn.Module):
    """Positions in sines and cosines, a chain with a skip, density and colour."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(15, 8), nn.Linear(8, 8)
        self.three, self.out = nn.Linear(23, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        waves = [f(2**k * x) for k in range(2) for f in (torch.sin, torch.cos)]
        x = torch.cat([x, *waves], -1)
        h = self.two(self.one(x).relu()).relu()
        return self.out(self.three(torch.cat([h, x], -1)).relu())


@network("others")
def nerf_mse() -> Trial:
    return Trial(Field(), features(3), torch.randn(SAMPLES, 4), "mse")


class Coupling(nn.Module):
    """log p(x) of a flow of affine couplings."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Linear(2, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))
            for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros_like(x[:, 0])
        for part in self.parts:
            held, moved = x.chunk(2, 1)
            shift, log_scale = part(held).chunk(2, 1)
            log_scale = log_scale.tanh()
            x = torch.cat([moved * log_scale.exp() + shift, held], 1)
            total = total + log_scale.sum(1)
        return total - x.square().sum(1) / 2


@network("others")
def realnvp_nll() -> Trial:
    return Trial(Coupling(), features(), torch.zeros(SAMPLES), lambda f, y: -(f - y))


class Radial(nn.Module):
    """Σ over inputs of splines in radial bumps, as Kolmogorov-Arnold networks have."""

    def __init__(self, n: int, m: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(m, n, 4) / 4)
        self.register_buffer("centres", torch.linspace(-1, 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        bumps = torch.exp(-4 * (x[..., None] - self.centres).square())
        return torch.einsum("bnk,mnk->bm", bumps, self.weight)


@network("others")
def kan_rbf() -> Trial:
    return classified(nn.Sequential(Radial(INPUTS, WIDTH), Radial(WIDTH, CLASSES)))


class Hyper(nn.Module):
    """A network whose weights another one makes."""

    def __init__(self):
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(1, 7), nn.ReLU(), nn.Linear(7, INPUTS * 3))
        self.head = nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.maker(x.new_ones(1, 1)).view(3, INPUTS)
        return self.head(F.linear(x, weight))


@network("others")
def hypernetwork() -> Trial:
    return classified(Hyper())


class Experts(nn.Module):
    """All experts, weighed by a softmax."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(INPUTS, 3)
        self.experts = nn.ModuleList(chain(nn.ReLU()) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.gate(x).softmax(-1)
        return sum(
            w[:, None] * e(x) for w, e in zip(weights.T, self.experts, strict=True)
        )


@network("others")
def soft_moe() -> Trial:
    return classified(Experts())


class Cross(nn.Module):
    """A small network for pictures that goes down and up, with a skip."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
        )
        self.deep = nn.Sequential(
            nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()
        )
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.out = nn.Conv2d(8, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down(x)
        deep = self.up(self.deep(F.max_pool2d(skip, 2)))
        return self.out(torch.cat([skip, deep], 1)).permute(0, 2, 3, 1)


@network("others")
def unet() -> Trial:
    return Trial(Cross(), features(1, 4, 4), labels(SAMPLES * 16).view(SAMPLES, 4, 4))


class Codes(nn.Module):
    """The nearest of a few codes, its gradient passed straight through."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(INPUTS, 3), nn.Linear(3, CLASSES)
        self.codes = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.encode(x)
        nearest = self.codes[torch.cdist(h, self.codes).argmin(1)]
        return self.decode(h + (nearest - h).detach())


@network("others")
def vq_straight_through() -> Trial:
    return replace(classified(Codes()), derivatives="as given")


class Waves(nn.Module):
    """A Fourier neural operator of one layer."""

    def __init__(self):
        super().__init__()
        self.lift, self.head = nn.Linear(1, 4), nn.Linear(4, CLASSES)
        self.weight = nn.Parameter(torch.randn(4, 4, 3, 2) / 4)
        self.local = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.lift(x)
        low = torch.fft.rfft(h, dim=1)[:, :3]
        mixed = torch.einsum("bki,iok->bko", low, torch.view_as_complex(self.weight))
        back = torch.fft.irfft(mixed, n=x.shape[1], dim=1)
        return self.head(F.relu(back + self.local(h)).mean(1))


@network("others")
def fourier_neural_operator() -> Trial:
    return classified(Waves(), features(8, 1))
