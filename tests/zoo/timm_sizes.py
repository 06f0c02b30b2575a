"""How a network of timm becomes a trial."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from zoo.registry import CLASSES, Trial, add, awakened, labels

SAMPLES = 4


def classifier(
    name: str, size: int, options: dict[str, Any], mode: str = "eval"
) -> None:
    """`create_model(name)` with these options, and square pictures of this size."""

    def build() -> Trial:
        import timm

        return seeing(
            timm.create_model(name, num_classes=CLASSES, **options), size, mode
        )

    add(f"timm/{name}" + ("_train" if mode == "train" else ""), build)


def seeing(model: nn.Module, size: int, mode: str = "eval") -> Trial:
    """A model and four square pictures."""
    pictures = torch.randn(SAMPLES, 3, size, size)
    return Trial(awakened(model), pictures, labels(SAMPLES), mode=mode)
