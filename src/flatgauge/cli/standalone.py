"""The commands that take no model: stored results, the list, the demo, the papers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from flatgauge.cli.commands import app
from flatgauge.cli.output import check_paths, saver, write
from flatgauge.cli.progress import ProgressBar
from flatgauge.cli.settings import DEBUG
from flatgauge.errors import OptionError
from flatgauge.version import __version__

Debug = Annotated[bool, DEBUG]


@app.command()
def report(
    file: Annotated[
        Path, typer.Argument(help="What --json wrote.", show_default=False)
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="Write the page here (.html), a table (.csv, .tex) or the figures "
            "(.svg, .png).",
            show_default=False,
        ),
    ],
    debug: Debug = False,
) -> None:
    """Draw the page of results that were stored before.

    Example: flatgauge report results.json --out page.html
    """
    from flatgauge.results import Report

    check_paths(out)
    try:
        write(saver(Report.from_json(file), out), out)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise OptionError(
            f"'{file}' is no complete flatgauge report: write it again with --json."
        ) from error


def _show_version(asked: bool) -> bool:
    if asked:
        print(f"flatgauge {__version__}")
        raise typer.Exit
    return asked


@app.callback()
def flatgauge(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """What comes before a command; the help text is the app's own."""


@app.command("list")
def list_measures(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    debug: Debug = False,
) -> None:
    """List the measures, their options, and what does not change them.

    Example: flatgauge list
    """
    from flatgauge.measures.registry import list_measures as find

    if as_json:
        print(json.dumps([one.to_dict() for one in find()], indent=1))
        return
    for one in find():
        options = ", ".join(f"{key}={value}" for key, value in one.options.items())
        unchanged = ", ".join(sorted(one.invariant_to()))
        print(one.name)
        print(f"    {one.title}: {one.formula}")
        print(f"    {one.reference}")
        print(f"    options: {options or 'none'}")
        print(f"    unchanged by: {unchanged or 'nothing'}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the page goes.")] = Path(
        "flatgauge-demo.html"
    ),
    debug: Debug = False,
) -> None:
    """Train, measure, compare and audit two small networks in about a minute.

    Example: flatgauge demo
    """
    check_paths(out)
    with ProgressBar() as progress:
        from flatgauge.demo import demonstrate, summary

        found = demonstrate(progress)
    print(summary(found), end="\n\n")
    write(saver(found.report, out), out.resolve())


@app.command()
def papers(
    name: Annotated[str, typer.Argument(help="Such as dinh2017.", show_default=False)],
    quick: Annotated[
        bool, typer.Option("--quick", help="A small form of the experiments.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="The folder that holds mnist/.", show_default=False),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[
        Path | None,
        typer.Option(help="Write below this folder instead.", show_default=False),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="A run to make; may be repeated.", show_default=False),
    ] = None,
    debug: Debug = False,
) -> None:
    """Run the experiments of a paper again, from a source checkout.

    Example: flatgauge papers dinh2017 --quick
    """
    root = Path(__file__).parents[3]
    known = sorted(path.parent.name for path in (root / "papers").glob("*/run.py"))
    if not known:
        raise OptionError(
            "the papers' experiments come with the source: run this in a checkout of it."
        )
    if name not in known:
        raise OptionError(f"there is no paper '{name}' here: use {', '.join(known)}.")
    command = [sys.executable, "-m", f"papers.{name}.run", "--device", device]
    command += ["--quick"] if quick else []
    command += ["--data", str(data.resolve())] if data else []
    command += ["--out", str(out.resolve())] if out else []
    command += ["--only", *only] if only else []
    raise typer.Exit(subprocess.run(command, cwd=root, check=False).returncode)
