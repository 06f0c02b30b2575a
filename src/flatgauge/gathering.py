"""Sharded models: modules get their weights for the time of their call only.

Every process has some rows of each parameter. Before a module runs, its parameters are
put together from the rows of all; autograd then keeps none of them, but a note from which
they are put together again in a backward pass. The derivative of putting together is to
add up and deal out, and the other way round, so that all derivatives of a sum over the
data of all processes are right, of any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from flatgauge.memory import Notes
from flatgauge.nested import tensors_in
from flatgauge.ranks import Ranks
from flatgauge.recompute import forwards_replaced, outermost_elements
from flatgauge.shards import cut_along, is_sharded
from flatgauge.vectors import Params

SHAPES_AND_KINDS = frozenset(
    """
    shape dtype device requires_grad ndim layout is_leaf is_cuda is_meta is_sparse
    is_nested is_quantized is_mkldnn itemsize nbytes grad_fn names size dim numel stride
    is_floating_point is_complex element_size is_contiguous get_device __len__ __hash__
    """.split()  # noqa: SIM905 (a column of words is easier to read)
)
# Entries of a tensor up to which it is put together with others.
SMALL = 2**16


class ReadOutside(Exception):
    """The model reads a sharded parameter outside of its unit: `name`."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


@final
class _Guard(TorchFunctionMode):
    """Sees to it that the model's own code meets no sharded parameter.

    Numbers that are read from one are those of this process's rows.
    """

    def __init__(self, parameters: Params):
        super().__init__()
        self._names = {id(t): n for n, t in parameters.items() if is_sharded(t)}
        self._aside = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Raise for what is more than a look at shapes and kinds."""
        kwargs = kwargs or {}
        if not self._aside and _what(func) not in SHAPES_AND_KINDS:
            for one in tensors_in([list(args), kwargs]):
                if id(one) in self._names:
                    raise ReadOutside(self._names[id(one)])
        return func(*args, **kwargs)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Inside, we read them ourselves."""
        before, self._aside = self._aside, True
        try:
            yield
        finally:
            self._aside = before


def _what(func: Any) -> str:
    """The name of a function, or of the attribute that is looked up."""
    return getattr(getattr(func, "__self__", func), "__name__", "")


