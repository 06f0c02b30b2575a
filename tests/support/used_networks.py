"""Small networks whose weights hold several matrices, with rescaled twins made by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

INPUTS, CLASSES = 4, 3
Scaled = dict[str, Tensor]
Rescale = Callable[[Scaled, Tensor], Scaled]


class Built(nn.Module):
    """A network of named weights and a function of them.

    Args:
        shapes: of the weights.
        run: the outputs, given weights and inputs.
        units: how many hidden units can be rescaled.
        rescale: the weights with every unit multiplied by a factor.
        seed: of the weights.
    """

    def __init__(
        self,
        shapes: dict[str, tuple[int, ...]],
        run: Callable[[Scaled, Tensor], Tensor],
        units: int,
        rescale: Rescale,
        seed: int = 0,
    ) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        for name, shape in shapes.items():
            draw = torch.randn(shape, generator=random, dtype=torch.float64)
            self.register_parameter(name, nn.Parameter(draw))
        self.run, self.units, self.rescale = run, units, rescale
        self.names = tuple(shapes)

    def forward(self, x: Tensor) -> Tensor:
        return self.run({name: getattr(self, name) for name in self.names}, x)

    def weights(self) -> Scaled:
        return {name: getattr(self, name).detach().clone() for name in self.names}

    def twin(self, seed: int = 1) -> Scaled:
        """Other weights, the same function."""
        random = torch.Generator().manual_seed(seed)
        draw = torch.randn(self.units, generator=random, dtype=torch.float64)
        return self.rescale(self.weights(), draw.exp())


def batched(width: int = 3, seed: int = 0) -> Built:
    """Three networks side by side, by batched products."""

    def run(w: Scaled, x: Tensor) -> Tensor:
        h = torch.bmm(x.expand(3, *x.shape), w["first"]).relu()
        return torch.bmm(h, w["second"]).sum(0)

    def rescale(w: Scaled, c: Tensor) -> Scaled:
        c = c.view(3, width)
        return {"first": w["first"] * c[:, None], "second": w["second"] / c[..., None]}

    shapes = {"first": (3, INPUTS, width), "second": (3, width, CLASSES)}
    return Built(shapes, run, 3 * width, rescale, seed)


def einsum(width: int = 3, seed: int = 0) -> Built:
    """Experts that see the same inputs, by einsum; the weights are laid out oddly."""

    def run(w: Scaled, x: Tensor) -> Tensor:
        h = torch.einsum("bi,eoi->beo", x, w["first"]).relu()
        return torch.einsum("beo,oke->bk", h, w["second"])

    def rescale(w: Scaled, c: Tensor) -> Scaled:
        c = c.view(2, width)
        return {
            "first": w["first"] * c[..., None],
            "second": w["second"] / c.T[:, None],
        }

    shapes = {"first": (2, width, INPUTS), "second": (width, CLASSES, 2)}
    return Built(shapes, run, 2 * width, rescale, seed)


def slices(width: int = 4, seed: int = 0) -> Built:
    """Two layers that are the halves of one tensor."""

    def run(w: Scaled, x: Tensor) -> Tensor:
        h = F.linear(x, w["w"][:INPUTS]).relu()
        return F.linear(F.linear(h, w["w"][INPUTS:]).relu(), w["head"])

    def rescale(w: Scaled, c: Tensor) -> Scaled:
        a, b = c[:INPUTS], c[INPUTS:]
        halves = [w["w"][:INPUTS] * a[:, None], w["w"][INPUTS:] * b[:, None] / a]
        return {"w": torch.cat(halves), "head": w["head"] / b}

    shapes = {"w": (INPUTS + width, INPUTS), "head": (CLASSES, width)}
    return Built(shapes, run, INPUTS + width, rescale, seed)


def stack(width: int = 4, seed: int = 0) -> Built:
    """A stack of square layers, taken one by one."""

    def run(w: Scaled, x: Tensor) -> Tensor:
        for layer in w["w"]:
            x = (x @ layer).relu()
        return x @ w["head"]

    def rescale(w: Scaled, c: Tensor) -> Scaled:
        a, b = c.view(2, INPUTS)
        moved = torch.stack([w["w"][0] * a, w["w"][1] * b / a[:, None]])
        return {"w": moved, "head": w["head"] / b[:, None]}

    shapes = {"w": (2, INPUTS, INPUTS), "head": (INPUTS, CLASSES)}
    return Built(shapes, run, 2 * INPUTS, rescale, seed)


def flat(width: int = 3, seed: int = 0) -> Built:
    """All weights in one vector, as hypernetworks and optimizers keep them."""
    cut = INPUTS * width

    def run(w: Scaled, x: Tensor) -> Tensor:
        first = w["w"][:cut].view(width, INPUTS)
        return F.linear(F.linear(x, first).relu(), w["w"][cut:].view(CLASSES, width))

    def rescale(w: Scaled, c: Tensor) -> Scaled:
        first = w["w"][:cut].view(width, INPUTS) * c[:, None]
        second = w["w"][cut:].view(CLASSES, width) / c
        return {"w": torch.cat([first.flatten(), second.flatten()])}

    return Built({"w": (cut + CLASSES * width,)}, run, width, rescale, seed)


def viewed(width: int = 2, seed: int = 0) -> Built:
    """A tensor of three dimensions, used as a matrix."""

    def run(w: Scaled, x: Tensor) -> Tensor:
        h = F.linear(x, w["first"].reshape(2 * width, INPUTS))
        return F.linear(h.relu(), w["second"].flatten(1))

    def rescale(w: Scaled, c: Tensor) -> Scaled:
        c = c.view(2, width)
        return {"first": w["first"] * c[..., None], "second": w["second"] / c}

    shapes = {"first": (2, width, INPUTS), "second": (CLASSES, 2, width)}
    return Built(shapes, run, 2 * width, rescale, seed)


def masked(width: int = 4, seed: int = 0) -> Built:
    """Weights times a constant mask, and a triangle of weights."""
    mask = torch.ones(width, INPUTS, dtype=torch.float64)
    mask[0, 1] = mask[1, 2] = 0

    def run(w: Scaled, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, 2 * w["first"] * mask).relu(), w["second"].tril(2))

    def rescale(w: Scaled, c: Tensor) -> Scaled:
        return {"first": w["first"] * c[:, None], "second": w["second"] / c}

    shapes = {"first": (width, INPUTS), "second": (CLASSES, width)}
    return Built(shapes, run, width, rescale, seed)


def low_rank(width: int = 3, seed: int = 0) -> Built:
    """A weight plus a product of two narrow ones."""

    def run(w: Scaled, x: Tensor) -> Tensor:
        h = F.linear(x, w["base"] + 0.5 * w["up"] @ w["down"]).relu()
        return F.linear(h, w["head"]) + x @ w["a"].T @ w["b"].T

    def rescale(w: Scaled, c: Tensor) -> Scaled:
        rows, inner, outer = c[:width], c[width : width + 2], c[width + 2 :]
        return {
            "base": w["base"] * rows[:, None],
            "up": w["up"] * rows[:, None] * inner,
            "down": w["down"] / inner[:, None],
            "head": w["head"] / rows,
            "a": w["a"] * outer[:, None],
            "b": w["b"] / outer,
        }

    shapes = {
        "base": (width, INPUTS),
        "up": (width, 2),
        "down": (2, INPUTS),
        "head": (CLASSES, width),
        "a": (2, INPUTS),
        "b": (CLASSES, 2),
    }
    return Built(shapes, run, width + 4, rescale, seed)


def routed(width: int = 3, seed: int = 0) -> Built:
    """Two experts that samples are sent to, and their results gathered."""

    def run(w: Scaled, x: Tensor) -> Tensor:
        result = x.new_zeros(len(x), CLASSES)
        for expert, chosen in enumerate((x[:, 0] > 0, x[:, 0] <= 0)):
            rows = chosen.nonzero().squeeze(1)
            h = F.linear(x[rows], w["first"][expert]).relu()
            result = result.index_add(0, rows, F.linear(h, w["second"][expert]))
        return result

    def rescale(w: Scaled, c: Tensor) -> Scaled:
        c = c.view(2, width)
        return {
            "first": w["first"] * c[..., None],
            "second": w["second"] / c[:, None],
        }

    shapes = {"first": (2, width, INPUTS), "second": (2, CLASSES, width)}
    return Built(shapes, run, 2 * width, rescale, seed)


def joined(width: int = 2, seed: int = 0) -> Built:
    """Two parameters side by side in one contraction; one of them once more."""

    def run(w: Scaled, x: Tensor) -> Tensor:
        h = F.linear(x, torch.cat([w["upper"], w["lower"]])).relu()
        return F.linear(h, w["head"]) + F.linear(x, w["upper"]).relu() @ w["tail"]

    def rescale(w: Scaled, c: Tensor) -> Scaled:
        upper, lower = c.view(2, width)
        return {
            "upper": w["upper"] * upper[:, None],
            "lower": w["lower"] * lower[:, None],
            "head": w["head"] / c,
            "tail": w["tail"] / upper[:, None],
        }

    shapes = {
        "upper": (width, INPUTS),
        "lower": (width, INPUTS),
        "head": (CLASSES, 2 * width),
        "tail": (width, CLASSES),
    }
    return Built(shapes, run, 2 * width, rescale, seed)


def grouped(width: int = 2, seed: int = 0) -> Built:
    """A grouped convolution between plain ones."""

    def run(w: Scaled, x: Tensor) -> Tensor:
        h = F.conv1d(x[:, :, None].expand(-1, -1, 3), w["first"]).relu()
        return F.conv1d(h, w["second"], groups=2).relu().sum(2) @ w["head"]

    def rescale(w: Scaled, c: Tensor) -> Scaled:
        a, b = c.view(2, 2 * width)
        columns = a.view(2, 1, width).expand(2, width, width).reshape(-1, width)
        return {
            "first": w["first"] * a[:, None, None],
            "second": w["second"] * b[:, None, None] / columns[..., None],
            "head": w["head"] / b[:, None],
        }

    shapes = {
        "first": (2 * width, INPUTS, 2),
        "second": (2 * width, width, 2),
        "head": (2 * width, CLASSES),
    }
    return Built(shapes, run, 4 * width, rescale, seed)


KINDS = (
    batched, einsum, slices, stack, flat, viewed, masked, low_rank, routed, joined,
    grouped,
)  # fmt: skip


def data(samples: int = 12, seed: int = 5) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, INPUTS, generator=random, dtype=torch.float64)
    return x, torch.randint(0, CLASSES, (samples,), generator=random)
