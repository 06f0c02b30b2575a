"""The commands. Each parses, calls the library, prints, and writes what was asked for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flatgauge.cli.output import INTERRUPTED, check_table, deliver, kept_so_far
from flatgauge.cli.progress import ProgressBar
from flatgauge.cli.settings import Settings, shared
from flatgauge.errors import OptionError

if TYPE_CHECKING:
    from flatgauge.objective import Objective
    from flatgauge.results import Report

app = typer.Typer(
    help="How flat is this minimum, in a way that does not change when only the "
    "parametrization changes?",
    epilog="Try: flatgauge demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.command()
@shared
def measure(
    settings: Settings,
    budget: Annotated[
        str | None,
        typer.Option(
            help="How long it may take, such as 90s, 5min or 1h30min; what time does "
            "not allow is marked.",
            show_default=False,
        ),
    ] = None,
    resamples: Annotated[
        int,
        typer.Option(
            help="Splits of the data into halves, for an uncertainty of the data.",
            min=0,
        ),
    ] = 0,
) -> None:
    """Measure how flat a minimum is; Ctrl-C ends it with what there is.

    Example: flatgauge measure net.py:model net.py:data --weights net.pt --out page.html
    """
    with ProgressBar() as progress:
        from flatgauge.cli.loading import build_objective
        from flatgauge.run import measure as run

        report = run(
            build_objective(settings),
            *settings.requests,
            options=settings.options,
            seed=settings.seed,
            strict=settings.strict,
            progress=progress,
            # Without a limit an interrupt still returns what there is.
            budget=math.inf if budget is None else budget,
            resamples=resamples,
            so_far=kept_so_far(settings),
        )
    print(report)
    deliver(report, settings)
    if report.extras.get("budget", {}).get("interrupted"):
        raise typer.Exit(INTERRUPTED)


@app.command()
@shared
def audit(
    settings: Settings,
    elements: Annotated[
        int, typer.Option(help="Random elements of each kind of symmetry.", min=1)
    ] = 3,
    spread: Annotated[
        float, typer.Option(help="Standard deviation of their log-scales.")
    ] = 0.5,
) -> None:
    """Move along the network's own symmetries, measure again, and say what moved.

    Example: flatgauge audit net.py:model net.py:data --out audit.html
    """
    with ProgressBar() as progress:
        from flatgauge.auditing import audit as run
        from flatgauge.cli.loading import build_objective

        found = run(
            build_objective(settings),
            *settings.requests,
            elements=elements,
            spread=spread,
            seed=settings.seed,
            options=settings.options,
            progress=progress,
        )
    print(found)
    deliver(found.report, settings, result=found)


@app.command()
@shared
def compare(
    settings: Settings,
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            help="NAME=WEIGHTS, two or more; or the files, folders or globs of a run, as "
            "in 'ck/*.ckpt'; or NAME=GLOB for each of several runs.",
            show_default=False,
        ),
    ],
    store: Annotated[
        Path,
        typer.Option(help="Where the results of a run's checkpoints are kept."),
    ] = Path("flatgauge-results"),
) -> None:
    """Compare checkpoints of one model, with error bars.

    Many checkpoints of a run become curves over its steps. Each result is stored when it
    is there: after Ctrl-C or a crash the same command goes on.

    Example: flatgauge compare net.py:model net.py:data small=small.pt large=large.pt
    """
    if settings.weights is not None:
        raise OptionError("compare takes its weights as NAME=WEIGHTS: drop --weights.")
    from flatgauge.cli.runs import find_runs, measure_runs

    runs = find_runs(checkpoints)
    with ProgressBar() as progress:
        if "" in runs or any(len(found) > 1 for found in runs.values()):
            measured = measure_runs(settings, runs, store, progress)
        else:
            from flatgauge.cli.loading import build_objective
            from flatgauge.comparison import compare as run

            measured = run(
                {
                    name: build_objective(settings, one.path)
                    for name, [one] in runs.items()
                },
                *settings.requests,
                options=settings.options,
                seed=settings.seed,
                progress=progress,
            )
    print(measured)
    deliver(measured.report(), settings, result=measured)


@app.command()
@shared
def symmetries(
    settings: Settings,
    verify: Annotated[
        str | None,
        typer.Option(
            help="dimension: count them once more by linear algebra alone.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Find the rescalings that leave the network's function unchanged.

    Example: flatgauge symmetries net.py:model net.py:data
    """
    check_table(settings)
    with ProgressBar() as progress:
        from flatgauge.cli.loading import build_objective
        from flatgauge.symmetry import symmetries as find

        objective = build_objective(settings)
        group = find(objective, verify=verify)
        found = {
            "dimension": group.dimension,
            "approximate_dimension": group.approximate_dimension,
            "kinds": list(group.kinds),
            "text": str(group),
        }
        report = _measured(objective, settings, progress).with_extras(symmetries=found)
    print(group)
    deliver(report, settings)


