"""The command that measures many checkpoints against a target."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flatgauge.cli.commands import app
from flatgauge.cli.output import deliver
from flatgauge.cli.processes import place
from flatgauge.cli.progress import ProgressBar
from flatgauge.cli.settings import Settings, shared
from flatgauge.errors import NotConvergedError, OptionError

if TYPE_CHECKING:
    from flatgauge.checkpoint_series import Built
    from flatgauge.checkpoints import Checkpoint
    from flatgauge.studies import Plan, Study


@app.command()
@shared
def study(
    settings: Settings,
    folder: Annotated[
        Path,
        typer.Argument(
            help="A folder with checkpoints and a CSV file that names one in each row, "
            "with its target and its settings.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            help="The column that measures should order the networks by, such as gap.",
            show_default=False,
        ),
    ],
    better: Annotated[
        str,
        typer.Option(
            help="smaller or larger: what is a better target, as of a gap or an accuracy."
        ),
    ] = "smaller",
    table: Annotated[
        Path | None,
        typer.Option(help="The CSV file, if DIR has several.", show_default=False),
    ] = None,
    checkpoint: Annotated[
        str, typer.Option(help="The column that names the checkpoints.")
    ] = "checkpoint",
    hyperparameter: Annotated[
        list[str] | None,
        typer.Option(help="A column of settings, again for each.", show_default=False),
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(help="The column of environments.", show_default=False),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            help="How many samples each target was measured on, if it is an accuracy or "
            "a gap of accuracies.",
            min=1,
            show_default=False,
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            help="Where results are kept; DIR/flatgauge-study if left out.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Processes that share this machine's cores.", min=1)
    ] = 1,
    ray: Annotated[
        bool,
        typer.Option(
            "--ray", help="Measure on a Ray cluster: that of RAY_ADDRESS, else here."
        ),
    ] = False,
) -> None:
    """Ask which measure orders many checkpoints by a target, such as the gap.

    Each result is stored when it is there: after Ctrl-C or a crash the same command goes
    on, and several may work on one study at once.

    Example: flatgauge study net.py:model net.py:data runs --target gap --out study.html
    """
    if settings.weights is not None:
        raise OptionError("study takes its weights from the table: drop --weights.")
    if place()[1] > 1:
        raise OptionError(
            "study shares the networks out by itself: use --jobs or --ray, not torchrun."
        )
    with ProgressBar() as progress:
        from flatgauge.studies import Plan, find_table

        columns = tuple(hyperparameter or ()), environment
        plan = Plan(target, better, *columns, samples, seed=settings.seed)
        place_of_results = store or folder / "flatgauge-study"
        try:
            found = _study(
                settings,
                table or find_table(folder),
                checkpoint,
                plan,
                place_of_results,
                (jobs, ray),
                progress,
            )
        except KeyboardInterrupt:
            print(
                f"note: what was measured is in '{place_of_results}': the same command "
                "goes on.",
                file=sys.stderr,
            )
            raise
    if settings.strict:
        for network in found.networks:
            for request, one in network.report.items():
                if not one.status.trusted:
                    raise NotConvergedError(f"{network.name}, {request}: {one.message}")
    print(found)
    deliver(found.report(), settings, result=found)


def _study(
    settings: Settings,
    table: Path,
    checkpoint: str,
    plan: Plan,
    store: Path,
    how: tuple[int, bool],
    progress: ProgressBar,
) -> Study:
    from flatgauge.requests import asked_for
    from flatgauge.studies import read_table, run_study

    rows = read_table(table, checkpoint)
    # Before anything is read that may be large.
    plan.check(rows)
    requests = asked_for(settings.requests)
    typed = Typed(settings, rows.by_name)
    jobs, ray = how
    return run_study(
        rows,
        plan,
        typed,
        typed.identity(requests, rows.checkpoints[0]),
        requests,
        settings.options,
        settings.seed,
        folder=store,
        jobs=jobs,
        ray=ray,
        progress=progress,
    )


@dataclass(frozen=True)
class Typed:
    """What makes an objective of a checkpoint in any process: the arguments as typed."""

    settings: Settings
    rows: Mapping[str, Mapping[str, Any]]

    def __call__(self, checkpoint: Checkpoint) -> Built:
        """The objective of a row."""
        from flatgauge.cli.loading import load_objective

        return load_objective(
            self.settings, checkpoint.path, self.rows[checkpoint.name]
        )

    def identity(
        self, requests: list[str], first: Checkpoint
    ) -> Callable[[Checkpoint], Mapping[str, Any]]:
        """Everything but the weights that a row's numbers hang on.

        Args:
            requests: what is measured.
            first: of the table, which stands for all where no function takes a column.
        """
        from flatgauge.checkpoint_series.store import identity_of
        from flatgauge.cli.loading import (
            build_model,
            load_data,
            objective_keywords,
            takes_columns,
        )

        settings, row = self.settings, self.rows[first.name]
        differ = [takes_columns(one, row) for one in (settings.model, settings.data)]

        def of(checkpoint: Checkpoint) -> Mapping[str, Any]:
            row = self.rows[checkpoint.name]
            return identity_of(
                build_model(settings, checkpoint.path, row),
                *load_data(settings, row),
                tuple(requests),
                settings.options,
                settings.seed,
                {**objective_keywords(settings), "key": settings.key},
            )

        if any(differ):
            return of
        every = of(first)
        return lambda _: every