@final
class Gathering(Notes):
    """Puts the parameters of a model together where they are used.

    Args:
        model: a private copy, whose parameters may be sharded.
        mesh: that they are cut along.
        ranks: the processes.
    """

    def __init__(self, model: nn.Module, mesh: Any, ranks: Ranks):
        self.mesh, self.ranks = mesh, ranks
        self._units = _units_of(model)
        # What was put together, how to do it again, its dtype and the sum of its entries.
        self._made: dict[
            int, tuple[StorageWeakRef, Callable[[], Tensor], torch.dtype, Tensor]
        ] = {}
        # Parameters that others than their own unit read.
        self._read_outside: set[str] = set()
        self._tell: Callable[[Tensor, Tensor], None] | None = None
        self._guard = _Guard({})

    def cut(self, tensor: Tensor) -> Tensor:
        """A parameter of which this process keeps its rows."""
        return tensor if is_sharded(tensor) else cut_along(tensor, self.mesh)

    @contextmanager
    def calls(self, parameters: Params) -> Iterator[None]:
        """Units inside are given whole parameters when they are called.

        Args:
            parameters: all that the model holds inside, by name.

        Raises:
            ReadOutside: where code of the model reads a sharded one.
        """
        self._guard = _Guard(parameters)
        stand_ins = forwards_replaced(
            self._units, lambda name, bare: partial(self._call, name, bare)
        )
        with self._guard, stand_ins:
            yield

    def outside(self, names: list[str]) -> list[str]:
        """Those of no unit, or that are read by others than it."""
        return [
            name
            for name in names
            if name in self._read_outside
            or not any(name.startswith(f"{unit}.") for unit in self._units)
        ]

    def keep_whole(self, name: str) -> None:
        """From now on a parameter is put together for the whole call of the model."""
        self._read_outside.add(name)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """What autograd saves inside is no whole parameter."""
        try:
            with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack):
                yield
        finally:
            self._forget()

    def gathered(self, name: str, tensors: Params) -> Params:
        """The whole tensors, differentiable in the rows of this process.

        Small ones of one unit are put together at once: a message costs more than them.
        """
        with self._guard.aside():
            return self._gathered(name, tensors)

    def _gathered(self, name: str, tensors: Params) -> Params:
        found = dict(tensors)
        sharded = {n: t for n, t in tensors.items() if is_sharded(t)}
        small = [n for n, t in sharded.items() if t.numel() <= SMALL]
        groups = [[n] for n in sharded if n not in small]
        for group in [small, *groups] if small else groups:
            rows = [sharded[n].to_local() for n in group]
            shapes = tuple(sharded[n].shape for n in group)
            label = f"{name} {group[0]}"
            wholes = _Gather.apply(
                Cutting(label, shapes, self.ranks, self._note), *rows
            )
            for key, whole in zip(group, wholes, strict=True):
                found[key] = whole
                if self._tell is not None:
                    self._tell(sharded[key], whole)
        return found

    @contextmanager
    def telling(self, tell: Callable[[Tensor, Tensor], None]) -> Iterator[None]:
        """Inside, `tell` is given each sharded parameter and where it was put together."""
        self._tell = tell
        try:
            yield
        finally:
            self._tell = None

    def _call(self, unit: str, bare: nn.Module, *args: Any, **kwargs: Any) -> Any:
        state = self.gathered(unit, dict(bare.named_parameters()))
        return functional_call(bare, state, args, kwargs)

    def _note(self, whole: Tensor, again: Callable[[], Tensor]) -> None:
        self._forget()
        storage = whole.untyped_storage()
        found = StorageWeakRef(storage), again, whole.dtype, _sum_of_memory(whole)
        self._made[storage._cdata] = found

    def _forget(self) -> None:
        """Let go of rows whose whole tensor is gone."""
        self._made = {k: v for k, v in self._made.items() if not v[0].expired()}

    def pack(self, tensor: Tensor) -> Any:
        """What autograd keeps of a tensor: of a whole parameter, a note."""
        if is_sharded(tensor) or tensor.is_sparse:
            return tensor
        found = self._made.get(tensor.untyped_storage()._cdata)
        if found is None:
            return tensor
        _, again, dtype, total = found
        other = tensor.dtype != dtype or tensor.is_conj() or tensor.is_neg()
        if other or not torch.equal(_sum_of_memory(tensor), total):
            # Its memory is read in another way, or was written to.
            return tensor
        layout = tensor.shape, tensor.stride(), tensor.storage_offset()
        return _Note(again, layout)

    def unpack(self, kept: Any) -> Tensor:
        """The tensor that was kept, put together again if need be."""
        if not isinstance(kept, _Note):
            return kept
        return kept.again().as_strided(*kept.layout)


def _sum_of_memory(tensor: Tensor) -> Tensor:
    """Of all entries in the memory of a tensor."""
    own = tensor.detach()
    count = own.untyped_storage().nbytes() // own.element_size()
    return own.as_strided((count,), (1,), 0).sum()


@dataclass(frozen=True)
class _Note:
    """What is kept in place of a whole parameter, or a view of it."""

    again: Callable[[], Tensor]
    layout: tuple[Any, ...]