@app.command()
@shared
def landscape(
    settings: Settings,
    normalize: Annotated[
        str, typer.Option(help="Units of the directions: layer, filter or none.")
    ] = "layer",
    directions: Annotated[str, typer.Option(help="random or eigenvectors.")] = "random",
    to: Annotated[
        Path | None,
        typer.Option(
            help="Weights of another checkpoint: the line to it.", show_default=False
        ),
    ] = None,
    path: Annotated[
        list[str] | None,
        typer.Option(
            help="A run's checkpoints, a folder or a glob, again for each: their path in "
            "the plane of its principal directions.",
            show_default=False,
        ),
    ] = None,
    points: Annotated[int, typer.Option(help="Points along each axis.")] = 51,
    span: Annotated[float, typer.Option(help="How far the axes reach.")] = 1.0,
    dimensions: Annotated[int, typer.Option(help="1 or 2.")] = 1,
) -> None:
    """Slice the loss along random directions, eigenvectors, or between checkpoints.

    Example: flatgauge landscape net.py:model net.py:data --dimensions 2 --points 21
    """
    with ProgressBar() as progress:
        from flatgauge.checkpoints import find_checkpoints
        from flatgauge.cli.loading import build_objective
        from flatgauge.landscapes import landscape as run
        from flatgauge.trajectories import trajectory

        if path:
            steps = [one.path for place in path for one in find_checkpoints(place)]
            visited = {str(one): build_objective(settings, one) for one in steps}
            objective = visited[str(steps[-1])]
            found = trajectory(visited, points, progress)
        else:
            objective = build_objective(settings)
            found = run(
                objective,
                normalize,
                directions if to is None else build_objective(settings, to),
                points,
                span,
                dimensions,
                settings.seed,
                progress,
            )
        report = _measured(objective, settings, progress)
    losses = found.losses[found.losses.isfinite()]
    print(f"{found.title}: {found.losses.numel()} points, loss {objective.value():.6g}")
    if losses.numel():
        print(f"smallest {losses.min():.6g}, largest {losses.max():.6g}")
    report = report.with_extras(landscapes=[found.to_dict()])
    deliver(report, settings, result=found, loaded=bool(path))


@app.command()
@shared
def spectrum(
    settings: Settings,
    k: Annotated[int, typer.Option("--k", help="How many top eigenvalues.")] = 5,
    probes: Annotated[int, typer.Option(help="Random vectors of the density.")] = 10,
    steps: Annotated[int, typer.Option(help="Lanczos steps for each.")] = 80,
) -> None:
    """Estimate the density of the Hessian's eigenvalues, and the largest of them.

    Example: flatgauge spectrum net.py:model net.py:data --k 3 --out page.html
    """
    check_table(settings)
    with ProgressBar() as progress:
        from flatgauge.cli.loading import build_objective
        from flatgauge.spectrum import measure_spectrum, spectrum_data

        objective = build_objective(settings)
        progress("spectrum", 0, 1)
        found = measure_spectrum(objective, k, probes, steps, seed=settings.seed)
        report = _measured(objective, settings, progress)
    top, low = found.largest, found.smallest
    report = report.with_extras(spectrum=spectrum_data(found.density, top, low))
    print("largest eigenvalues:", ", ".join(f"{one:.6g}" for one in top.values))
    print(top.message)
    print(f"smallest eigenvalue: {low.values[0]:.6g}")
    print(low.message)
    worse = top if not top.status.trusted else low
    deliver(report, settings, worse.status, worse.message)


def _measured(
    objective: Objective, settings: Settings, progress: ProgressBar
) -> Report:
    """The measures that were asked for, beside what the command itself finds."""
    from flatgauge.provenance import provenance_of
    from flatgauge.results import Report
    from flatgauge.run import measure as run

    if not settings.requests:
        return Report({}, provenance_of(objective, settings.seed))
    return run(
        objective,
        *settings.requests,
        options=settings.options,
        seed=settings.seed,
        strict=settings.strict,
        progress=progress,
    )
