"""What we set out to reach, and what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.alone import GRADIENT, KEPT
from benchmarks.curves import memory_with_samples, time_with_samples

PRODUCTS_ON_CPU = {"MLP": 2.1, "WRN-16-4": 2.4, "GPT": 2.2}
FASTER_ON_GPU = {"WRN-16-4": 3.0, "GPT": 2.0, "MLP": 5.0, "LeNet": 1.5}
DIAGONAL = {"LeNet": 10.0, "WRN-16-4": 12.0}
EIGENVALUE = {"cpu": 1.8, "cuda": 5.0}
# Batches of which the call must be that much faster.
TARGETED_BATCH = 1000
TOLERANCE = 1e-3
# A product counts as right if its error is at most this many times ours.
RIGHT = 3.0
# How far a slope may be from 1, and a peak may rise, and still be called linear, flat.
LINEAR, FLAT = 0.15, 1.25
GIB = 2**30


@dataclass(frozen=True)
class Target:
    what: str
    bound: str
    measured: str
    met: bool


def targets(found: dict[str, Any], device: str) -> list[Target]:
    """Those that there are measurements for."""
    return [
        *_products(found, device),
        *_diagonals(found),
        *_eigenvalues(found, device),
        *_default_sets(found, device),
        *_growth(found),
        *_budgets(found),
    ]


def _products(found: dict[str, Any], device: str) -> Iterator[Target]:
    for row in found.get("products", []):
        name, times = row["network"], row["gradients"]
        if device == "cpu" and name in PRODUCTS_ON_CPU:
            what = f"product on {name}, gradients"
            yield at_most(what, times["flatgauge"], PRODUCTS_ON_CPU[name])
        if row["precision"] == "tf32" and "PyHessian" in times:
            what = f"product on {name}, times faster than PyHessian"
            faster = times["PyHessian"] / times["flatgauge"]
            yield at_least(what, faster, FASTER_ON_GPU[name])
        if device == "cuda" and "curvlinops" in times and is_right(row, "curvlinops"):
            what = (
                f"product on {name}, {row['precision']}, times faster than curvlinops"
            )
            yield at_least(what, times["curvlinops"] / times["flatgauge"], 1.0)


def is_right(row: dict[str, Any], package: str) -> bool:
    """Whether a package's error is not much larger than ours."""
    errors = row["error"]
    return package in errors and errors[package] <= RIGHT * errors["flatgauge"]


def _diagonals(found: dict[str, Any]) -> Iterator[Target]:
    for row in found.get("diagonal", []):
        if row["network"] in DIAGONAL:
            what = f"exact diagonal of {row['network']}, gradients"
            taken = row["gradients"]["exact diagonal"]
            yield at_most(what, taken, DIAGONAL[row["network"]])


def _eigenvalues(found: dict[str, Any], device: str) -> Iterator[Target]:
    for row in found.get("eigenvalue", []):
        seconds, ours = row["seconds"], row["flatgauge"]
        name = (
            f"top eigenvalue of the MLP, {row['precision']}, batches of {row['batch']}"
        )
        if "PyHessian" in seconds and row["batch"] == TARGETED_BATCH:
            faster = seconds["PyHessian"] / seconds["flatgauge"]
            what = f"{name}, times faster than PyHessian"
            yield at_least(what, faster, EIGENVALUE[device])
        yield Target(
            f"{name}, true relative error",
            f"at most {TOLERANCE:.0e}, and its bound {ours['bound']:.1e}",
            f"{ours['error']:.1e}",
            ours["error"] <= min(TOLERANCE, ours["bound"]),
        )


def _default_sets(found: dict[str, Any], device: str) -> Iterator[Target]:
    for row in found.get("default set", []):
        name = row["network"]
        if device == "cpu" and name == "LeNet":
            what = f"default set on {name}, gradients"
            yield at_most(what, row["gradients"], 120.0)
        if device == "cuda" and name == "WRN-16-4":
            yield at_most(f"default set on {name}, seconds", row["seconds"], 120.0)


def _growth(found: dict[str, Any]) -> Iterator[Target]:
    for one in time_with_samples(found):
        if one.name != GRADIENT:
            off = abs(one.slope - 1)
            bound = f"1 within {LINEAR:g}"
            what = f"slope of time in N, {one.label}"
            yield Target(what, bound, f"{one.slope:.2f}", off <= LINEAR)
    for one in memory_with_samples(found):
        if one.name not in (GRADIENT, KEPT):
            what = f"rise of peak memory with N, {one.label}"
            yield at_most(what, one.rise, FLAT)


def _budgets(found: dict[str, Any]) -> Iterator[Target]:
    for row in found.get("budget", []):
        yield Target(
            f"peak under a budget of {row['budget'] / GIB:g} GiB, {row['network']}, "
            f"{row['value']} sequences",
            f"the budget, {row['budget'] / GIB:.2f} GiB",
            f"{row['peak'] / GIB:.2f} GiB",
            row["peak"] <= row["budget"],
        )


def at_most(what: str, value: float, bound: float) -> Target:
    return Target(what, f"at most {bound:g}", f"{value:.2f}", value <= bound)


def at_least(what: str, value: float, bound: float) -> Target:
    return Target(what, f"at least {bound:g}", f"{value:.2f}", value >= bound)
