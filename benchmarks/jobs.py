"""What is measured on a device, the most important first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks import growth
from benchmarks.alone import AUTO, DIAGONAL, GRADIENT, KEPT, NOT_KEPT
from benchmarks.default_set import default_set
from benchmarks.diagonal import diagonal
from benchmarks.eigenvalue import eigenvalue
from benchmarks.job import Job
from benchmarks.memory import memory, within_budget
from benchmarks.networks import NETWORKS
from benchmarks.processes import processes
from benchmarks.products import products
from benchmarks.sharded import sharded
from benchmarks.trace import trace

# On a CPU the trace takes one batch, since the peers take a hundred products and more.
TRACED_ON_CPU = {"LeNet": 1000, "MLP": 1000, "GPT": 2}
# Sequences whose kept graphs take far less of 2 GiB than may be kept, just less, and more.
BUDGETED = (16, 40, 96)


def jobs(device: str) -> list[Job]:
    return list(_on_gpu() if device == "cuda" else _on_cpu())


def _on_cpu() -> Iterator[Job]:
    yield from _products("cpu", "ieee", dict.fromkeys(NETWORKS, 9))
    yield from _diagonals("cpu", "ieee")
    yield _eigenvalue("cpu", "ieee", 1000, 5)
    run = partial(default_set, "LeNet", "cpu", "ieee")
    yield Job("default set", "LeNet", "ieee", run)
    for name, samples in TRACED_ON_CPU.items():
        network = NETWORKS[name]
        batches = partial(network.batches, "cpu", samples, samples)
        yield _trace(name, "cpu", "ieee", batches)
    yield from _growth("cpu", "ieee")
    yield from _memory("cpu", "ieee")
    for name in NETWORKS:
        run = partial(processes, NETWORKS[name])
        yield Job("processes", name, "ieee", run)
    yield Job("sharded", "blocks", "ieee", sharded)
    for samples in BUDGETED:
        run = partial(within_budget, NETWORKS["GPT"], samples)
        yield Job("budget", "GPT", "ieee", run, f"N={samples}")


def _on_gpu() -> Iterator[Job]:
    yield from _products(
        "cuda", "tf32", {"WRN-16-4": 2, "GPT": 5, "MLP": 9, "LeNet": 7}
    )
    yield from _diagonals("cuda", "tf32")
    for precision in ("tf32", "ieee"):
        yield _eigenvalue("cuda", precision, 10_000, 25)
        yield _eigenvalue("cuda", precision, 1000, 9)
    run = partial(default_set, "WRN-16-4", "cuda", "tf32", batch=2500)
    yield Job("default set", "WRN-16-4", "tf32", run)
    yield from _products("cuda", "ieee", dict.fromkeys(NETWORKS, 1))
    for name in TRACED_ON_CPU:
        yield _trace(name, "cuda", "tf32", lambda: None)
    yield from _growth("cuda", "tf32")
    yield from _memory("cuda", "tf32")


def _products(device: str, precision: str, rounds: dict[str, int]) -> Iterator[Job]:
    for name, count in rounds.items():
        run = partial(products, NETWORKS[name], device, precision, count)
        yield Job("products", name, precision, run)


def _diagonals(device: str, precision: str) -> Iterator[Job]:
    for name in ("LeNet", "MLP", "WRN-16-4"):
        rounds = 1 if (device, name) == ("cuda", "WRN-16-4") else 3
        run = partial(diagonal, NETWORKS[name], device, precision, rounds)
        yield Job("diagonal", name, precision, run)


def _eigenvalue(device: str, precision: str, batch: int, rounds: int) -> Job:
    run = partial(eigenvalue, device, precision, batch, rounds)
    return Job("eigenvalue", "MLP", precision, run, f"batches of {batch}")


def _trace(name: str, device: str, precision: str, batches: Callable[[], Any]) -> Job:
    rounds = 1 if name == "GPT" else 3

    def run() -> dict[str, Any]:
        return trace(NETWORKS[name], device, precision, rounds, batches())

    return Job("trace", name, precision, run)


def _growth(device: str, precision: str) -> Iterator[Job]:
    for name in ("MLP", "LeNet"):
        for contestant in (GRADIENT, NOT_KEPT, KEPT, DIAGONAL):
            for samples in growth.SAMPLES[device]:
                run = partial(
                    growth.with_samples, name, contestant, samples, device, precision
                )
                detail = f"{contestant}, N={samples}"
                yield Job("growth", name, precision, run, detail)
    for contestant in (GRADIENT, AUTO, DIAGONAL):
        for width in growth.WIDTHS:
            run = partial(growth.with_parameters, width, contestant, device, precision)
            detail = f"{contestant}, width {width}"
            yield Job("growth", "MLP", precision, run, detail)
    for classes in growth.CLASSES:
        run = partial(growth.with_classes, classes, device, precision)
        yield Job("growth", "LeNet", precision, run, f"diagonal, K={classes}")


def _memory(device: str, precision: str) -> Iterator[Job]:
    for name, network in NETWORKS.items():
        run = partial(memory, network, device, precision)
        yield Job("memory", name, precision, run)
