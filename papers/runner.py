"""Makes the runs of a paper that are not finished, then its figures and its page."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch

from flatgauge.errors import FlatgaugeError, OptionError
from papers import compare, page, store
from papers.data import check_data
from papers.experiment import Context, Paper, Results, Run

ROOT = Path(__file__).parent
QUICK_NOTE = (
    "*The quick form: reduced sizes on data that need no files. It shows that everything "
    "runs; its numbers are not the paper's.*\n\n"
)


def main(paper: Paper, argv: Sequence[str] | None = None) -> NoReturn:
    """The command line of one paper; the exit code is 1 if something failed."""
    parser = command_line(f"python -m papers.{paper.name}.run")
    parser.description = f"The experiments of {paper.title}."
    parser.add_argument("--only", nargs="+", metavar="RUN", help="make only these runs")
    options = parser.parse_args(argv)
    sys.exit(guarded(lambda: work(paper, options)))


def command_line(program: str) -> argparse.ArgumentParser:
    """The options that every paper has."""
    parser = argparse.ArgumentParser(prog=program)
    add = parser.add_argument
    add("--quick", action="store_true", help="a small form, on data that need no files")
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="the folder that holds mnist/ and cifar10/",
    )
    add("--device", default="cpu", help="cpu (the default) or cuda")
    add("--out", type=Path, metavar="DIR", help="write below this folder instead")
    add("--page", action="store_true", help="draw from what is stored, run nothing")
    add(
        "--compare",
        type=float,
        nargs="?",
        const=compare.CHEAP_SECONDS,
        metavar="SECONDS",
        help="make what took at most so long again, and compare it with what is stored",
    )
    return parser


def guarded(action: Callable[[], int]) -> int:
    """The action's exit code; what the user did wrong is one sentence and exit code 2."""
    try:
        return action()
    except FlatgaugeError as error:
        print(f"papers: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("papers: stopped; the same command goes on from here.", file=sys.stderr)
        return 130


def work(paper: Paper, options: argparse.Namespace) -> int:
    """Make what is not finished of one paper; 0, or 1 if something failed."""
    context = _context(options)
    home = ROOT / paper.name
    out = options.out or (home / "quick" if context.quick else home)
    runs = paper.runs(context.quick)
    chosen = _chosen(runs, getattr(options, "only", None))
    if options.compare is not None:
        compared = [
            check(paper, run, context, out / "results", options.compare)
            for run in chosen
        ]
        return 0 if all(compared) else 1
    done = []
    if not options.page:
        done = [make(paper, run, context, out / "results") for run in chosen]
    results = store.load(out / "results", runs, context.quick)

    def write_page() -> None:
        text = whole_page(paper, runs, results, home / "expected.json", context.quick)
        store.write(out / "README.md", text)

    done += [
        attempt(
            f"{paper.name} figures", lambda: paper.figures(results, out / "figures")
        ),
        attempt(f"{paper.name} page", write_page),
    ]
    return 0 if all(done) else 1


def whole_page(
    paper: Paper, runs: list[Run], results: Results, expected: Path, quick: bool
) -> str:
    """The page of a paper as it is written: title, body, and how to run it again."""
    printed: dict[str, Any] = {}
    if expected.is_file():
        printed = json.loads(expected.read_text(encoding="utf-8"))
    body = paper.page(results, printed).strip()
    top = f"# {paper.title}\n\n{QUICK_NOTE if quick else ''}"
    return f"{top}{body}\n\n{page.run_again(paper.name, runs, results)}"


def make(paper: Paper, run: Run, context: Context, folder: Path) -> bool:
    """Make one run unless it is finished; whether there is a result now."""
    label = f"{paper.name} {run.name}"
    record, flaw = store.find(folder, run, context.quick)
    if record is not None:
        print(f"{label}: already done", flush=True)
        return True
    if flaw:
        print(f"{label}: {flaw}, so it is made again", flush=True)
    start = time.perf_counter()
    if not attempt(label, lambda: _compute(run, context, folder)):
        return False
    print(f"{label}: {time.perf_counter() - start:.1f} s", flush=True)
    return True


def check(paper: Paper, run: Run, context: Context, folder: Path, limit: float) -> bool:
    """Whether the stored result is what today's code gives, or need not be compared."""
    label = f"{paper.name} {run.name}"
    record, flaw = store.find(folder, run, context.quick)
    if record is None:
        flaw = flaw or f"'{folder / run.name}.json' is missing"
        print(f"{label}: failed: {flaw}: make it again.", file=sys.stderr, flush=True)
        return False
    reason = compare.left_out(run, record, context, limit)
    if reason:
        print(f"{label}: not compared: {reason}", flush=True)
        return True
    made: list[tuple[dict[str, Any], dict[str, Any]]] = []
    if not attempt(label, lambda: made.append(_result(run, run.placed(context)))):
        return False
    ((result, times),) = made
    found = compare.differences(record["result"], store.plain(result), run.tolerances)
    if found:
        said = compare.sentence(found)
        print(f"{label}: failed: {said}", file=sys.stderr, flush=True)
        return False
    print(f"{label}: as stored ({times['seconds']:.1f} s)", flush=True)
    return True


def attempt(label: str, action: Callable[[], object]) -> bool:
    """Whether the action went well; if not, say why and go on."""
    try:
        action()
        return True
    except FlatgaugeError as error:
        reason = str(error)
    except Exception as error:
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
    print(f"{label}: failed: {reason}", file=sys.stderr, flush=True)
    return False


def _compute(run: Run, context: Context, folder: Path) -> None:
    own = run.placed(context)
    result, times = _result(run, own)
    store.save(folder, run, own, result, times)


def _result(run: Run, own: Context) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the run returns, and the seconds that it and its parts took."""
    if "data" in run.needs:
        check_data(own, run.data)
    start = time.perf_counter()
    with _apart(own.device, run.repeats):
        result = run.compute(own, store.plain(run.settings))
    seconds = round(time.perf_counter() - start, 3)
    return result, {**result.pop("times", {}), "seconds": seconds}


@contextmanager
def _apart(device: torch.device, repeats: bool) -> Iterator[None]:
    """Nothing done to torch's globals reaches the next run, and the same answer each time.

    But for a run on a GPU that does not claim to repeat: there it would only cost time.
    """
    # cuBLAS reads it when the first product is made on the GPU.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    mode, dtype = torch.get_deterministic_debug_mode(), torch.get_default_dtype()
    gpus = [torch.cuda.current_device()] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        try:
            if repeats or device.type == "cpu":
                torch.set_deterministic_debug_mode("warn")
            yield
        finally:
            torch.set_deterministic_debug_mode(mode)
            torch.set_default_dtype(dtype)


def _context(options: argparse.Namespace) -> Context:
    if options.device not in ("cpu", "cuda"):
        raise OptionError(f"--device is '{options.device}': use cpu or cuda.")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise OptionError("--device is cuda, but torch finds no GPU here: use cpu.")
    if options.compare is not None and (options.quick or options.page):
        raise OptionError(
            "--compare looks at the results of the full form and draws nothing: leave "
            "--quick and --page out."
        )
    if options.data is not None and not options.data.is_dir():
        raise OptionError(
            f"--data '{options.data}' was not found: name the folder that holds the data."
        )
    return Context(options.quick, options.data, torch.device(options.device))


def _chosen(runs: list[Run], only: Sequence[str] | None) -> list[Run]:
    known = [run.name for run in runs]
    for name in only or []:
        if name not in known:
            raise OptionError(f"there is no run '{name}': use {', '.join(known)}.")
    return [run for run in runs if only is None or run.name in only]
