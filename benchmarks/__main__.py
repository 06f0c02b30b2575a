"""Run the benchmarks: python -m benchmarks [--device cuda] [--peers FOLDER].

Results go to benchmarks/results/<machine>.json; `python -m benchmarks.page` draws
benchmarks/README.md from whatever is there.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.default_set import default_set
from benchmarks.diagonal import diagonal
from benchmarks.eigenvalue import eigenvalue
from benchmarks.growth import growth
from benchmarks.networks import NETWORKS
from benchmarks.products import products
from flatgauge.version import __version__

RESULTS = Path(__file__).parent / "results"
GIB = 2**30


def machine(device: str) -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    return {
        "flatgauge": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--peers", help="a folder with the other packages")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", help="some of the parts by name")
    options = parser.parse_args()
    if options.peers:
        sys.path.append(options.peers)
    warnings.simplefilter("ignore")
    device = options.device
    precisions = ("ieee", "tf32") if device == "cuda" else ("ieee",)
    fast = precisions[-1]
    rounds = 3 if device == "cuda" else 5
    jobs: list[tuple[str, Callable[[], Any]]] = [
        *(
            ("products", partial(products, network, device, fast, rounds))
            for network in NETWORKS.values()
        ),
        *(
            ("diagonal", partial(diagonal, NETWORKS[name], device, fast))
            for name in ("LeNet", "WRN-16-4")
        ),
        *(("eigenvalue", partial(eigenvalue, device, one)) for one in precisions),
    ]
    if device == "cuda":
        jobs.append(
            ("default set", partial(default_set, "WRN-16-4", device, fast, batch=2500))
        )
    else:
        jobs += [
            ("default set", partial(default_set, "LeNet", device, fast)),
            *(
                ("growth", partial(growth, "MLP", n, 0))
                for n in (1000, 2000, 4000, 8000)
            ),
            *(("growth", partial(growth, "GPT", n, 2 * GIB)) for n in (4, 8, 16)),
        ]
    if fast != "ieee":
        jobs += [
            ("products", partial(products, network, device, "ieee", 1))
            for network in NETWORKS.values()
        ]
    found: dict[str, Any] = {"machine": machine(device)}
    out = options.out or RESULTS / f"{device}.json"
    out.parent.mkdir(exist_ok=True)
    for name, run in jobs:
        if options.only and name not in options.only:
            continue
        rows = found.setdefault(name, [])
        try:
            rows.append(run())
            print(name, json.dumps(rows[-1]), flush=True)
        except Exception as error:
            print(f"{name} failed: {type(error).__name__}: {error}"[:500], flush=True)
        out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
