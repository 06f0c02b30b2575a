"""Run the benchmarks: python -m benchmarks [--device cuda] [--peers FOLDER].

Results go to benchmarks/results/<device>.json, where rows of earlier runs stay until
they are measured again; `python -m benchmarks.page` draws benchmarks/README.md from
whatever is there.

Networks at the size people use are measured only where they are named, a part in a
call of some minutes (`--only scale:resnet50`), into results/scale/<part>.json; each row
is stored as it ends. What one call had no time for, or lost, another one adds with
`--missing`.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks import peers
from benchmarks.contestants import in_words
from benchmarks.job import Job
from benchmarks.networks import NETWORKS
from benchmarks.results import FOLDER, SCALE, Results
from benchmarks.scale.jobs import PARTS as SCALE_PARTS
from benchmarks.scale.jobs import PREFIX, ROW_NAMES, Call, scale_jobs
from benchmarks.timing import free
from flatgauge.version import __version__

PARTS = (
    "products", "diagonal", "eigenvalue", "default set", "trace", "growth", "memory",
    "budget", "processes", "sharded",
)  # fmt: skip
# What the networks at the size people use depend on: not the processor beside the GPU.
DECISIVE = ("flatgauge", "torch", "gpu")


def machine(device: str) -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    return {
        "flatgauge": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "cuda": torch.version.cuda if device == "cuda" else None,
        "peers": peers.versions(),
    }


def processor() -> str:
    """The processor's name where the system tells it."""
    listed = Path("/proc/cpuinfo")
    if listed.exists():
        for line in listed.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--peers", default="", help="a folder with the other packages")
    parser.add_argument("--out", type=Path, help="the file of results to fill")
    parser.add_argument(
        "--only", nargs="*", choices=(*PARTS, *SCALE_PARTS), help="some of the parts"
    )
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, help="some networks")
    parser.add_argument("--precision", choices=("ieee", "tf32"), help="one of them")
    parser.add_argument(
        "--without",
        nargs="*",
        default=[],
        choices=peers.DISTRIBUTIONS,
        help="packages to leave out",
    )
    scale = parser.add_argument_group("networks at the size people use")
    scale.add_argument("--rows", nargs="*", default=[], choices=ROW_NAMES)
    scale.add_argument("--missing", action="store_true", help="rows not stored yet")
    scale.add_argument("--minutes", type=float, default=7.5, help="of one call")
    scale.add_argument(
        "--data", type=Path, help="the folder of CIFAR-10's binary files"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    started = time.perf_counter()
    options = parse(arguments)
    peers.use(options.peers)
    peers.leave_out(options.without)
    warnings.simplefilter("ignore")
    scaled = [part for part in options.only or () if part in SCALE_PARTS]
    for part in scaled:
        _run_scaled(part, options, started)
    if not scaled or len(scaled) < len(options.only):
        _run_small(options)


def _run_scaled(part: str, options: argparse.Namespace, started: float) -> None:
    name = part.removeprefix(PREFIX)
    results = Results(options.out or SCALE / f"{name}.json")
    results.set_machine(machine(options.device), DECISIVE)
    call = Call(
        results,
        options.device,
        60 * options.minutes,
        started,
        tuple(options.rows),
        options.missing,
        options.data,
    )
    run(scale_jobs(part, call), results, options.device)


def _run_small(options: argparse.Namespace) -> None:
    from benchmarks.jobs import jobs

    results = Results(options.out or FOLDER / f"{options.device}.json")
    results.set_machine(machine(options.device))
    wanted = (
        job
        for job in jobs(options.device)
        if (not options.only or job.part in options.only)
        and (not options.networks or job.network in options.networks)
        and (not options.precision or job.precision == options.precision)
    )
    run(wanted, results, options.device)


def run(jobs: Iterable[Job], results: Results, device: str) -> None:
    """Measure row after row, each stored as it ends."""
    for job in jobs:
        started = time.perf_counter()
        try:
            row = job.run()
            row["wall"] = round(time.perf_counter() - started, 1)
            results.add(job.part, row)
            results.set_failure(job.label, None)
            print(job.label, json.dumps(row), flush=True)
        except Exception as error:
            results.set_failure(job.label, in_words(error))
            print(f"{job.label} failed: {in_words(error)}", flush=True)
        print(f"{job.label}: {time.perf_counter() - started:.1f} s", flush=True)
        free(device)


if __name__ == "__main__":
    main()
