"""Networks that are called through a user's forward: what is counted by hand is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, hessian, vmap
from torch.nn.functional import cross_entropy, normalize

import flatgauge as fg


def draw(*shape: int, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=random, dtype=torch.float64)


class Denoiser(nn.Module):
    """A diffusion network of two inputs that returns a mapping."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.inside = nn.Linear(2, 8), nn.Conv2d(2, 8, 3, padding=1)
        self.norm, self.outside = nn.GroupNorm(2, 8), nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, image: Tensor, time: Tensor) -> dict[str, Tensor]:
        when = self.time(torch.stack([time.sin(), time.cos()], 1))
        h = self.norm(self.inside(image) + when[:, :, None, None])
        return {"sample": self.outside(h.relu())}


def diffusion() -> fg.Objective:
    """8 channels after the norm; up to eps its 2 groups."""
    data = [
        {"image": draw(4, 2, 4, 4, seed=i), "time": draw(4, seed=i + 9)} for i in (0, 1)
    ]
    return fg.Objective(
        Denoiser().double(),
        data,
        lambda out, batch: (out - batch["image"]).square().flatten(1).mean(1),
        forward=lambda m, batch: m(batch["image"], batch["time"])["sample"],
    )


class Towers(nn.Module):
    """Images and texts in one space, as CLIP has them."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
        self.text = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
        self.scale = nn.Parameter(torch.tensor(1.0))


def scores(model: Any, batch: dict[str, Tensor]) -> Tensor:
    sides = normalize(model.image(batch["i"])), normalize(model.text(batch["t"]))
    return model.scale.exp() * sides[0] @ sides[1].T


def contrastive_loss(table: Tensor, _: Any) -> Tensor:
    own = torch.arange(len(table))
    return (cross_entropy(table, own) + cross_entropy(table.T, own)) / 2


def contrastive() -> fg.Objective:
    """In each tower 4 hidden units, and up to eps the norm of what it returns."""
    torch.manual_seed(0)
    data = [{"i": draw(6, 3, seed=i), "t": draw(6, 2, seed=i + 9)} for i in (0, 1)]
    return fg.Objective(Towers().double(), data, contrastive_loss, forward=scores)


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4))
        self.decoder = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3))


def coded(model: Any, batch: Tensor) -> dict[str, Tensor]:
    mean, spread = model.encoder(batch).chunk(2, 1)
    return {"again": model.decoder(mean), "mean": mean, "spread": spread}


def evidence(out: dict[str, Tensor], batch: Tensor) -> Tensor:
    code = out["mean"].square() + out["spread"].exp() - out["spread"]
    return (out["again"] - batch).square().sum(1) + code.sum(1) / 2


def variational() -> fg.Objective:
    """5 hidden units on each side, between outputs that are seen."""
    torch.manual_seed(0)
    data = [draw(6, 3, seed=i) for i in (0, 1)]
    return fg.Objective(Autoencoder().double(), data, evidence, forward=coded)


class Couplings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        volume = x.new_zeros(len(x))
        for part in self.parts:
            held, moved = x.chunk(2, 1)
            scale, shift = part(held).chunk(2, 1)
            moved = moved * scale.tanh().exp() + shift
            volume = volume + scale.tanh().sum(1)
            x = torch.cat([moved, held], 1)
        return x, volume


def log_likelihood(model: Any, batch: Tensor) -> Tensor:
    x, volume = model(batch)
    return x.square().sum(1) / 2 - volume


def flow() -> fg.Objective:
    """8 hidden units in each of two couplings."""
    return fg.Objective(
        Couplings().double(),
        [draw(6, 4, seed=i) for i in (0, 1)],
        lambda values, _: values,
        forward=log_likelihood,
    )


class Cube(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu() ** 3


class Force(nn.Module):
    """Its scores are the slopes of an energy, as of 5 hidden units."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.energy = nn.Sequential(nn.Linear(3, 5), Cube(), nn.Linear(5, 1))

    def forward(self, x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        total = self.energy(leaf).sum()
        return torch.autograd.grad(total, leaf, create_graph=True)[0]


def heat_by_autograd(model: Any, batch: Tensor) -> Tensor:
    """u_t - u_xx."""
    x = batch.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope[:, 0].sum(), x, create_graph=True)
    return slope[:, 1] - bend[:, 0]


def heat_by_func(model: Any, batch: Tensor) -> Tensor:
    """The same."""

    def u(x: Tensor) -> Tensor:
        return model(x[None])[0, 0]

    return vmap(grad(u))(batch)[:, 1] - vmap(hessian(u))(batch)[:, 0, 0]


def physics(residual: Callable[..., Tensor], bend: nn.Module) -> fg.Objective:
    """5 hidden units where they have scales, but for the last bias, which is not seen."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 5), bend, nn.Linear(5, 1)).double()
    data = [draw(6, 2, seed=i) for i in (0, 1)]
    return fg.Objective(
        model, data, lambda values, _: values.square(), forward=residual
    )
