"""Made-up results of CIFAR-10 in the declared schema, stored and read as real ones are."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from papers.experiment import Results, Run
from papers.rangamani2019.cifar import BOUND
from papers.rangamani2019.minima import MEASURES
from papers.rangamani2019.run import PAPER
from papers.runner import ROOT
from papers.store import PARTS, encode, load

HOME = ROOT / "rangamani2019"
EXPECTED = json.loads((HOME / "expected.json").read_text(encoding="utf-8"))
RUNS = PAPER.runs(False)
CIFAR = [run for run in RUNS if run.name.startswith("cifar10-")]
AXIS = [round(k / 10 - 1, 1) for k in range(21)]
Network = dict[str, Any]


def network(
    seed: int,
    norm: float,
    loss: float,
    *,
    accuracy: float = 0.7,
    steep: float = 1.0,
    reached: bool | None = None,
) -> Network:
    """One network: every measure is `norm`, lines are loss + steep t² (1 + k / 10)."""
    logarithmic = {one.request for one in MEASURES if one.logarithmic}
    measures = {
        request: {
            "value": math.log(norm) if request in logarithmic else norm,
            "status": "CONVERGED",
        }
        for request in CIFAR[0].settings["measures"]
    }
    lines = [[loss + steep * t * t * (1 + k / 10) for t in AXIS] for k in range(5)]
    return {
        "seed": seed,
        "epochs": 100,
        "reached": reached,
        "train_loss": loss,
        "train_accuracy": 1.0,
        "test_loss": 1.0,
        "test_accuracy": accuracy,
        "measured_loss": loss,
        "measures": measures,
        "stored_by_authors": norm / (2 + 2 * loss),
        "lines": {"axis": AXIS, "layer": lines, "filter": lines},
    }


def lost(seed: int) -> Network:
    """A network whose loss is no number."""
    gone = dict.fromkeys(("train_loss", "test_loss", "measured_loss"))
    gone |= dict.fromkeys(("stored_by_authors", "lines"))
    return network(seed, 1.0, 1.0, accuracy=0.1) | gone | {"measures": {}}


def parts(run: Run) -> tuple[str, str, bool, int]:
    """Protocol, network, whether the batch is the large one, seed."""
    _, protocol, shape, size, seed = run.name.split("-")
    return protocol, shape, size == "2000", int(seed)


def as_in_the_paper(run: Run) -> Network:
    """Gaps as printed with the authors' code, a factor of two with batch size alone."""
    protocol, shape, large, seed = parts(run)
    # Seeds differ by a few per cent, and not alike for both batch sizes.
    wobble = 1 + (0.02 if large else 0.03) * (seed % 3)
    if protocol == "clean":
        loss = 0.8 * BOUND * wobble
        return network(seed, (2000 if large else 1000) * wobble, loss, reached=True)
    entry = next(one for one in EXPECTED["table4"] if one.get("cifar") == shape)
    row = entry["rows"][large]
    return network(
        seed,
        row["norm"][0] * wobble,
        (3e-3 if large else 3e-4) * wobble,
        accuracy=row["accuracy"][0] / 100 + 1e-4 * (seed % 3),
        steep=10.0 if large else 1.0,
    )


def reversed_sides(run: Run) -> Network:
    """The same numbers with the two batch sizes exchanged."""
    small, large = ("256", "2000")
    protocol, shape, is_large, seed = parts(run)
    name = f"cifar10-{protocol}-{shape}-{small if is_large else large}-{seed}"
    return as_in_the_paper(next(one for one in CIFAR if one.name == name))


def stored(
    folder: Path,
    make: Callable[[Run], Network] = as_in_the_paper,
    runs: Iterable[Run] = CIFAR,
    mnist: bool = True,
) -> Results:
    """Write results, beside the committed ones of MNIST, and read all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    if mnist:
        for path in (HOME / "results").glob("*.json"):
            if not path.name.startswith("cifar10-"):
                shutil.copy(path, folder)
    facts = {"quick": False, "device": "none", "flatgauge": "0", "commit": "none"}
    facts |= {"torch": "0", "python": "0"}
    for run in runs:
        times = {"seconds": 1.0, "finished": "2026-01-01T00:00:00+00:00"}
        result = {"networks": [make(run)], "history": []}
        record = [run.name, run.revision, run.settings, result, facts, times]
        text = encode(dict(zip(PARTS, record, strict=True)))
        (folder / f"{run.name}.json").write_text(text, encoding="utf-8")
    return load(folder, RUNS, quick=False)


def geometric(values: Iterable[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(list(values)))))
