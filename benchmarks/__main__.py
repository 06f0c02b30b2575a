"""Run the benchmarks: python -m benchmarks [--device cuda] [--peers FOLDER].

Results go to benchmarks/results/<device>.json, where rows of earlier runs stay until
they are measured again; `python -m benchmarks.page` draws benchmarks/README.md from
whatever is there.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks import peers
from benchmarks.contestants import in_words
from benchmarks.jobs import jobs
from benchmarks.networks import NETWORKS
from benchmarks.results import FOLDER, Results
from benchmarks.timing import free
from flatgauge.version import __version__

PARTS = (
    "products", "diagonal", "eigenvalue", "default set", "trace", "growth", "memory",
    "budget",
)  # fmt: skip


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


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--peers", default="", help="a folder with the other packages")
    parser.add_argument("--out", type=Path, help="the file of results to fill")
    parser.add_argument("--only", nargs="*", choices=PARTS, help="some of the parts")
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, help="some networks")
    parser.add_argument("--precision", choices=("ieee", "tf32"), help="one of them")
    parser.add_argument(
        "--without",
        nargs="*",
        default=[],
        choices=peers.DISTRIBUTIONS,
        help="packages to leave out",
    )
    return parser.parse_args()


def main() -> None:
    options = parse()
    peers.use(options.peers)
    peers.leave_out(options.without)
    warnings.simplefilter("ignore")
    device = options.device
    results = Results(options.out or FOLDER / f"{device}.json")
    results.set_machine(machine(device))
    for job in jobs(device):
        if options.only and job.part not in options.only:
            continue
        if options.networks and job.network not in options.networks:
            continue
        if options.precision and job.precision != options.precision:
            continue
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
