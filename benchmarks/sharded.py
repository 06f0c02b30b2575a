"""The memory of a process that has some rows of every parameter, for 1, 2 and 4 of them.

The model is made of 16 blocks, and in no process was it ever whole: it is sharded before
its parameters have memory. Peaks are those of the process's resident memory, beyond what
it had before the model was made, and the largest of all processes counts.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import flatgauge as fg
from flatgauge.vectors import gaussian, generator

COUNTS = (1, 2, 4)
BLOCKS, WIDTH = 16, 768
# Too little for a whole copy with vectors beside it.
MEMORY = "100MB"
STEPS = 12


def sharded() -> dict[str, Any]:
    """Bytes by number of processes and by what was done."""
    found = {count: _peaks(count) for count in COUNTS}
    return {
        "network": "blocks",
        "device": "cpu",
        "precision": "ieee",
        "parameters": BLOCKS * WIDTH**2 + 10 * WIDTH,
        "block": WIDTH**2,
        "bytes": found,
    }


def _peaks(count: int) -> dict[str, int]:
    # So that what is freed is given back, and the next peak does not count it.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(2**17)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_measure, args=(folder, count), nprocs=count)
        parts = [torch.load(Path(folder) / f"{rank}.pt") for rank in range(count)]
    return {what: max(part[what] for part in parts) for what in parts[0]}


def _measure(rank: int, folder: str, count: int) -> None:
    torch.set_num_threads(1)
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=count)
    found: dict[str, int] = {}
    _warm_up()
    before = _resident()

    def peak(what: str, run: Callable[[], Any]) -> Any:
        # The high-water mark of this process starts anew.
        Path("/proc/self/clear_refs").write_text("5")
        result = run()
        found[what] = _status("VmHWM") - before
        return result

    model = peak("the model alone", lambda: _model(count))
    inputs, targets = torch.randn(8, WIDTH), torch.randint(0, 10, (8,))
    data = [(inputs[rank::count], targets[rank::count])]
    objective = peak("objective", lambda: fg.Objective(model, data, memory=MEMORY))
    peak("gradient", objective.gradient)
    hessian = fg.Hessian(objective)
    vector = gaussian(objective.parameters, generator(0))
    peak("product", lambda: hessian @ vector)
    request = f"hessian-spectral-norm[max_steps={STEPS}]"
    peak("eigenvalue", lambda: fg.measure(objective, request))
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _model(count: int) -> nn.Module:
    mesh = init_device_mesh("cpu", (count,))
    with torch.device("meta"):
        blocks = [
            nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())
            for _ in range(BLOCKS)
        ]
        model = nn.Sequential(*blocks, nn.Linear(WIDTH, 10, bias=False))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    for index, parameter in enumerate(model.parameters()):
        random = torch.Generator().manual_seed(index)
        own = parameter.to_local()
        own.data.copy_(torch.randn(own.shape, generator=random) / WIDTH**0.5)
    return model


def _warm_up() -> None:
    """Load what is loaded at the first measurement."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    data = (torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
    fg.measure(fg.Objective(model, data, process_group=False))
    gc.collect()


def _resident() -> int:
    return _status("VmRSS")


def _status(key: str) -> int:
    """Bytes that Linux knows of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(key))
    return 1024 * int(line.split()[1])
