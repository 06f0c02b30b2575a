"""Where results go: checked before the work, written after it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from flatgauge.cli.processes import speaks
from flatgauge.errors import NotConvergedError, OptionError

if TYPE_CHECKING:
    from flatgauge.cli.settings import Settings
    from flatgauge.exports import Tabular
    from flatgauge.results import Report, Status

UNTRAINED = (
    "No --weights were given: the parameters are as {model} returned them, at random unless "
    "it loads some itself."
)
"""Which a random network does not say itself."""
PAGES = (".html", ".htm", "")
INTERRUPTED = 130
"""The exit code after Ctrl-C."""


STANDARD = "-"
"""The name of standard output, where a file is asked for."""
Writer = Callable[[Path], list[Path] | None]
_ALONE: ContextVar[TextIO | None] = ContextVar("_ALONE", default=None)


@contextmanager
def json_alone(arguments: Sequence[str]) -> Iterator[None]:
    """Under `--json -`, standard output is for that alone, and the rest goes to stderr."""
    pairs = [f"{one}={other}" for one, other in pairwise(arguments)]
    if f"--json={STANDARD}" not in (*arguments, *pairs):
        yield
        return
    token = _ALONE.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _ALONE.reset(token)


def check_paths(out: Path | None, *others: Path | None) -> None:
    """Refuse files that could not be written, before anything is computed.

    Args:
        out: whose name's ending says the format; without one it is the page.
        others: files of one format, whatever their names.
    """
    if out is not None and out.suffix:
        from flatgauge.exports import formats

        if out.suffix.lower() not in formats():
            raise OptionError(
                f"'{out}' has no ending that is known: give it one of "
                f"{', '.join(sorted(formats()))}."
            )
    for path in (out, *others):
        if path is None or str(path) == STANDARD:
            continue
        if path.is_dir():
            raise OptionError(f"'{path}' is a folder: name a file in it.")
        folder = path.absolute().parent
        if not folder.is_dir():
            raise OptionError(f"the folder '{folder}' does not exist: make it first.")
        if not os.access(folder, os.W_OK):
            raise OptionError(f"the folder '{folder}' cannot be written: use another.")


def check_table(settings: Settings) -> None:
    """Refuse a table of measures where none is asked for, before anything is computed."""
    if settings.out is not None and not settings.requests:
        from flatgauge.exports.tabular import NOTHING, formats

        if getattr(formats().get(settings.out.suffix.lower()), "TABLE", False):
            raise OptionError(NOTHING)


def deliver(
    report: Report,
    settings: Settings,
    status: Status | None = None,
    message: str = "",
    result: Tabular | None = None,
    loaded: bool = False,
) -> None:
    """Write what was asked for; under --strict, refuse what cannot be trusted.

    Args:
        report: the results.
        settings: the arguments.
        status: of a result beside the report's measurements.
        message: what that status means.
        result: what tables and figures show, where the report is a part of it.
        loaded: whether weights were loaded that `settings` do not name.

    Raises:
        NotConvergedError: under --strict.
    """
    trained = loaded or settings.weights or settings.model.startswith("hf:")
    if not trained and not {"comparison", "series", "study"} & set(report.extras):
        caution = UNTRAINED.format(model=settings.model)
        report = report.with_extras(cautions=[*report.cautions, caution])
        print(caution)
    if settings.strict:
        for key, one in report.measurements.items():
            if not one.status.trusted:
                raise NotConvergedError(f"{key}: {one.message}")
        if status is not None and not status.trusted:
            raise NotConvergedError(message)
    if settings.json is not None and str(settings.json) == STANDARD:
        print(json.dumps(report.to_dict(), indent=1), file=_ALONE.get())
    elif settings.json is not None:
        write(report.to_json, settings.json)
    if settings.out is not None:
        write(saver(report, settings.out, result), settings.out)


def saver(report: Report, path: Path, result: Tabular | None = None) -> Writer:
    """In the format that the name ends with; the page if it has no ending."""
    ending = path.suffix.lower()
    if ending in PAGES:
        return report.to_html
    # Tables and figures are of the result; what can be read back is all of the report.
    return report.save if result is None or ending == ".json" else result.save


def kept_so_far(settings: Settings) -> Callable[[Report], None] | None:
    """What writes the asked for files after every measure; nothing under --strict."""
    if settings.strict or not speaks():
        return None

    def keep(report: Report) -> None:
        # What cannot be written is said at the end.
        with suppress(OSError):
            if settings.json is not None and str(settings.json) != STANDARD:
                report.to_json(settings.json)
            if settings.out is not None:
                saver(report, settings.out)(settings.out)

    return keep


def write(writer: Writer, path: Path) -> None:
    """Write and say what was written, or say in a sentence why it could not be."""
    if not speaks():
        return
    try:
        written = writer(path) or [path]
    except OSError as error:
        reason = error.strerror or str(error)
        raise OptionError(
            f"'{path}' could not be written ({reason}): nothing was left there; free "
            "the disk or use another place."
        ) from error
    print(f"wrote {', '.join(map(str, written))}")
