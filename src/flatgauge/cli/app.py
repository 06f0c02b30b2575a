"""The entry point: runs a command and turns every failure into one sentence."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence

import typer

from flatgauge.cli.output import INTERRUPTED, json_alone
from flatgauge.cli.processes import place, speaks
from flatgauge.cli.settings import TOGETHER
from flatgauge.cli.standalone import app
from flatgauge.errors import FlatgaugeError, NotConvergedError, ProcessGroupError

FINE, NOT_CONVERGED, BAD_INPUT, UNEXPECTED = 0, 1, 2, 3
# The base of every complaint about the arguments themselves.
USAGE_ERROR = typer.BadParameter.__bases__[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: what follows the program's name; what was typed if None.

    Returns:
        The exit code: 0 fine, 1 not converged under --strict, 2 bad input, 3 an error
        of our own, 130 after Ctrl-C.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    if not speaks():
        if not given or given[0] not in TOGETHER:
            return FINE
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Greek letters become question marks where the encoding has none (Windows' files).
        sys.stdout.reconfigure(errors="replace")
    try:
        with warnings.catch_warnings(), json_alone(given):
            if not debug:
                warnings.showwarning = _show_warning
            code = app(given, prog_name="flatgauge", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except NotConvergedError as error:
        return _fail(str(error), NOT_CONVERGED, debug)
    except ProcessGroupError as error:
        return _fail(f"rank {place()[0]}: {error}", BAD_INPUT, debug, always=True)
    except FlatgaugeError as error:
        return _fail(str(error), BAD_INPUT, debug)
    except OSError as error:
        return _fail(f"a file could not be used ({error}).", BAD_INPUT, debug)
    except Exception as error:
        if isinstance(error, USAGE_ERROR):
            sentence = error.format_message()  # type: ignore[attr-defined]
            advice = "see 'flatgauge --help'."
            return _fail(f"{sentence.rstrip('.')}: {advice}", BAD_INPUT, debug)
        return _fail(
            f"an error that we did not expect ({type(error).__name__}: {error}): run "
            "again with --debug and report it, please.",
            UNEXPECTED,
            debug,
        )
    # Some versions of typer turn Ctrl-C into this exit code themselves.
    if code == INTERRUPTED:
        return _fail("stopped; no half-written file is left.", INTERRUPTED, debug=False)
    return code if isinstance(code, int) else FINE


def _fail(sentence: str, code: int, debug: bool, always: bool = False) -> int:
    """Say it, where this process speaks for all, or those that would may be gone."""
    if debug:
        traceback.print_exc()
    if always or speaks() or not getattr(sys.exception(), "of_all", False):
        print("flatgauge:", " ".join(sentence.split()), file=sys.stderr)
    return code


def _show_warning(
    message: Warning | str, category: type[Warning], *rest: object
) -> None:
    """Our own warnings as a line for people; those of other packages not at all."""
    if category.__module__.partition(".")[0] == "flatgauge":
        print("note:", " ".join(str(message).split()), file=sys.stderr)
