"""Networks that are piecewise affine in each tensor, and some that are not."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from support.cases import CASES, lenet, mlp
from torch import nn


def image(*layers: nn.Module, head: int = 3) -> nn.Module:
    """Layers, a global average and a linear head for images."""
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten(2), Mean(), nn.LazyLinear(head))


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(-1)


class PreActivation(nn.Module):
    """A block of a wide residual network: two convolutions, BatchNorm in front."""

    def __init__(self, width_in: int, width: int, stride: int):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(width_in), nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or width_in != width:
            self.shortcut = nn.Conv2d(width_in, width, 1, stride, bias=False)

    def forward(self, x):
        h = self.relu(self.norm1(x))
        skip = x if self.shortcut is None else self.shortcut(h)
        h = self.conv2(self.relu(self.norm2(self.conv1(h))))
        h += skip
        return h


class Frames(nn.Module):
    """Frames of a video as images of their own, with BatchNorm."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        frames = x.unflatten(2, (2, 4)).transpose(1, 2).flatten(0, 1)
        h = F.relu(self.norm(self.conv(frames))).mean((2, 3))
        return self.head(h.unflatten(0, (x.shape[0], 2)).sum(1))


class Words(nn.Module):
    """Embeddings of repeated words, and one layer used twice."""

    def __init__(self, reuse: bool = False):
        super().__init__()
        self.table = nn.Embedding(4, 3)
        self.mix = nn.Linear(3, 3)
        self.head = nn.Linear(3, 3)
        self.reuse = reuse

    def forward(self, x):
        h = self.table((x[:, 0, 0].abs() * 2).long().clamp(max=3))
        h = F.relu(self.mix(h))
        if self.reuse:
            h = F.relu(self.mix(h))
        return self.head(h.sum(1))


class TiedLinear(nn.Module):
    """A linear autoencoder's weight used twice: not affine in it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 64) * 0.2)
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        x = x.flatten(1)
        return self.head(F.relu(x @ self.weight.T) @ self.weight)


class Functional(nn.Module):
    """Weights that no recorded operation uses: routed sample by sample."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(64, 5) * 0.2)
        self.gain = nn.Parameter(torch.ones(5))
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(
            F.relu(torch.einsum("bi,ij->bj", x.flatten(1), self.matrix)) * self.gain
        )


class SequenceFirst(nn.Module):
    """Time in front of the batch, where a layer sees it."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(8, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(F.relu(self.mix(x[:, 0].transpose(0, 1))).sum(0))


def one_dimensional():
    return nn.Sequential(
        nn.Flatten(1, 2),
        nn.Conv1d(8, 4, 3, stride=2, padding=2, dilation=2, groups=2),
        nn.LeakyReLU(),
        nn.ConvTranspose1d(4, 2, 3, stride=2, padding=1, output_padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(3),
    )


AFFINE = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), mlp(64, 6, 5, 3)),
    "mlp-in-place": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)
    ),
    "lenet": lenet,
    "grouped": lambda: image(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3, groups=2)
    ),
    "depthwise": lambda: image(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=4)),
    "dilated": lambda: image(nn.Conv2d(1, 3, 3, dilation=2, padding=(2, 1))),
    "strided": lambda: image(nn.Conv2d(1, 3, (3, 2), stride=(2, 3), padding=1)),
    "same": lambda: image(
        nn.Conv2d(1, 3, (3, 5), padding="same", dilation=(1, 2)),
        nn.PReLU(),
        nn.Conv2d(3, 2, 3, padding="valid"),
    ),
    "reflected": lambda: image(nn.Conv2d(1, 3, 3, padding=1, padding_mode="reflect")),
    "transposed": lambda: image(nn.ConvTranspose2d(1, 3, 3, 2, 1, output_padding=1)),
    "transposed-grouped": lambda: image(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.ConvTranspose2d(
            4,
            6,
            (3, 2),
            (2, 1),
            (1, 0),
            output_padding=(1, 0),
            groups=2,
            dilation=(1, 2),
        ),
    ),
    "one-dimensional": one_dimensional,
    "batch-norm": CASES["resnet"].build,
    "wide-resnet": lambda: image(
        nn.Conv2d(1, 2, 3, 2, 1, bias=False),
        PreActivation(2, 2, 1),
        PreActivation(2, 3, 2),
        nn.BatchNorm2d(3),
    ),
    "frames": Frames,
    "embedding": Words,
    "functional": Functional,
    "sequence-first": SequenceFirst,
}
NOT_AFFINE = {
    "reuse": lambda: Words(reuse=True),
    "tied": TiedLinear,
    "tanh": lambda: nn.Sequential(nn.Flatten(), mlp(64, 4, 3, activation=nn.Tanh)),
    "gelu": lambda: nn.Sequential(nn.Flatten(), mlp(64, 4, 3, activation=nn.GELU)),
    "layer-norm": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, 4), nn.LayerNorm(4)
    ),
}


def build(make, dtype=torch.float64) -> nn.Module:
    """A model with random BatchNorm statistics."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = make()
        model(torch.randn(2, 1, 8, 8))
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(std=0.2)
                module.running_var.uniform_(0.5, 2.0)
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, std=0.2)
    return model.to(dtype)


def data(loss: str = "cross-entropy", outputs: int = 3, count: int = 6):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(count, 1, 8, 8, generator=random, dtype=torch.float64)
    if loss == "mse":
        return x, torch.randn(count, outputs, generator=random, dtype=torch.float64)
    return x, torch.randint(0, outputs, (count,), generator=random)
