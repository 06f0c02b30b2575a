"""Networks tried each in a process of its own, which may end as it likes."""

from __future__ import annotations

import gc
import io
import json
import logging
import multiprocessing
import resource
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, suppress
from importlib import import_module
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

import flatgauge as fg
from zoo.checks import Keep, Row, check
from zoo.registry import Network, every_network
from zoo.torchvision_operators import torchvision_importable

Attempt = Callable[[Network, Keep], Row]
PAUSE = 0.2
# A process that waits rather than computes is ended after this many times its seconds.
PATIENCE = 10
PRELOADED = (
    "torch.export",
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "transformers.models.bert.modeling_bert",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.vit.modeling_vit",
    "timm",
)


def work(name: str, path: str, seconds: int, attempt: Attempt) -> None:
    """Try one network; the row so far is in the file at any time."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    place = Path(path)

    def keep(row: Row) -> None:
        fresh = place.with_suffix(".partial")
        fresh.write_text(json.dumps(row, default=str))
        fresh.replace(place)

    try:
        # Where it fails, torch.export prints the graph on stderr.
        with redirect_stderr(io.StringIO()):
            attempt(every_network()[name], keep)
    except Exception as error:
        row = _row(name, place)
        row["crashed"]["zoo"] = f"{type(error).__name__}: {str(error)[:400]}"
        keep(row)


def run(
    names: list[str], seconds: int, jobs: int = 1, attempt: Attempt = check
) -> Iterator[Row]:
    """Rows as they come; a process that takes longer is ended, its row kept as it is.

    Seconds are the processor's, so that other processes do not count. They are forked off
    one that has imported everything, which takes most of the time of a small network.
    """
    torch.set_num_threads(1)
    _preload()
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        waiting, running = list(names), dict[str, tuple[BaseProcess, float]]()
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                path = _path(folder, name)
                arguments = (name, str(path), seconds, attempt)
                process = context.Process(target=work, args=arguments)
                process.start()
                running[name] = process, time.monotonic() + PATIENCE * seconds
            time.sleep(PAUSE)
            for name, (process, end) in list(running.items()):
                late = time.monotonic() > end
                if process.is_alive() and not late:
                    continue
                if process.is_alive():
                    process.kill()
                process.join()
                late = late or process.exitcode == -signal.SIGXCPU
                del running[name]
                yield _ended(name, _path(folder, name), process.exitcode, late)


def _preload() -> None:
    """What nearly every network imports."""
    torchvision_importable()
    for name in PRELOADED:
        with suppress(ImportError):
            import_module(name)
    for name in fg.__all__:
        getattr(fg, name)
    fg.list_measures()
    # Collections of garbage in a network's process need not walk through all of this.
    gc.collect()
    gc.freeze()


def _path(folder: str, name: str) -> Path:
    return Path(folder) / f"{name.replace('/', '-')}.json"


def _row(name: str, path: Path) -> Row:
    if path.exists():
        return json.loads(path.read_text())
    return {"name": name, "refused": {}, "crashed": {}, "step": "build"}


def _ended(name: str, path: Path, code: int | None, late: bool) -> Row:
    row = _row(name, path)
    if code and not late:
        row["crashed"]["process"] = f"ended with code {code} during {row['step']}"
    return row
