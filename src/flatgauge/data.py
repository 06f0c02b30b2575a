"""Anything a user has, as batches that can be read again and again.

A *sample* is one entry along the first dimension that all tensors of a batch share: see
`samples_in` and `take`. A *row* is what a loss averages over, which may be more or less:
see `flatgauge.losses.counting`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from flatgauge.arrays import as_tensors
from flatgauge.errors import DataError
from flatgauge.memory import memory_budget
from flatgauge.nested import leaves, made_of_tensors, map_nested, tensors_in

LABELS = "labels"


@dataclass(frozen=True)
class Batch:
    """One batch on the device: what the user gave, its inputs and its targets.

    A `stand_in` counts for nothing: where parameters are sharded, a process that has no
    batch left still has to run, since others need its rows.
    """

    index: int
    whole: Any
    inputs: Any
    targets: Any
    stand_in: bool = False


class RepeatedSamplesWarning(UserWarning):
    """Some samples are given to two processes, and count twice."""


class Batches:
    """The user's data as batches, on one device and in one floating dtype.

    Args:
        data: a DataLoader or any re-iterable of batches, a map-style Dataset (with
            `batch_size`), or a pair of tensors (inputs, targets). A batch is a pair
            (inputs, targets) or a mapping with "labels".
        batch_size: for tensors and Datasets only; all tensors in one batch if None.
        device: where the tensors go.
        dtype: what floating tensors are converted to.
        any_batch: also take batches without targets; each then is its own target.

    Attributes:
        offset: the number of the first batch, where other processes have those before.
    """

    def __init__(
        self,
        data: Any,
        *,
        batch_size: int | None,
        device: torch.device,
        dtype: torch.dtype,
        any_batch: bool,
    ):
        self.source = _source(as_tensors(data), batch_size, any_batch)
        self.device = device
        self.dtype = dtype
        self.any_batch = any_batch
        self.offset = 0
        self._room = 0
        self._held: list[Batch] | None = None

    def warn_of_padding(self) -> None:
        """Say so where a DistributedSampler repeats samples to make even shares."""
        loader = self.source
        sampler = loader.sampler if isinstance(loader, DataLoader) else None
        if isinstance(sampler, DistributedSampler):
            count = len(sampler.dataset)  # type: ignore[arg-type]
            extra = sampler.total_size - count
            if extra > 0:
                warnings.warn(
                    f"{extra} samples beyond the {count} of the data count twice, since the "
                    f"DistributedSampler repeats them to give {sampler.num_replicas} "
                    "processes equal shares: give each process its own "
                    "Subset(dataset, range(rank, len(dataset), count)) instead.",
                    RepeatedSamplesWarning,
                    stacklevel=3,
                )

    def hold_from_now_on(self, memory: int | None) -> None:
        """Keep the batches on the device after the next whole pass, if they fit.

        Only where they are copies of ours: batches of a DataLoader, or on another device
        than the user's. Half of the budget for that `memory` is taken at most.
        """
        if self.device.type != "cpu" or isinstance(self.source, DataLoader):
            self._room = memory_budget(self.device, memory) // 2

    def held(self) -> list[Batch] | None:
        """All batches, if they are kept on the device."""
        if self._held is None and self._room:
            for _ in self:
                if not self._room:
                    break
        return self._held

    def __iter__(self) -> Iterator[Batch]:
        if self._held is not None:
            yield from self._held
            return
        held: list[Batch] = []
        size = 0
        for index, whole in enumerate(self.source, self.offset):
            moved = map_nested(self._place, whole)
            inputs, targets = self._split(moved, index)
            batch = Batch(index, moved, inputs, targets)
            size += sum(tensor.nbytes for tensor in tensors_in(moved))
            held.append(batch)
            if size > self._room:
                self._room = 0
                held.clear()
            yield batch
        if 0 < size <= self._room:
            self._held = held

    def _place(self, tensor: Tensor) -> Tensor:
        _check_dense(tensor)
        if tensor.is_inference():
            tensor = tensor.clone()
        dtype = self.dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.to(device=self.device, dtype=dtype, non_blocking=True)

    def _split(self, batch: Any, index: int) -> tuple[Any, Any]:
        if isinstance(batch, Mapping):
            if LABELS in batch:
                inputs = {key: value for key, value in batch.items() if key != LABELS}
                return inputs, batch[LABELS]
            found = f"a mapping with the keys {sorted(map(str, batch))}"
        elif isinstance(batch, tuple | list) and len(batch) == 2:
            return batch[0], batch[1]
        elif isinstance(batch, tuple | list):
            found = f"a {type(batch).__name__} of length {len(batch)}"
        else:
            found = f"a {type(batch).__name__}"
        if self.any_batch:
            return batch, batch
        raise DataError(
            f"batch {index} is {found}: give pairs (inputs, targets) or mappings with "
            f"'{LABELS}', or pass forward= and a callable loss that take the whole batch."
        )


# By index of a batch: which of its samples, or None for the whole batch.
ChosenSamples = Mapping[int, list[int] | None]


class Part:
    """Some samples of some batches, or of a part of them, read anew each time."""

    def __init__(self, batches: Batches | Part, rows: ChosenSamples):
        self.source = batches.source
        self._batches = batches
        self._rows = rows

    def held(self) -> None:
        """No copies are kept."""

    def __iter__(self) -> Iterator[Batch]:
        places = {index: place for place, index in enumerate(sorted(self._rows))}
        for batch in self._batches:
            if batch.index in self._rows:
                rows = self._rows[batch.index]
                part = batch if rows is None else take(batch, rows)
                yield replace(part, index=places[batch.index])


def leading_size(value: Any) -> int | None:
    """The leading dimension that all tensors share; None where they share none."""
    lengths = {tensor.shape[0] if tensor.ndim else -1 for tensor in tensors_in(value)}
    return lengths.pop() if len(lengths) == 1 and -1 not in lengths else None


def samples_in(batch: Batch) -> int | None:
    """The number of samples of a batch; None where it cannot be cut into them."""
    return leading_size(batch.whole) if made_of_tensors(batch.whole) else None


def cut_length(batch: Batch) -> int | None:
    """The entries along which a batch can be cut, be there words or numbers beside.

    None where there are objects of other kinds: they may hold what has to be cut, too.
    """
    plain = (Tensor, str, bytes, int, float, type(None))
    opaque = any(not isinstance(leaf, plain) for leaf in leaves(batch.whole))
    return None if opaque else leading_size(batch.whole)


def take(batch: Batch, index: slice | list[int] | Tensor) -> Batch:
    """Some samples of a batch."""
    return map_batch(lambda t: t[index], batch)


def few_samples(batch: Batch, count: int) -> Batch:
    """The first samples of a batch, or the whole where its layout is not plain."""
    if cut_length(batch) is None:
        return batch
    return take(batch, slice(0, count))


def map_batch(function: Callable[[Tensor], Tensor], batch: Batch) -> Batch:
    """Apply `function` to every tensor of a batch."""
    parts = (batch.whole, batch.inputs, batch.targets)
    mapped = (map_nested(function, part) for part in parts)
    return Batch(batch.index, *mapped, stand_in=batch.stand_in)


def _check_dense(tensor: Tensor) -> None:
    if tensor.is_nested or tensor.layout is not torch.strided:
        kind = "nested" if tensor.is_nested else str(tensor.layout)
        raise DataError(
            f"the data hold a tensor that is not dense ({kind}): convert it with "
            "to_dense(), or pad it."
        )


def _source(data: Any, batch_size: int | None, any_batch: bool) -> Iterable[Any]:
    """The user's data as an iterable that starts anew each time."""
    if isinstance(data, Tensor) or (_all_tensors(data) and not any_batch):
        raise DataError(
            "data= is bare tensors: give the pair (inputs, targets) as a tuple, with "
            "batch_size= if they do not fit in one batch."
        )
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], Tensor):
        return _TensorBatches(*data, batch_size=batch_size)
    if isinstance(data, Dataset):
        if batch_size is None:
            raise DataError(
                "data= is a Dataset: pass batch_size=, or wrap it in a DataLoader."
            )
        return DataLoader(data, batch_size=batch_size)
    if batch_size is not None:
        raise DataError(
            "batch_size= is for tensors and Datasets; this data comes in batches already: "
            "leave it out, or set it in the DataLoader."
        )
    if not isinstance(data, Iterable) or isinstance(data, str | bytes | Mapping):
        raise DataError(
            f"data= is {type(data).__name__}: give a DataLoader, a list of batches, or "
            "a tuple of tensors (inputs, targets)."
        )
    # Not `iter(data) is data`: that starts a DataLoader, which draws random numbers.
    if isinstance(data, Iterator):
        raise DataError(
            "data= is an iterator that can be read only once: give a list of its batches "
            "or a DataLoader, since curvature needs many passes."
        )
    return data


def _all_tensors(data: Any) -> bool:
    is_list = isinstance(data, list) and bool(data)
    return is_list and all(isinstance(value, Tensor) for value in data)


@dataclass(frozen=True)
class _TensorBatches:
    """Inputs (nested tensors) and a target tensor, cut along their first dimension."""

    inputs: Any
    targets: Tensor
    batch_size: int | None

    def __post_init__(self) -> None:
        for tensor in tensors_in((self.inputs, self.targets)):
            _check_dense(tensor)
        count = self.targets.shape[0] if self.targets.ndim else 0
        lengths = {t.shape[0] if t.ndim else 0 for t in tensors_in(self.inputs)}
        if lengths != {count}:
            raise DataError(
                f"inputs have {sorted(lengths)} samples and targets {count}: give one "
                "target for each input."
            )
        if self.batch_size is not None and self.batch_size < 1:
            raise DataError(
                f"batch_size= is {self.batch_size}: give a positive number."
            )

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        count = self.targets.shape[0]
        step = self.batch_size or max(count, 1)
        for start in range(0, count, step):
            rows = slice(start, start + step)
            yield (
                map_nested(lambda t, rows=rows: t[rows], self.inputs),
                self.targets[rows],
            )
