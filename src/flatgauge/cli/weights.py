"""Weights from files, which are data and never run."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from flatgauge.errors import ModelError


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a state dict from a file into a model.

    Args:
        model: changed in place.
        path: a .safetensors file, or what torch.save wrote of a state dict.

    Raises:
        ModelError: if the file is missing, would run code, or does not fit.
    """
    if not path.is_file():
        raise ModelError(f"the weights '{path}' were not found: check the path.")
    state = _read(path)
    if not isinstance(state, Mapping) or not state:
        raise ModelError(
            f"'{path}' holds {type(state).__name__}, no state dict: save "
            "model.state_dict()."
        )
    others = [str(key) for key, value in state.items() if not isinstance(value, Tensor)]
    if others:
        raise ModelError(
            f"'{path}' is no state dict, since {_some(others)} is no tensor: save "
            "model.state_dict() alone."
        )
    _check_fit(model, state, path)
    model.load_state_dict(state, strict=False)


def _read(path: Path) -> Any:
    if path.suffix == ".safetensors":
        try:
            from safetensors import SafetensorError
            from safetensors.torch import load_file
        except ImportError as error:
            raise ModelError(
                "safetensors files need that package: pip install safetensors."
            ) from error
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise ModelError(f"'{path}' is no safetensors file: {error}.") from error
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"'{path}' is no plain file of tensors, and loading it could run code: save "
            "model.state_dict() with torch.save, or as safetensors."
        ) from error
    except Exception as error:
        raise ModelError(
            f"'{path}' could not be read as weights ({type(error).__name__}): save "
            "model.state_dict() with torch.save, or as safetensors."
        ) from error


def _check_fit(model: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Refuse names and shapes that differ, saying which."""
    own = model.state_dict()
    # Files may hold a tensor that the model uses under two names only once.
    present = {own[name].data_ptr() for name in state if name in own}
    missing = [
        name
        for name, tensor in own.items()
        if name not in state
        and (not tensor.numel() or tensor.data_ptr() not in present)
    ]
    extra = [name for name in state if name not in own]
    if missing or extra:
        parts = [f"lacks {_some(missing)}"] if missing else []
        parts += [f"has {_some(extra)}, which the model does not know"] if extra else []
        raise ModelError(
            f"'{path}' does not fit the model: it {' and '.join(parts)}; use the "
            "weights of this architecture."
        )
    for name, tensor in state.items():
        if tensor.shape != own[name].shape:
            raise ModelError(
                f"'{path}' does not fit the model: '{name}' has shape "
                f"{tuple(tensor.shape)}, but the model's has {tuple(own[name].shape)}."
            )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
