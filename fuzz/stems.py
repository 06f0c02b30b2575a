"""What reads the raw input: nothing for vectors, convolutions for images and signals."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fuzz.draw import Draw
from fuzz.parts import Facts, Use, activation, chunks, whole


class DoesNotFit(Exception):
    """The kernels drawn are larger than what they would read."""


class Stem(nn.Module):
    """Maps raw inputs [N, ...] to features [N, width], or [N, T, width] by token."""

    width: int
    facts: Facts
    by_token = False

    def inputs(self, draw: Draw, count: int) -> Tensor:
        """Raw inputs that it can read."""
        raise NotImplementedError


class Vector(Stem):
    """Inputs that are features."""

    def __init__(self, draw: Draw):
        super().__init__()
        self.width = draw.between(2, 5)
        self.facts = Facts([], 0, False, False, 0, label=f"vector {self.width}")

    def inputs(self, draw: Draw, count: int) -> Tensor:
        return draw.normal(count, self.width)

    def forward(self, x: Tensor) -> Tensor:
        return x


class Convolutions(Stem):
    """One or two convolutions, perhaps grouped, strided, padded, dilated, transposed."""

    def __init__(self, draw: Draw):
        super().__init__()
        self.flat = draw.chance(0.4)
        self.channels = draw.between(1, 2)
        self.size = draw.between(4, 6)
        self.layers = nn.ModuleList()
        self.facts = Facts([], 0, False, True, 0)
        words, channels, free = [], self.channels, True
        for index in range(draw.between(1, 2)):
            layer, channels, word, views, norms = self._layer(draw, channels)
            act = activation(draw)
            self.layers.append(nn.Sequential(layer, act))
            self.facts.uses.append(
                Use(f"layers.{index}.0.weight", views, separate=norms)
            )
            if index and self.facts.inner is not None:
                self.facts.inner += self._inside if free else 0
            self._inside, free = channels, act.scales
            words.append(f"{word} {act.name}")
        self.norm = self._norm(draw, channels)
        self.pool = draw.one_of(("max", "mean", "none", "adaptive"))
        if not isinstance(self.norm, nn.Identity):
            self.facts.inner = None
            self.facts.coupled = isinstance(self.norm, nn.BatchNorm1d | nn.BatchNorm2d)
        self.facts.opens, self.facts.units = free, channels
        try:
            with torch.no_grad():
                example = self.eval()(torch.zeros(2, *self._shape()))
        except RuntimeError as error:
            raise DoesNotFit from error
        self.width = example.shape[1]
        self.train()
        plain = type(self.norm).__name__
        self.facts.label = f"{', '.join(words)}, {plain}, pool {self.pool}"

    def _layer(self, draw: Draw, channels: int):
        kinds = (nn.Conv1d, nn.ConvTranspose1d) if self.flat else (
            nn.Conv2d, nn.ConvTranspose2d
        )  # fmt: skip
        how = draw.weighted(
            [(4, "plain"), (2, "grouped"), (2, "depthwise"), (2, "transposed")]
        )
        bias = draw.chance(0.6)
        kernel = draw.between(1, 3)
        if how == "transposed":
            groups = channels if channels > 1 and draw.chance(0.4) else 1
            out = groups * draw.between(1, 2)
            layer = kinds[1](channels, out, kernel, stride=draw.between(1, 2),
                             groups=groups, bias=bias)  # fmt: skip
            views = (chunks(groups),) if groups > 1 else (whole,)
            return layer, out, f"transposed {out}/{groups}", views, False
        groups = channels if how == "depthwise" else 1
        out = channels * draw.between(1, 2) if groups > 1 else draw.between(2, 3)
        if how == "grouped" and channels % 2 == 0:
            groups, out = 2, 2 * draw.between(1, 2)
        mode = draw.weighted([(5, "zeros"), (1, "circular"), (1, "reflect")])
        layer = kinds[0](
            channels, out, kernel, stride=draw.between(1, 2),
            padding=draw.between(0, 1) if kernel > 1 else 0, groups=groups,
            bias=bias, padding_mode=mode,
        )  # fmt: skip
        views = (chunks(groups),) if groups > 1 else (whole,)
        return layer, out, f"{how} {out}/{groups} {mode}", views, False

    def _norm(self, draw: Draw, channels: int) -> nn.Module:
        batch = nn.BatchNorm1d if self.flat else nn.BatchNorm2d
        plain: list[tuple[float, type[nn.Module]]] = [(4, nn.Identity), (1, batch)]
        chosen = draw.weighted(plain)
        if draw.chance(0.1):
            return nn.GroupNorm(1, channels)
        return chosen() if chosen is nn.Identity else batch(channels)

    def _shape(self) -> tuple[int, ...]:
        return (self.channels, *([self.size] * (1 if self.flat else 2)))

    def inputs(self, draw: Draw, count: int) -> Tensor:
        return draw.normal(count, *self._shape())

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        if self.pool == "none":
            # A pixel a channel, or all of them where they are few.
            return x.flatten(1) if x[0].numel() <= 8 else x.flatten(2)[:, :, 0]
        if self.pool == "mean":
            return x.flatten(2).mean(2)
        if self.pool == "max":
            return x.flatten(2).amax(2)
        return nn.functional.adaptive_avg_pool1d(x.flatten(2), 2).flatten(1)
