"""A product by two processes, each with half of the batches, beside one process alone.

Every process has one thread. Rounds alternate between one process with all of the data,
while the other waits, and both with their halves.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

import flatgauge as fg
from benchmarks.networks import NETWORKS, Network
from flatgauge.vectors import gaussian, generator

COUNT = 2


def processes(network: Network, rounds: int = 9) -> dict[str, Any]:
    """Seconds of a product, and the median over rounds of their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(
            _measure, args=(folder, network.name, rounds), nprocs=COUNT
        )
        found = torch.load(Path(folder) / "found.pt")
    return {
        "network": network.name,
        "device": "cpu",
        "precision": "ieee",
        "processes": COUNT,
        "seconds": {name: statistics.median(all) for name, all in found.items()},
        "ratio": statistics.median(
            both / one for one, both in zip(found["one"], found["all"], strict=True)
        ),
    }


def _measure(rank: int, folder: str, name: str, rounds: int) -> None:
    torch.set_num_threads(1)
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=COUNT)
    network = NETWORKS[name]
    samples, batch = network.sizes("cpu")
    # At least one batch for each.
    batches = network.batches("cpu", samples, min(batch, samples // COUNT))
    model = network.model()
    own = fg.Objective(model, batches[rank::COUNT])
    alone = fg.Objective(model, batches, process_group=False)
    vector = gaussian(own.parameters, generator(0))
    shared, whole = fg.Hessian(own), fg.Hessian(alone)
    seconds: dict[str, list[float]] = {"one": [], "all": []}
    for number in range(rounds + 1):
        dist.barrier()
        if rank == 0:
            one = _taken(lambda: whole @ vector)
        dist.barrier()
        all_of_them = _taken(lambda: shared @ vector)
        if rank == 0 and number:
            seconds["one"].append(one)
            seconds["all"].append(all_of_them)
    if rank == 0:
        torch.save(seconds, Path(folder) / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


def _taken(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