@dataclass(frozen=True)
class Cutting:
    """How the rows of some tensors are dealt out: as torch.chunk deals them.

    Attributes:
        name: of what they belong to.
        shapes: of the whole tensors.
        ranks: the processes.
        note: is told of what is put together, and how to do it again.
    """

    name: str
    shapes: tuple[torch.Size, ...]
    ranks: Ranks
    note: Callable[[Tensor, Callable[[], Tensor]], None]

    def whole(self, *rows: Tensor) -> tuple[Tensor, ...]:
        """All rows, from those of each process."""
        padded = [
            _padded(one, self._each(shape))
            for one, shape in zip(rows, self.shapes, strict=True)
        ]
        lengths = [one.numel() for one in padded]
        own = torch.cat([one.reshape(-1) for one in padded])
        made = own.new_empty(self.ranks.count, own.numel())
        parts = list(made.unbind())
        self.ranks.exchange(
            f"gather {self.name}",
            lambda group: dist.all_gather(parts, own, group=group),
        )
        found = []
        for part, one, shape in zip(
            made.split(lengths, dim=1), rows, self.shapes, strict=True
        ):
            whole = part.reshape(-1, *shape[1:])[: shape[0]]
            if whole.untyped_storage().nbytes() != whole.nbytes:
                # Memory of its own tells it from others.
                whole = whole.clone()
            alone = replace(self, shapes=(shape,))
            self.note(whole, lambda alone=alone, one=one: alone.whole(one)[0])
            found.append(whole)
        return tuple(found)

    def dealt(self, *wholes: Tensor) -> tuple[Tensor, ...]:
        """This process's rows of the sums over processes."""
        if wholes[0].device.type == "cpu":
            return self._dealt_by_gloo(*wholes)
        count = self.ranks.count
        padded = [
            _padded(one, count * self._each(shape)).view(count, -1)
            for one, shape in zip(wholes, self.shapes, strict=True)
        ]
        parts = list(torch.cat(padded, dim=1).unbind())
        own = torch.empty_like(parts[0])
        self.ranks.exchange(
            f"deal {self.name}",
            lambda group: dist.reduce_scatter(own, parts, group=group),
        )
        rows = own.split([one.shape[1] for one in padded])
        return tuple(
            one.view(-1, *shape[1:])[: len(self._own(shape))]
            for one, shape in zip(rows, self.shapes, strict=True)
        )

    def _dealt_by_gloo(self, *wholes: Tensor) -> tuple[Tensor, ...]:
        """It adds up all rows faster than some of them."""
        total = torch.cat([one.reshape(-1) for one in wholes])
        self.ranks.exchange(
            f"deal {self.name}", lambda group: dist.all_reduce(total, group=group)
        )
        sums = total.split([one.numel() for one in wholes])
        found = []
        for one, shape in zip(sums, self.shapes, strict=True):
            own = self._own(shape)
            found.append(one.view(shape)[own.start : own.stop].clone())
        return tuple(found)

    def _each(self, shape: torch.Size) -> int:
        """The rows of a process, but for the last ones'."""
        return -(-shape[0] // self.ranks.count)

    def _own(self, shape: torch.Size) -> range:
        start = min(self._each(shape) * self.ranks.rank, shape[0])
        return range(start, min(start + self._each(shape), shape[0]))


def _padded(tensor: Tensor, rows: int) -> Tensor:
    if len(tensor) == rows:
        return tensor.contiguous()
    padded = tensor.new_zeros(rows, *tensor.shape[1:])
    padded[: len(tensor)] = tensor
    return padded


@final
class _Gather(torch.autograd.Function):
    """Rows of each ↦ all rows; each process goes on with a copy of its own."""

    @staticmethod
    def forward(ctx: Any, cutting: Cutting, *rows: Tensor) -> Any:
        ctx.cutting = cutting
        return cutting.whole(*(one.detach() for one in rows))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        return None, *_Deal.apply(ctx.cutting, *slopes)


@final
class _Deal(torch.autograd.Function):
    """The transpose: a whole tensor of each ↦ its own rows of their sum."""

    @staticmethod
    def forward(ctx: Any, cutting: Cutting, *wholes: Tensor) -> Any:
        ctx.cutting = cutting
        return cutting.dealt(*(one.detach() for one in wholes))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        return None, *_Gather.apply(ctx.cutting, *slopes)


def _units_of(model: nn.Module) -> dict[str, nn.Module]:
    """What is put together at a time: blocks, and other modules that hold parameters.

    Blocks are the elements of the outermost nn.ModuleList and nn.Sequential. Of modules
    around them, their own parameters are no unit.
    """
    found = outermost_elements(model)
    for name, module in model.named_modules():
        around = not name or any(one.startswith(f"{name}.") for one in found)
        inside = any(name == one or name.startswith(f"{one}.") for one in found)
        if module._parameters and not around and not inside:
            found[name] = module
    return found
