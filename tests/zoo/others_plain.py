"""Networks in plain torch: chains, recurrences, sets, fields, flows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.registry import CLASSES, Trial, labels, network

SAMPLES, INPUTS, WIDTH = 8, 4, 6


def features(*shape: int) -> Tensor:
    return torch.randn(SAMPLES, *(shape or (INPUTS,)))


def chain(*middle: nn.Module, width: int = WIDTH) -> nn.Sequential:
    return nn.Sequential(nn.Linear(INPUTS, width), *middle, nn.Linear(width, CLASSES))


def classified(model: nn.Module, inputs: Any = None, **more: Any) -> Trial:
    return Trial(
        model, features() if inputs is None else inputs, labels(SAMPLES), **more
    )


@network("others")
def mlp_relu() -> Trial:
    return classified(chain(nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()))


@network("others")
def mlp_leaky_prelu() -> Trial:
    return classified(chain(nn.LeakyReLU(), nn.Linear(WIDTH, WIDTH), nn.PReLU()))


@network("others")
def mlp_tanh() -> Trial:
    return classified(chain(nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh()))


@network("others")
def mlp_gelu() -> Trial:
    return classified(chain(nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU()))


@network("others")
def hardswish() -> Trial:
    return classified(chain(nn.Hardswish(), nn.Linear(WIDTH, WIDTH), nn.Hardsigmoid()))


class SquaredReLU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).square()


class MaxOut(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, 2)).amax(2)


@network("others")
def mlp_relu_squared() -> Trial:
    return classified(chain(SquaredReLU(), nn.Linear(WIDTH, WIDTH), SquaredReLU()))


@network("others")
def maxout() -> Trial:
    first = nn.Linear(INPUTS, 2 * WIDTH)
    return classified(nn.Sequential(first, MaxOut(), nn.Linear(WIDTH, CLASSES)))


@network("others")
def batchnorm_eval() -> Trial:
    norm = nn.BatchNorm1d(WIDTH)
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    return classified(chain(norm, nn.ReLU()))


@network("others")
def batchnorm_train() -> Trial:
    return classified(chain(nn.BatchNorm1d(WIDTH), nn.ReLU()), mode="train")


@network("others")
def groupnorm_cnn() -> Trial:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False), nn.GroupNorm(2, 4), nn.ReLU(),
        nn.Conv2d(4, 4, 3, groups=2), nn.InstanceNorm2d(4, affine=True), nn.ReLU(),
        nn.Flatten(), nn.Linear(16, CLASSES),
    )  # fmt: skip
    return classified(model, features(2, 6, 6))


class Recurrent(nn.Module):
    """The last state of a recurrence, classified."""

    def __init__(self, cell: nn.Module, width: int = WIDTH):
        super().__init__()
        self.cell, self.head = cell, nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0][:, -1])


@network("others")
def rnn_relu() -> Trial:
    cell = nn.RNN(INPUTS, WIDTH, nonlinearity="relu", batch_first=True)
    return classified(Recurrent(cell), features(3, INPUTS))


@network("others")
def rnn_tanh() -> Trial:
    return classified(
        Recurrent(nn.RNN(INPUTS, WIDTH, batch_first=True)), features(3, INPUTS)
    )


@network("others")
def lstm() -> Trial:
    return classified(
        Recurrent(nn.LSTM(INPUTS, WIDTH, batch_first=True)), features(3, INPUTS)
    )


@network("others")
def lstm_bidirectional() -> Trial:
    cell = nn.LSTM(INPUTS, 3, num_layers=2, bidirectional=True, batch_first=True)
    return classified(Recurrent(cell), features(3, INPUTS))


@network("others")
def gru() -> Trial:
    return classified(
        Recurrent(nn.GRU(INPUTS, WIDTH, batch_first=True)), features(3, INPUTS)
    )


class Sets(nn.Module):
    """ρ(Σ φ(x))."""

    def __init__(self):
        super().__init__()
        self.phi = nn.Sequential(
            nn.Linear(INPUTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)
        )
        last = nn.Linear(WIDTH, CLASSES)
        self.rho = nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), last)

    def forward(self, x: Tensor) -> Tensor:
        return self.rho(self.phi(x).sum(1))


@network("others")
def deepsets() -> Trial:
    return classified(Sets(), features(3, INPUTS))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(INPUTS, 3), nn.Linear(INPUTS, 4)
        self.both, self.head = nn.Bilinear(3, 4, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.both(F.relu(self.one(x)), F.relu(self.two(x))).relu())


@network("others")
def bilinear() -> Trial:
    return classified(Pair())


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(9, 6, mode="sum")
        self.rest = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.bag(x))


@network("others")
def embedding_bag() -> Trial:
    return classified(Bags(), torch.randint(0, 9, (SAMPLES, 3)))
