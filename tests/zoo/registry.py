"""The list of networks: a name, and a function that builds one with its data.

The list only ever grows. Builders import what they need themselves, so that the list can
be read where timm and the others are not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from zoo.torchvision_operators import torchvision_importable

SOURCES = ("transformers", "timm", "others")
FILES = (
    "transformers_decoders",
    "transformers_encoders",
    "transformers_others",
    "timm_convolutions",
    "timm_attention",
    "others_plain",
    "others_fields",
    "others_layers",
    "others_models",
    "others_pictures",
)
CLASSES = 5


@dataclass
class Trial:
    """A network with one batch and a loss, as a user would give them to `Objective`.

    `inputs` is a tensor, a tuple of positional inputs or a mapping of keywords. Where
    `shifted`, the scores of a token predict the next one.
    """

    model: nn.Module
    inputs: Any
    targets: Any
    loss: str | Callable[[Any, Any], Tensor] = "cross-entropy"
    forward: Callable[[nn.Module, Any], Any] | None = None
    mode: str = "eval"
    shifted: bool = False
    derivatives: str = "checked"

    @property
    def batch(self) -> Any:
        if isinstance(self.inputs, dict):
            return {**self.inputs, "labels": self.targets}
        return self.inputs, self.targets


@dataclass(frozen=True)
class Network:
    """An entry of the list; `refused` says why it cannot be measured, where that is so."""

    name: str
    build: Callable[[], Trial]
    refused: str = ""

    @property
    def source(self) -> str:
        return self.name.partition("/")[0]

    def trial(self) -> Trial:
        """Random weights that depend on nothing but the list."""
        torchvision_importable()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.build()


NETWORKS: dict[str, Network] = {}


def add(name: str, build: Callable[[], Trial], refused: str = "") -> None:
    if name in NETWORKS:
        raise ValueError(f"two networks are called {name}")
    NETWORKS[name] = Network(name, build, refused)


def network(
    source: str, refused: str = ""
) -> Callable[[Callable[[], Trial]], Callable[[], Trial]]:
    """Put a builder into the list under its own name."""

    def register(build: Callable[[], Trial]) -> Callable[[], Trial]:
        add(f"{source}/{build.__name__}", build, refused)
        return build

    return register


def every_network() -> dict[str, Network]:
    for file in FILES:
        import_module(f"zoo.{file}")
    return NETWORKS


def labels(count: int, classes: int = CLASSES) -> Tensor:
    return torch.arange(count) % classes


def awakened(model: nn.Module) -> nn.Module:
    """No tensor constant, no matrix tiny: both hide what a network does."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and parameter.numel() > 1:
                _awaken(parameter)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.1 * torch.randn_like(buffer))
            elif name.endswith("running_var"):
                buffer.copy_(0.5 + torch.rand_like(buffer))
    return model


def _awaken(parameter: Tensor) -> None:
    spread = float(parameter.max() - parameter.min())
    if spread == 0.0 or not bool(parameter.isfinite().all()):
        fresh = parameter.nan_to_num(0.0, 0.0, 0.0).clamp(-1, 1)
        parameter.copy_(fresh + 0.2 * torch.randn_like(parameter))
    usual = (parameter.numel() / len(parameter)) ** -0.5
    size = float(parameter.square().mean().sqrt())
    if parameter.ndim > 1 and size < usual / 3:
        parameter.mul_(usual / size)
