"""A command that torchrun, or what is built on it, has started several times at once.

The processes measure together, each some batches; the first one prints and writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from flatgauge.errors import ProcessGroupError

# What torchrun tells its processes, beside RANK, LOCAL_RANK and WORLD_SIZE.
LAUNCHED = "TORCHELASTIC_RUN_ID"


def place() -> tuple[int, int]:
    """Which of how many processes this is, counted from 0."""
    if LAUNCHED not in os.environ:
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def speaks() -> bool:
    """Whether this process prints and writes for all."""
    return place()[0] == 0


@contextmanager
def joined() -> Iterator[None]:
    """In one process group with the others, if there are any."""
    if LAUNCHED not in os.environ:
        yield
        return
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    try:
        dist.init_process_group()
    except (RuntimeError, ValueError) as error:
        raise ProcessGroupError(
            f"the processes could not be brought together ({error}): start the command "
            "with torchrun on every node, with the same arguments."
        ) from error
    try:
        yield
        # A process that leaves while another still reads from it can abort that one.
        dist.barrier()
    finally:
        dist.destroy_process_group()


@dataclass(frozen=True)
class Share:
    """Some batches in a row, of an iterable that starts anew each time."""

    shared_out: Iterable[Any]
    start: int
    stop: int

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.shared_out), self.start, self.stop)


def own_share(data: Any, batch_size: int | None) -> Any:
    """What this process reads of the data: as many batches as others, in a row.

    Together they are the batches that one process would read, in the same order. A
    DataLoader whose DistributedSampler shares the data out already stays as it is.
    """
    rank, count = place()
    if count == 1:
        return data
    from torch import Tensor
    from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

    from flatgauge.nested import map_nested

    def bounds(batches: int) -> tuple[int, int]:
        return batches * rank // count, batches * (rank + 1) // count

    if isinstance(data, DataLoader) and isinstance(data.sampler, DistributedSampler):
        return data
    pair = isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], Tensor)
    if pair or isinstance(data, Dataset):
        samples = len(data[1] if pair else data)  # type: ignore[arg-type]
        size = batch_size or max(samples, 1)
        rows = slice(*(size * edge for edge in bounds(-(-samples // size))))
        if pair:
            return map_nested(lambda tensor: tensor[rows], data)
        return Subset(data, range(samples)[rows])  # type: ignore[arg-type]
    total = len(data) if hasattr(data, "__len__") else sum(1 for _ in data)
    return Share(data, *bounds(total))
