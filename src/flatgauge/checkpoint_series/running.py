"""Measure checkpoint after checkpoint, and go on where an earlier run stopped."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from flatgauge.checkpoint_series.result import Point, Series
from flatgauge.checkpoint_series.store import PLACE, Store, identity_of
from flatgauge.checkpoints import Checkpoint, find_checkpoints, load_weights
from flatgauge.errors import (
    FlatgaugeError,
    ModelError,
    OptionError,
    ProcessGroupError,
)
from flatgauge.objective import LossLike, Objective
from flatgauge.progress import Progress
from flatgauge.ranks import ranks_of
from flatgauge.requests import asked_for
from flatgauge.results import Report
from flatgauge.run import measure

FOLDER = "flatgauge-results"
"""Where results are stored, if no other folder is named."""

Places = str | Path | Iterable[str | Path]
Built = tuple[Objective, int | None]
"""An objective, and the step that was saved with its weights."""


def series(
    model: nn.Module,
    data: Any,
    checkpoints: Places | Mapping[str, Places],
    *requests: str | Sequence[str],
    loss: LossLike = "cross-entropy",
    store: str | Path = FOLDER,
    key: str | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    batch_size: int | None = None,
    **settings: Any,
) -> Series:
    """Measure the checkpoints of a run, or of several, alike.

    Each result is stored as soon as it is there, by what the checkpoint and the data hold
    and by all options: the same call goes on where one was stopped, by whatever.

    Args:
        model: the architecture; it is copied, and its weights do not matter.
        data: as for `Objective`.
        checkpoints: files, folders or globs; or a mapping from names of runs to these.
        requests: measures, as for `measure`; the default set if none is given.
        loss: as for `Objective`.
        store: the folder for the results.
        key: where in the files the weights are, if they have several.
        options: options by measure name.
        seed: for every random draw, the same for all.
        progress: called with (checkpoint, index, count) before each.
        batch_size: as for `Objective`.
        settings: what else an `Objective` takes.

    Returns:
        A `Series`. Checkpoints that could not be measured are in its `failures`.

    Raises:
        FlatgaugeError: if none could be measured.
    """
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"model= is {type(model).__name__}: give a torch.nn.Module of the "
            "checkpoints' architecture."
        )
    if isinstance(checkpoints, Mapping):
        runs = {str(run): find_checkpoints(one) for run, one in checkpoints.items()}
    else:
        runs = {"": find_checkpoints(checkpoints)}
    asked = tuple(asked_for(requests))

    def build(checkpoint: Checkpoint) -> Built:
        twin = copy.deepcopy(model)
        step = load_weights(twin, checkpoint.path, key)
        return Objective(twin, data, loss, batch_size=batch_size, **settings), step

    named = {**settings, "loss": loss, "key": key}
    identity = identity_of(
        model,
        data,
        batch_size,
        asked,
        options or {},
        seed,
        {name: one for name, one in named.items() if name != "process_group"},
    )
    kept = Store(Path(store), identity, ranks_of(settings.get("process_group")))
    return measure_series(
        runs, build, kept, *asked, options=options, seed=seed, progress=progress
    )


def measure_series(
    runs: Mapping[str, Sequence[Checkpoint]],
    build: Callable[[Checkpoint], Built],
    store: Store,
    *requests: str,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Series:
    """The same for objectives that `build` makes, only for those that are not stored."""
    every = [(run, one) for run, found in runs.items() for one in found]
    points: list[Point] = []
    failures: dict[str, str] = {}
    first: FlatgaugeError | None = None
    for index, (run, checkpoint) in enumerate(every):
        label = f"{run}: {checkpoint.name}" if run else checkpoint.name
        if progress is not None:
            progress(label, index, len(every))
        try:
            report = _report(checkpoint, build, store, requests, options, seed)
        except (ProcessGroupError, OptionError):
            # What is wrong with all of them.
            raise
        except FlatgaugeError as error:
            failures[label] = str(error)
            first = first or error
            continue
        step = report.extras[PLACE]["step"]
        points.append(Point(run, checkpoint.name, step, report))
    if not points:
        raise first or ModelError("there are no checkpoints to measure: name some.")
    order = list(runs)
    # A step in a file may be known only now; those without keep their places.
    known = all(point.step is not None for point in points)
    points.sort(key=lambda p: (order.index(p.run), p.step if known else 0))
    return Series(points, failures)


def _report(
    checkpoint: Checkpoint,
    build: Callable[[Checkpoint], Built],
    store: Store,
    requests: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None,
    seed: int,
) -> Report:
    key = store.key(checkpoint)
    found = store.find(checkpoint, key)
    if found is not None:
        return found
    objective, saved = build(checkpoint)
    store.prepare()
    measured = measure(objective, *requests, options=options, seed=seed)
    about = {
        "key": key,
        "name": checkpoint.name,
        "path": str(checkpoint.path),
        "step": checkpoint.step if saved is None else saved,
    }
    report = measured.with_extras(**{PLACE: about})
    store.keep(checkpoint, key, report)
    return report
