"""From what was typed to an objective: models, data and weights."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from flatgauge import datasets
from flatgauge.checkpoints import StandIn, load_weights, saved_arguments
from flatgauge.cli.processes import own_share
from flatgauge.cli.settings import Settings
from flatgauge.errors import DataError, FlatgaugeError, ModelError, OptionError
from flatgauge.integrations.hugging_face import Folder
from flatgauge.integrations.texts import text_batches
from flatgauge.nested import map_nested, tensors_in
from flatgauge.objective import Objective
from flatgauge.studies.recipes import columns_of

DTYPES = {"float32": torch.float32, "float64": torch.float64}
FOLDERS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "mnist": datasets.mnist,
    "cifar10": datasets.cifar10,
}
BUILT_IN_BATCH = 1000
"""The batch size of built-in data, where none is given."""
HUGGING_FACE = "hf:"
TEXTS = ".jsonl"


def build_objective(settings: Settings, weights: Path | None = None) -> Objective:
    """The objective that the arguments describe.

    Args:
        settings: the arguments.
        weights: a file to load, instead of `settings.weights`.
    """
    return load_objective(settings, weights)[0]


def load_objective(
    settings: Settings, weights: Path | None, row: Mapping[str, Any] | None = None
) -> tuple[Objective, int | None]:
    """The same, with the step that was saved with the weights.

    Args:
        settings: the arguments.
        weights: a file to load, instead of `settings.weights`.
        row: of a study: what MODEL and DATA may take as arguments, by name.
    """
    chosen = weights or settings.weights
    model = build_model(settings, chosen, row)
    step = None if chosen is None else load_weights(model, chosen, settings.key)
    data, batch_size = load_data(settings, row)
    keywords = objective_keywords(settings)
    own = own_share(data, batch_size)
    return Objective(model, own, batch_size=batch_size, **keywords), step


def objective_keywords(settings: Settings) -> dict[str, Any]:
    """What an objective is made with, beside model and data."""
    return {
        "loss": loss_of(settings),
        "device": _device(settings.device),
        "dtype": _dtype(settings.dtype),
        "mode": settings.mode,
        "derivatives": settings.derivatives,
        "memory": settings.memory,
    }


def build_model(
    settings: Settings, weights: Path | None, row: Mapping[str, Any] | None = None
) -> nn.Module:
    """What MODEL names; a class gets the arguments that were saved with the weights."""
    folder = _folder(settings)
    if folder is not None:
        return folder.model()
    model = _call(settings.model, "MODEL", weights, row)
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"MODEL '{settings.model}' returned {type(model).__name__}: it must return "
            "a torch.nn.Module."
        )
    return model


def loss_of(settings: Settings) -> str:
    """The loss that was asked for; else the one that suits the model."""
    if settings.loss is not None:
        return settings.loss
    folder = _folder(settings)
    return "cross-entropy" if folder is None else folder.loss()


def load_data(
    settings: Settings, row: Mapping[str, Any] | None = None
) -> tuple[Any, int | None]:
    """The data, and the batch size that suits them; the same for all checkpoints.

    Only a function that takes columns of a study's row is called for each.
    """
    limit, size = settings.max_samples, settings.batch_size
    if takes_columns(settings.data, row):
        data = _call(settings.data, "DATA", None, row)
        return (data if limit is None else _first(data, limit)), size
    if not settings.data.endswith(TEXTS):
        return _data(settings.data, limit, size)
    folder = _folder(settings)
    if folder is None:
        raise DataError(
            f"the texts '{settings.data}' need a tokenizer: give MODEL as hf:DIR, or "
            "DATA as file.py:function that returns batches."
        )
    return _texts(folder, settings.data, limit, size), None


def _folder(settings: Settings) -> Folder | None:
    """The Hugging Face folder that MODEL names, if it names one."""
    if not settings.model.startswith(HUGGING_FACE):
        return None
    place = settings.model.removeprefix(HUGGING_FACE)
    if not place:
        raise OptionError("MODEL 'hf:' names no folder: write hf:DIR.")
    return Folder(place, settings.trust_remote_code)


@cache
def _texts(folder: Folder, path: str, limit: int | None, size: int | None) -> Any:
    return text_batches(folder, Path(path), limit, size)


@cache
def _data(target: str, limit: int | None, size: int | None) -> tuple[Any, int | None]:
    name, _, rest = target.partition(":")
    if target == "digits":
        return datasets.digits(limit), size or BUILT_IN_BATCH
    if name in FOLDERS:
        folder, colon, part = rest.rpartition(":")
        if not colon or part not in datasets.PARTS:
            folder, part = rest, "train"
        if not folder:
            raise DataError(f"DATA '{target}' names no folder: write {name}:DIR.")
        return FOLDERS[name](folder, part, limit), size or BUILT_IN_BATCH
    data = _call(target, "DATA")
    if callable(getattr(data, "train_dataloader", None)):
        data = _of_module(data)
    return (data if limit is None else _first(data, limit)), size


def _of_module(module: Any) -> Any:
    """The training data of a Lightning data module."""
    module.prepare_data()
    module.setup("fit")
    return module.train_dataloader()


def _first(data: Any, limit: int) -> Any:
    """The first samples of a user's data."""
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], Tensor):
        return map_nested(lambda tensor: _rows(tensor, limit), data)
    if isinstance(data, Dataset):
        return Subset(data, range(min(limit, len(data))))  # type: ignore[arg-type]
    if not isinstance(data, Iterable):
        return data
    kept: list[Any] = []
    left = limit
    for batch in data:
        tensors = [tensor for tensor in tensors_in(batch) if tensor.ndim]
        if not tensors:
            raise DataError(
                f"batch {len(kept)} holds no tensor, so --max-samples cannot count it: "
                "leave that out."
            )
        kept.append(map_nested(lambda tensor, rows=left: _rows(tensor, rows), batch))
        left -= len(tensors[-1])
        if left <= 0:
            break
    return kept


