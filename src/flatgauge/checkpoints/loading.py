"""From a checkpoint into a model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from flatgauge.checkpoints.names import Found, flattened, plain_name, prefixes, some
from flatgauge.checkpoints.reading import StandIn, read
from flatgauge.errors import ModelError

STEPS = ("global_step", "step", "iteration", "iter")
"""What trainers call their progress."""


class LeftOutWarning(UserWarning):
    """A checkpoint has more tensors than the model."""


def load_weights(model: nn.Module, path: Path, key: str | None = None) -> int | None:
    """Load a checkpoint into a model, whatever else a trainer saved with it.

    A state dict may lie below keys, such as {"model": ..., "optimizer": ...} or a
    Lightning checkpoint, and its names may have a prefix in front of the model's, such as
    `module.` or `model.`: the one place where all of the model's tensors are is taken.

    Args:
        model: changed in place.
        path: a .safetensors file, what torch.save wrote, an index of shards, or a folder
            with one of these.
        key: where in it the weights are, if there are several, such as "ema".

    Returns:
        The step that was saved with it, if there is one.

    Raises:
        ModelError: if the file is missing, would run code, does not fit, or has several
            sets of weights that do.
    """
    content = read(path)
    found = flattened(content, key)
    if not found:
        raise ModelError(_nothing(content, path, key))
    prefix = _prefix(model, found, path)
    own = model.state_dict()
    state = {
        name: found[prefix + plain_name(name)].tensor
        for name in own
        if prefix + plain_name(name) in found
    }
    for name, tensor in state.items():
        if tensor.shape != own[name].shape:
            raise ModelError(
                f"'{path}' does not fit the model: '{name}' has shape "
                f"{tuple(tensor.shape)}, but the model's has {tuple(own[name].shape)}."
            )
    _note_the_rest(found, prefix, path)
    model.load_state_dict(state, strict=False)
    return _step(content)


def saved_arguments(path: Path) -> dict[str, Any]:
    """What Lightning's `save_hyperparameters` kept of a module's arguments, by name."""
    content = read(path)
    found = content.get("hyper_parameters") if isinstance(content, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}


def _prefix(model: nn.Module, found: Mapping[str, Found], path: Path) -> str:
    """Where the model's tensors are: what stands before their names."""
    own = {plain_name(name): one for name, one in model.state_dict().items()}
    candidates = prefixes(found, list(own)) or [("", 0)]
    fitting = [prefix for prefix, _ in candidates if not _missing(own, found, prefix)]
    if len(fitting) > 1:
        # Short names, such as those of one layer, stand in many places.
        of_shape = [one for one in fitting if _same_shapes(own, found, one)]
        fitting = of_shape or fitting[:1]
    if len(fitting) > 1:
        places = some([prefix.rstrip(".") or "its top" for prefix in fitting])
        raise ModelError(
            f"'{path}' has weights that fit the model in several places, {places}: say "
            "which with --key (key= in Python)."
        )
    prefix = fitting[0] if fitting else candidates[0][0]
    missing = _missing(own, found, prefix)
    below = [name.removeprefix(prefix) for name in found if name.startswith(prefix)]
    extra = [name for name in below if name not in own]
    if missing or extra:
        parts = [f"lacks {some(missing)}"] if missing else []
        parts += [f"has {some(extra)}, which the model does not know"] if extra else []
        raise ModelError(
            f"'{path}' does not fit the model: it {' and '.join(parts)}; use the "
            "weights of this architecture."
        )
    return prefix


def _missing(
    own: Mapping[str, Tensor], found: Mapping[str, Found], prefix: str
) -> list[str]:
    """The model's names without a tensor behind the prefix.

    Files may hold a tensor that the model uses under two names only once.
    """
    present = {own[name].data_ptr() for name in own if prefix + name in found}
    return [
        name
        for name, tensor in own.items()
        if prefix + name not in found
        and (not tensor.numel() or tensor.data_ptr() not in present)
    ]


def _same_shapes(
    own: Mapping[str, Tensor], found: Mapping[str, Found], prefix: str
) -> bool:
    """Whether the tensors behind the prefix have the shapes of the model's."""
    return all(
        found[prefix + name].tensor.shape == tensor.shape
        for name, tensor in own.items()
        if prefix + name in found
    )


def _note_the_rest(found: Mapping[str, Found], prefix: str, path: Path) -> None:
    """Say what the same state dict has beside the model, such as a loss's weights."""
    taken = {name for name in found if name.startswith(prefix)}
    places = {found[name].inside for name in taken}
    rest = [n for n, one in found.items() if n not in taken and one.inside in places]
    if rest:
        warnings.warn(
            f"'{path}': '{prefix}*' is the model; {some(rest)} is left out.",
            LeftOutWarning,
            stacklevel=3,
        )


def _nothing(content: Any, path: Path, key: str | None) -> str:
    """Why there are no weights."""
    below = sorted({name.partition(".")[0] for name in flattened(content)})
    if key is not None and below:
        return f"'{path}' has no weights at '{key}': it has {some(below)}."
    what = "a whole object" if isinstance(content, StandIn) else type(content).__name__
    return f"'{path}' holds {what}, no state dict: save model.state_dict()."


def _step(content: Any) -> int | None:
    if not isinstance(content, Mapping):
        return None
    found = [content.get(name) for name in STEPS]
    return next((one for one in found if type(one) is int), None)
