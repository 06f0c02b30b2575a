"""Runs of many checkpoints, as they are named on the command line."""

from __future__ import annotations

import glob
import sys
from pathlib import Path

from flatgauge.checkpoint_series import Series, measure_series
from flatgauge.checkpoint_series.store import Store, identity_of
from flatgauge.checkpoints import Checkpoint, find_checkpoints
from flatgauge.cli.loading import (
    build_model,
    load_data,
    load_objective,
    objective_keywords,
)
from flatgauge.cli.settings import Settings
from flatgauge.errors import NotConvergedError, OptionError
from flatgauge.progress import Progress
from flatgauge.ranks import ranks_of

Runs = dict[str, list[Checkpoint]]


def find_runs(texts: list[str]) -> Runs:
    """The checkpoints by the name that was given for them; one run, "", without names.

    Raises:
        OptionError: for a mixture of both, a name that was given twice, or fewer than
            two checkpoints.
        ModelError: where there are none.
    """
    # A path may have an equals sign, as Lightning's do.
    plain = [text for text in texts if "=" not in text or _exists(text)]
    if len(plain) == len(texts):
        runs = {"": find_checkpoints(texts)}
    elif plain:
        raise OptionError(
            f"'{plain[0]}' has no name, but others have: write NAME=WEIGHTS for all of "
            "them, or for none."
        )
    else:
        runs = _named(texts)
    if sum(map(len, runs.values())) < 2:
        raise OptionError(
            "a comparison needs two checkpoints: give NAME=WEIGHTS twice, or a run's "
            "files."
        )
    return runs


def _exists(text: str) -> bool:
    return Path(text).exists() or bool(glob.glob(text))


def _named(texts: list[str]) -> Runs:
    runs: Runs = {}
    for text in texts:
        name, _, place = text.partition("=")
        if not (name and place):
            raise OptionError(f"'{text}' is not understood: write NAME=WEIGHTS.")
        if name in runs:
            raise OptionError(f"the name '{name}' was given twice: use another.")
        runs[name] = find_checkpoints(place)
    return runs


def measure_runs(
    settings: Settings, runs: Runs, folder: Path, progress: Progress
) -> Series:
    """The series, from what is stored and from what is measured now."""
    every = [one for found in runs.values() for one in found]
    data, batch_size = load_data(settings)
    identity = identity_of(
        build_model(settings, every[0].path),
        data,
        batch_size,
        settings.requests,
        settings.options,
        settings.seed,
        {**objective_keywords(settings), "key": settings.key},
    )
    store = Store(folder, identity, ranks_of(None))
    try:
        found = measure_series(
            runs,
            lambda one: load_objective(settings, one.path),
            store,
            *settings.requests,
            options=settings.options,
            seed=settings.seed,
            progress=progress,
        )
    except KeyboardInterrupt:
        print(
            f"note: what was measured is in '{folder}': the same command goes on.",
            file=sys.stderr,
        )
        raise
    if settings.strict:
        for point in found.points:
            for request, one in point.report.measurements.items():
                if not one.status.trusted:
                    raise NotConvergedError(f"{point.name}, {request}: {one.message}")
    return found