def _rows(tensor: Tensor, count: int) -> Tensor:
    return tensor[:count] if tensor.ndim else tensor


def takes_columns(target: str, row: Mapping[str, Any] | None) -> bool:
    """Whether `target` names a function with an argument that is a column of the row."""
    place, _, name = target.rpartition(":")
    if row is None or not place.removesuffix(".py") or place in FOLDERS:
        return False
    function = getattr(_module(place), name, None)
    return callable(function) and bool(columns_of(function, row))


def _call(
    target: str,
    what: str,
    weights: Path | None = None,
    row: Mapping[str, Any] | None = None,
) -> Any:
    """What the function or the class that `target` names returns."""
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        known = {
            "MODEL": "or hf:DIR",
            "DATA": "or one of digits, mnist:DIR, cifar10:DIR, texts.jsonl",
        }
        raise OptionError(
            f"{what} '{target}' is not understood: write file.py:function or "
            f"package.module:function, {known[what]}."
        )
    module = _module(place)
    function = getattr(module, name, None)
    if not callable(function):
        found = "no such name" if function is None else type(function).__name__
        raise OptionError(
            f"{what} '{target}': '{name}' in '{place}' is {found}: name a function "
            "without arguments."
        )
    arguments = _arguments(function, weights) | columns_of(function, row or {})
    try:
        return function(**arguments)
    except (Exception, SystemExit) as error:
        raise ModelError(
            f"{what} '{target}' failed ({_first_line(error)}): call it in Python to see "
            "why."
        ) from error


def _arguments(function: Callable[..., Any], weights: Path | None) -> dict[str, Any]:
    """Those of a class that lie with its weights, as Lightning saves them."""
    if weights is None or not inspect.isclass(function):
        return {}
    known = inspect.signature(function).parameters
    found = {n: one for n, one in saved_arguments(weights).items() if n in known}
    objects = [name for name, one in found.items() if isinstance(one, StandIn)]
    if objects:
        raise ModelError(
            f"'{objects[0]}' in '{weights}' is an object, which is not read: give MODEL "
            "as a function without arguments that builds the model."
        )
    return found


@cache
def _module(place: str) -> ModuleType:
    """The module in a file or of a package; run once."""
    try:
        if place.endswith(".py"):
            return _run_file(Path(place))
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(place)
    except FlatgaugeError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(
            f"'{place}' could not be imported ({_first_line(error)}): run it with "
            "Python to see why."
        ) from error


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ModelError(f"the file '{path}' was not found: check the path.")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Pickled and data classes look their module up by its name.
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _device(name: str | None) -> torch.device | None:
    if name is None:
        return None
    try:
        torch.empty(0, device=name)
        return torch.device(name)
    except (RuntimeError, AssertionError) as error:
        raise OptionError(
            f"the device '{name}' cannot be used ({_first_line(error)}): leave --device "
            "out, or name one that this machine has."
        ) from error


def _dtype(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    if name not in DTYPES:
        raise OptionError(f"--dtype is '{name}': use float32 or float64.")
    return DTYPES[name]


def _first_line(error: BaseException) -> str:
    text = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
