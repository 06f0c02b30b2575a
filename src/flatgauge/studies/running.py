"""From a table of checkpoints to a study: what is not stored is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from flatgauge.checkpoint_series import Built
from flatgauge.checkpoint_series.store import PLACE, Store
from flatgauge.checkpoints import Checkpoint
from flatgauge.errors import FlatgaugeError, ModelError, OptionError
from flatgauge.objective import LossLike
from flatgauge.progress import Progress
from flatgauge.requests import asked_for
from flatgauge.results import Report
from flatgauge.studies.on_ray import measure_on_ray
from flatgauge.studies.plan import Plan
from flatgauge.studies.processes import measure_by_processes
from flatgauge.studies.recipes import Recipes
from flatgauge.studies.result import Network, Study, judged
from flatgauge.studies.store import StudyStore
from flatgauge.studies.table import Table, read_table
from flatgauge.studies.working import Work, measure_here

FOLDER = "flatgauge-study"
"""Where results are stored, if no other folder is named."""


def study(
    model: nn.Module | Callable[..., nn.Module],
    data: Any,
    table: str | Path | Iterable[Mapping[str, Any]],
    *requests: str | Sequence[str],
    target: str,
    better: str = "smaller",
    checkpoint: str = "checkpoint",
    hyperparameters: Sequence[str] = (),
    environments: str | None = None,
    samples: int | None = None,
    resamples: int = 1000,
    loss: LossLike = "cross-entropy",
    store: str | Path = FOLDER,
    key: str | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    jobs: int = 1,
    ray: bool = False,
    progress: Progress | None = None,
    batch_size: int | None = None,
    **settings: Any,
) -> Study:
    """Measure many checkpoints, and ask which measure orders them by a target.

    Each result is stored in one SQLite file as soon as it is there: whatever ends this,
    the same call goes on, with another target, too. Any number of processes may work on
    one store at once.

    Args:
        model: the architecture; it is copied, and its weights do not matter. Or a
            function that makes it, whose arguments are columns of the table.
        data: as for `Objective`, the same for all checkpoints; or such a function.
        table: a CSV file or its rows: a checkpoint in each, with its target and settings.
        requests: measures, as for `measure`; the default set if none is given.
        target: the column that measures should order networks by.
        better: whether a "smaller" target is better, or a "larger" one.
        checkpoint: the column that names the checkpoints, by paths from the table's folder.
        hyperparameters: columns of settings, for statistics that hold some of them fixed.
        environments: a column of environments, for sign-errors: see `rank_statistics`.
        samples: how many samples each target was measured on: see `rank_statistics`.
        resamples: of the networks, for intervals.
        loss: as for `Objective`.
        store: the folder for the results.
        key: where in the files the weights are, if they have several.
        options: options by measure name.
        seed: for every random draw, the same for all.
        jobs: processes of this machine that share its cores; 1 is this process.
        ray: measure on a Ray cluster instead: that of RAY_ADDRESS, else this machine.
        progress: called with ("networks", done, count).
        batch_size: as for `Objective`.
        settings: what else an `Objective` takes.

    Returns:
        A `Study`. Checkpoints that could not be measured are in its `failures`.

    Raises:
        FlatgaugeError: if none could be measured.
    """
    found = read_table(table, checkpoint)
    columns = tuple(hyperparameters), environments
    plan = Plan(target, better, *columns, samples, resamples, seed)
    recipes = Recipes(model, data, loss, batch_size, key, settings, found.by_name)
    asked = asked_for(requests)
    how = asked, options or {}, seed
    return run_study(
        found,
        plan,
        recipes,
        recipes.identity(*how),
        *how,
        folder=Path(store),
        jobs=jobs,
        ray=ray,
        progress=progress,
    )


def run_study(
    table: Table,
    plan: Plan,
    build: Callable[[Checkpoint], Built],
    identity: Callable[[Checkpoint], Mapping[str, Any]],
    requests: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    seed: int,
    *,
    folder: Path,
    jobs: int = 1,
    ray: bool = False,
    progress: Progress | None = None,
) -> Study:
    """The same for objectives that `build` makes; see `study` and `identity_of`."""
    plan.check(table)
    if jobs < 1:
        raise OptionError(f"jobs= is {jobs}: give the number of processes, at least 1.")
    keys, unreadable = _keys(table, lambda one: Store(folder, identity(one)).key(one))
    checkpoints = {keys[one.name]: one for one in table.checkpoints if one.name in keys}
    work = Work(build, checkpoints, requests, options, seed)
    store = StudyStore(folder, work.names)
    try:
        store.begin()
        if ray:
            measure_on_ray(store, work, progress)
        elif jobs > 1:
            measure_by_processes(store, work, jobs, progress)
        else:
            measure_here(store, work, progress)
        reports, failed = store.reports(), store.failures()
    finally:
        store.close()
    failures = unreadable | {
        name: failed[key] for name, key in keys.items() if key in failed
    }
    pairs = zip(table.checkpoints, table.rows, strict=True)
    networks = [
        Network(one.name, row, _about(one, reports[keys[one.name]]))
        for one, row in pairs
        if keys.get(one.name) in reports
    ]
    if not networks:
        reason = next(iter(failures.values()), "there are none: name some.")
        raise FlatgaugeError(f"no checkpoint could be measured: {reason}")
    return judged(networks, failures, plan)


def _about(checkpoint: Checkpoint, report: Report) -> Report:
    """A report with this name; a file with the same weights may have been measured."""
    place = {"name": checkpoint.name, "path": str(checkpoint.path)}
    return report.with_extras(**{PLACE: {**report.extras[PLACE], **place}})


def _keys(
    table: Table, key: Callable[[Checkpoint], str]
) -> tuple[dict[str, str], dict[str, str]]:
    """What each checkpoint's report is found by, and why others cannot be read."""
    keys, unreadable = {}, {}
    for one in table.checkpoints:
        try:
            keys[one.name] = key(one)
        except ModelError as error:
            unreadable[one.name] = str(error)
    return keys, unreadable
