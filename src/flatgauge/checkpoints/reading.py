"""What is in a checkpoint's files, read without running anything in them."""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from _compat_pickle import IMPORT_MAPPING
from pathlib import Path
from typing import Any

import torch

from flatgauge.errors import ModelError

WHOLE = ("model.safetensors", "pytorch_model.bin")
"""The files in which a folder keeps its weights, by what Hugging Face calls them."""
INDEX = ".index.json"
HARMLESS = ("argparse", "collections", "datetime", "functools", "pathlib", "types")
"""Modules of the standard library whose objects are found beside weights."""
SAVE = "save model.state_dict() with torch.save, or as safetensors"


def files_of(path: Path) -> list[Path]:
    """The files that hold a checkpoint: itself, those of a folder, or an index's shards.

    Raises:
        ModelError: if there are none.
    """
    if path.is_dir():
        names = [name + ending for ending in ("", INDEX) for name in WHOLE]
        found = [path / name for name in names if (path / name).is_file()]
        if not found:
            raise ModelError(
                f"the folder '{path}' has none of {', '.join(names)}: name the file "
                "that holds the weights."
            )
        path = found[0]
    if not path.is_file():
        raise ModelError(f"the weights '{path}' were not found: check the path.")
    return [path, *_shards(path)] if path.name.endswith(INDEX) else [path]


def read(path: Path) -> Any:
    """What a checkpoint holds: tensors by name, or whatever a trainer saved with them.

    Raises:
        ModelError: if it is missing, broken, or would run code.
    """
    first, *shards = files_of(path)
    if not shards:
        return _read_file(first)
    merged: dict[str, Any] = {}
    for shard in shards:
        merged |= _read_file(shard)
    return merged


def content_hash(path: Path) -> str:
    """A SHA-256 of the bytes of a checkpoint's files."""
    digest = hashlib.sha256()
    for one in files_of(path):
        with one.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


def _shards(index: Path) -> list[Path]:
    """The files that an index names, which lie beside it."""
    try:
        named = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        names = sorted(set(named))
        beside = bool(names) and all(Path(name).name == name for name in names)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"'{index}' is no index of weights: {error}.") from error
    if not beside:
        raise ModelError(f"'{index}' names no files beside it: get it again.")
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise ModelError(
            f"'{index}' names '{missing[0]}', which is not beside it: get it again."
        )
    return [index.parent / name for name in names]


def _read_file(path: Path) -> Any:
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
        with torch.serialization.safe_globals(_stand_ins(path)):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"'{path}' is no plain file of tensors, and loading it could run code: "
            f"{SAVE}."
        ) from error
    except Exception as error:
        raise ModelError(
            f"'{path}' is not what torch.save writes, or is cut short "
            f"({type(error).__name__}): copy it again, or {SAVE}."
        ) from error


class StandIn:
    """In place of an object of a class that the file names: it keeps and does nothing."""

    def __new__(cls, *_: Any) -> StandIn:
        """Whatever the class would have been given."""
        return super().__new__(cls)

    def __init__(self, *_: Any):
        pass

    def __setstate__(self, _: Any) -> None:
        pass


def _stand_ins(path: Path) -> list[Any]:
    """A stand-in for every class that a trainer saved beside the weights.

    Nothing of what the file names is imported or called. Names of the standard library,
    where the functions that could do harm are, get none, and torch refuses the file.
    """
    try:
        named = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:
        # A file of the old format, or none of torch's at all, which the reader reports.
        return []
    return [(StandIn, name) for name in named if _is_harmless(name)]


def _is_harmless(name: str) -> bool:
    module = name.partition(".")[0]
    # Files name modules as Python 2 did, such as __builtin__ and commands.
    own = module in sys.stdlib_module_names or module in {
        old.partition(".")[0] for old in IMPORT_MAPPING
    }
    return not own or module in HARMLESS
