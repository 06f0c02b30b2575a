"""Where the checkpoints of a run are, in the order of their steps."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatgauge.checkpoints.reading import INDEX, WHOLE
from flatgauge.errors import ModelError

ENDINGS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")
"""Of files in a folder that are taken for checkpoints."""
# In the order of how fine they are.
NAMED_STEPS = [
    re.compile(rf"{word}[^\d.]{{0,3}}(\d+)", re.IGNORECASE)
    for word in ("step", "iter", "epoch")
]
# The last number of a name, unless it is part of a decimal fraction.
LAST_NUMBER = re.compile(r"(?<![\d.])(\d+)(?!\.\d)(?=\D*$)")
STATE = "trainer_state.json"


@dataclass(frozen=True)
class Checkpoint:
    """A file or a folder with weights, its short name, and the step in it if any."""

    path: Path
    name: str
    step: int | None


def find_checkpoints(places: str | Path | Iterable[str | Path]) -> list[Checkpoint]:
    """The checkpoints that files, folders and globs name, by step and then by name.

    A folder is a checkpoint where it holds a model's weights, as those that Hugging
    Face's Trainer writes do; else all files and folders in it that are checkpoints.

    Raises:
        ModelError: where there are none.
    """
    given = [places] if isinstance(places, str | Path) else places
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise ModelError(_no_places(places))
    given = list(given)
    for place in given:
        if not isinstance(place, str | Path):
            raise ModelError(_no_places(place))
    paths = list(dict.fromkeys(path for place in given for path in _expanded(place)))
    names = _short_names(paths)
    found = [Checkpoint(path, names[path], step_of(path)) for path in paths]
    known = all(one.step is not None for one in found)
    return sorted(found, key=lambda one: (one.step if known else 0, _natural(one.name)))


def _no_places(given: Any) -> str:
    return (
        f"checkpoints are named by {type(given).__name__}: give paths of files or "
        "folders, or globs; what is in memory can be compared with compare()."
    )


def step_of(path: Path) -> int | None:
    """The step that a name ends with, or that a Trainer wrote beside the weights.

    >>> step_of(Path("epoch=3-step=1200.ckpt")), step_of(Path("net_00040.pt"))
    (1200, 40)
    >>> step_of(Path("lr0.1.pt")), step_of(Path("last.ckpt"))
    (None, None)
    """
    try:
        step = json.loads((path / STATE).read_text(encoding="utf-8"))["global_step"]
        if type(step) is int:
            return step
    except (OSError, ValueError, KeyError, TypeError):
        pass
    name = path.name.removesuffix(INDEX)
    stem = name.removesuffix(path.suffix) if path.suffix in ENDINGS else name
    for pattern in (*NAMED_STEPS, LAST_NUMBER):
        if found := pattern.findall(stem):
            return int(found[-1])
    return None


def _expanded(place: str | Path) -> list[Path]:
    path = Path(place)
    if path.is_dir():
        return [path] if _is_model(path) else _inside(path)
    if path.exists():
        return [path]
    found = sorted(Path(one) for one in glob.glob(str(place), recursive=True))
    if not found:
        raise ModelError(f"the checkpoints '{place}' were not found: check the path.")
    return found


def _inside(folder: Path) -> list[Path]:
    found = [
        path
        for path in sorted(folder.iterdir())
        if (path.is_file() and path.suffix in ENDINGS)
        or (path.is_dir() and _is_model(path))
    ]
    if not found:
        raise ModelError(
            f"the folder '{folder}' has no checkpoints: they end with "
            f"{', '.join(ENDINGS)}, or are folders with {WHOLE[0]}."
        )
    return found


def _is_model(folder: Path) -> bool:
    names = [*WHOLE, *(name + INDEX for name in WHOLE)]
    return any((folder / name).is_file() for name in names)


def _short_names(paths: list[Path]) -> dict[Path, str]:
    """As much of the end of each path as tells it from the others."""
    for depth in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = {path: "/".join(path.parts[-depth:]) for path in paths}
        if len(set(names.values())) == len(paths):
            return names
    return {path: str(path) for path in paths}


def _natural(name: str) -> list[tuple[int, str]]:
    """Numbers in names in their own order: 9 before 10."""
    parts = re.findall(r"\d+|\D+", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
