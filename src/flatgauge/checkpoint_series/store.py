"""What was measured before, in one file for each checkpoint.

The name of a file ends with a key: a SHA-256 of the checkpoint's bytes and of everything
else that the numbers hang on. A file is written beside and renamed, so that it is whole or
not there, whenever the process ends; and it is never looked for under another key.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from flatgauge.checkpoints import Checkpoint
from flatgauge.checkpoints.reading import content_hash
from flatgauge.data import Batches
from flatgauge.errors import FlatgaugeError, OptionError
from flatgauge.isolation import isolated
from flatgauge.nested import leaves
from flatgauge.ranks import ALONE, Ranks
from flatgauge.requests import asked_for, planned
from flatgauge.results import Report, Status, plain
from flatgauge.version import __version__

PLACE = "checkpoint"
"""Where a stored report says what it is about, in its extras."""
CPU = torch.device("cpu")
DIGITS = 16
LONGEST = 200
"""Bytes of a checkpoint's name that the name of its report keeps."""


class Store:
    """A folder of reports.

    Of several processes the first one looks and writes; all get what it found.

    Args:
        folder: made before the first report is measured.
        identity: everything but the checkpoint that numbers hang on: see `identity_of`.
        ranks: the processes that measure together, each with an identity of its own data.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], ranks: Ranks = ALONE):
        self.folder = folder
        self._ranks = ranks
        own = json.dumps(plain(identity), sort_keys=True)
        self._identity = "".join(ranks.gathered(own))

    def key(self, checkpoint: Checkpoint) -> str:
        """What the report of a checkpoint is found by."""
        text = content_hash(checkpoint.path) + self._identity
        return hashlib.sha256(text.encode()).hexdigest()

    def file(self, checkpoint: Checkpoint, key: str) -> Path:
        """Where the report of a checkpoint lies."""
        # File systems count bytes, 255 of them in a name.
        name = re.sub(r"[^\w.=+-]+", "_", checkpoint.name).encode()[-LONGEST:]
        name = name.decode(errors="ignore")
        return self.folder / f"{name}-{key[:DIGITS]}.json"

    def find(self, checkpoint: Checkpoint, key: str) -> Report | None:
        """The stored report, unless something failed in it, which may go well now."""
        return self._ranks.agreed(self._look(checkpoint, key))

    def _look(self, checkpoint: Checkpoint, key: str) -> Report | None:
        path = self.file(checkpoint, key)
        try:
            found = Report.from_json(path) if path.is_file() else None
        except FlatgaugeError:
            # What somebody cut or changed is measured again.
            return None
        if found is None or found.extras.get(PLACE, {}).get("key") != key:
            return None
        failed = any(m.status is Status.FAILED for m in found.measurements.values())
        return None if failed else found

    def keep(self, checkpoint: Checkpoint, key: str, report: Report) -> None:
        """Store a report."""
        if self._ranks.first:
            report.to_json(self.file(checkpoint, key))

    def prepare(self) -> None:
        """Make the folder, if it is not there.

        Raises:
            OptionError: if nothing can be stored in it.
        """
        reason = self._ranks.agreed(self._made() if self._ranks.first else "")
        if reason:
            raise OptionError(
                f"no results can be stored in '{self.folder}' ({reason}): name another "
                "folder with --store (store= in Python)."
            )

    def _made(self) -> str:
        """Nothing, or why the folder cannot be used."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return error.strerror or str(error)
        return "" if os.access(self.folder, os.W_OK) else "it may not be written"


def identity_of(
    model: nn.Module,
    data: Any,
    batch_size: int | None,
    requests: tuple[str, ...],
    options: Mapping[str, Mapping[str, Any]],
    seed: int,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything but the checkpoint that numbers hang on, as plain data.

    Args:
        model: the architecture; its weights do not matter.
        data: as for an objective; read once, for their content.
        batch_size: as for an objective.
        requests: what is measured.
        options: options by measure.
        seed: for every random draw.
        settings: what else the objective is made with; of functions, their source counts.
    """
    asked = {one: planned(one, options)[1] for one in asked_for(requests)}
    return {
        "flatgauge": __version__,
        "torch": torch.__version__,
        "model": model_hash(model),
        "data": data_hash(data, batch_size),
        "measures": asked,
        "seed": seed,
        "settings": {name: _described(one) for name, one in settings.items()},
    }


def model_hash(model: nn.Module) -> str:
    """A SHA-256 of an architecture: modules, shapes, and the files of their classes."""
    digest = hashlib.sha256()
    sources: set[str] = set()
    for name, module in model.named_modules():
        kind = type(module)
        line = (name, kind.__module__, kind.__qualname__, module.extra_repr())
        digest.update(repr(line).encode())
        sources.add(_source(kind))
    for name, tensor in model.state_dict().items():
        digest.update(repr((name, tuple(tensor.shape), str(tensor.dtype))).encode())
    for source in sorted(sources):
        digest.update(source.encode())
    return digest.hexdigest()


def data_hash(data: Any, batch_size: int | None = None) -> str:
    """A SHA-256 of all batches, in their order under a fixed seed."""
    digest = hashlib.sha256()
    batches = Batches(
        data, batch_size=batch_size, device=CPU, dtype=torch.float64, any_batch=True
    )
    with isolated(CPU, batches.source):
        for batch in batches:
            for leaf in leaves(batch.whole):
                digest.update(_bytes(leaf))
    return digest.hexdigest()


def _bytes(leaf: Any) -> bytes:
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf).encode()
    head = repr((str(leaf.dtype), tuple(leaf.shape))).encode()
    return (
        head
        + leaf.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    )


def _described(value: Any) -> str:
    """A setting as text; a function by its name and the file that it is in."""
    if not callable(value) or isinstance(value, type | torch.dtype):
        return repr(value)
    name = getattr(value, "__qualname__", type(value).__qualname__)
    source = value if inspect.isroutine(value) else type(value)
    return f"{name} {hashlib.sha256(_source(source).encode()).hexdigest()}"


def _source(thing: Any) -> str:
    """The text of the file that a class or a function is written in."""
    try:
        path = inspect.getsourcefile(thing)
        return "" if path is None else Path(path).read_text(encoding="utf-8")
    except (TypeError, OSError, UnicodeDecodeError):
        return ""
