"""What a part of a generated network tells about itself, and the activations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuzz.draw import Draw

Matrices = list[Tensor]
View = Callable[[Tensor], Matrices]


def whole(tensor: Tensor) -> Matrices:
    """One matrix: dimension 0 by dimension 1, kernel positions summed."""
    return [tensor.flatten(2).sum(2) if tensor.ndim > 2 else tensor]


def chunks(parts: int, axis: int = 0) -> View:
    """Several matrices along one axis: groups, gates, query and key and value."""
    return lambda tensor: list(whole(tensor)[0].chunk(parts, axis))


def pieces(*sizes: int) -> View:
    """Several matrices of these numbers of rows."""
    return lambda tensor: list(tensor.split(list(sizes)))


def stack(tensor: Tensor) -> Matrices:
    """One matrix for each index of dimension 0."""
    return list(tensor)


def beside(tensor: Tensor) -> Matrices:
    """A stack of matrices that share their rows, as one einsum multiplies them."""
    return [tensor.transpose(0, 1).flatten(1)]


def below(tensor: Tensor) -> Matrices:
    """A stack of matrices that share their columns."""
    return [tensor.flatten(0, 1)]


@dataclass(frozen=True)
class Use:
    """A parameter that is used as matrices.

    Attributes:
        name: of the parameter.
        views: every reading of the tensor as separate matrices that is right.
        optional: whether leaving it out is right too, where that is said by name.
        separate: whether the product of spectral norms must take them one by one.
    """

    name: str
    views: tuple[View, ...] = (whole,)
    optional: bool = False
    separate: bool = False

    def under(self, prefix: str) -> Use:
        return replace(self, name=f"{prefix}.{self.name}")


@dataclass
class Facts:
    """What the generator knows of a part.

    Attributes:
        uses: its parameters that are matrices.
        inner: rescalings of hidden units strictly inside; None if not known.
        absorbs: whether any rescaling of the input units can be undone inside.
        opens: whether the output units can be rescaled one by one.
        units: the number of output units that can (channels of a flattened image).
        sound: whether autograd's derivatives are the forward pass's.
        rounded: whether it computes in less precision than its parameters.
        coupled: whether a sample's output depends on the other samples.
        label: in words.
    """

    uses: list[Use] = field(default_factory=list)
    inner: int | None = None
    absorbs: bool = False
    opens: bool = False
    units: int = 0
    sound: bool = True
    rounded: bool = False
    coupled: bool = False
    label: str = ""


class Part(nn.Module):
    """Maps features [B, n] to features [B, width]; it also sees the raw input."""

    width: int
    facts: Facts

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        raise NotImplementedError


def collect(parts: Iterable[tuple[str, Facts]]) -> list[Use]:
    return [use.under(name) for name, facts in parts for use in facts.uses]


class Activation(nn.Module):
    """A function as a module, with whether it is positively homogeneous.

    `precise` is set on the reference's copy, which then takes the plain form of those
    functions that torch has no second derivative of.
    """

    def __init__(self, name: str, function: Callable[[Tensor], Tensor], scales: bool):
        super().__init__()
        self.name, self.function, self.scales = name, function, scales
        self.precise = False

    def forward(self, x: Tensor) -> Tensor:
        return (PLAIN if self.precise else {}).get(self.name, self.function)(x)


PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "hardsigmoid": lambda x: (x + 3).clamp(0, 6) / 6,
    "hardswish": lambda x: x * (x + 3).clamp(0, 6) / 6,
}


ACTIVATIONS: list[tuple[float, str, Callable[[Tensor], Tensor], bool]] = [
    (5, "relu", F.relu, True),
    (1, "leaky", lambda x: F.leaky_relu(x, 0.1), True),
    (0.5, "abs", torch.abs, True),
    (1, "identity", lambda x: x, True),
    (1, "relu²", lambda x: F.relu(x).square(), True),
    (0.5, "square", torch.square, True),
    (2, "tanh", torch.tanh, False),
    (1, "sigmoid", torch.sigmoid, False),
    (1, "gelu", F.gelu, False),
    (1, "silu", F.silu, False),
    (1, "softplus", F.softplus, False),
    (0.5, "softplus20", lambda x: F.softplus(20 * x, beta=1, threshold=5), False),
    (1, "hardswish", F.hardswish, False),
    (0.5, "hardsigmoid", F.hardsigmoid, False),
    (0.5, "hardtanh", F.hardtanh, False),
    (0.5, "relu6", F.relu6, False),
    (1, "elu", F.elu, False),
    (0.5, "selu", F.selu, False),
    (0.5, "mish", F.mish, False),
    (0.5, "softsign", F.softsign, False),
    (0.5, "sin", torch.sin, False),
    (0.5, "softmax", lambda x: x.softmax(-1), False),
    (0.5, "in-place relu", lambda x: (x + 0.0).relu_(), True),
    (0.5, "clamp", lambda x: x.clamp(-0.7, 0.9), False),
    (0.5, "threshold", lambda x: F.threshold(x, 0.2, 0.0), False),
]  # fmt: skip


def activation(draw: Draw, scales: bool = False) -> Activation:
    """A random activation; a positively homogeneous one if `scales`."""
    known = [one for one in ACTIVATIONS if one[3] or not scales]
    weight_and_rest = [(one[0], one[1:]) for one in known]
    return Activation(*draw.weighted(weight_and_rest))
