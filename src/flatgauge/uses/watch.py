"""Watch a network run, and note what becomes of its parameters.

Memory is followed, not tensors: a view of a weight needs no rule, whatever made it. Only
operators that write entries to new memory are told apart: those that move entries, sums
and products with constants (which leave every entry where it is), and contractions.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from flatgauge.data import Batch
from flatgauge.memo import once_per_network
from flatgauge.nested import tensors_in
from flatgauge.objective import Objective
from flatgauge.shards import is_sharded
from flatgauge.uses.describe import Outputs, Seen, Tag, Use
from flatgauge.uses.entrywise import LOOKUPS, NORMALIZES, Terms, follow
from flatgauge.uses.matrices import Matrices, Uses
from flatgauge.uses.operands import ATTENTION, Operand, operands, recognize
from flatgauge.uses.places import Memory, Numbering, Places
from flatgauge.vectors import Params, map_tensors

BLIND = {
    "zeros_like", "ones_like", "empty_like", "full_like", "new_zeros", "new_ones",
    "new_empty", "new_full", "rand_like", "randn_like", "new_empty_strided",
    "_assert_tensor_metadata", "is_same_size", "sym_size", "sym_numel",
}  # fmt: skip
"""Operators that see no more than shapes."""


@once_per_network
def uses_of(objective: Objective) -> Uses:
    """What is seen of the parameters in one pass over all batches."""
    gathering = objective.network.gathering
    point = objective.parameters
    if gathering is None:
        point = map_tensors(in_own_memory, point)
    watcher = Watcher(point)

    def look(batch: Batch) -> None:
        watcher.inputs([batch.whole, batch.inputs, batch.targets])
        told = nullcontext() if gathering is None else gathering.telling(watcher.whole)
        with watcher, told:
            objective.evaluate(point, batch)

    objective.sum(look)
    watcher.join(objective.ranks.gathered(watcher.seen()))
    found = watcher.described()
    return Uses({n: one for n, one in found.items() if one.alone}, watcher.mixed())


@dataclass(frozen=True)
class Made:
    """What a block of memory was made of.

    Attributes:
        terms: products of weights whose sum it is.
        data: whether it depends on the inputs, be it as a choice between weights.
        tag: the rows of a contraction whose outputs it holds.
    """

    terms: Terms = ()
    data: bool = False
    tag: Tag | None = None


class Watcher(TorchDispatchMode):
    """Notes how operators use parameters.

    Args:
        parameters: as they are given to the network, each in memory of its own.
    """

    def __init__(self, parameters: Params):
        super().__init__()
        self._counts = {name: tensor.numel() for name, tensor in parameters.items()}
        self._known: dict[int, tuple[StorageWeakRef, Made, int]] = {}
        self._numbering = Numbering()
        self._outputs = Outputs()
        self._seen = {name: Seen() for name in parameters}
        self._names = {id(tensor): name for name, tensor in parameters.items()}
        self._own: dict[str, Made] = {}
        for tensor in parameters.values():
            if tensor.numel() and not is_sharded(tensor):
                self.whole(tensor, tensor)

    def whole(self, parameter: Tensor, memory: Tensor) -> None:
        """Take note of where a parameter is: of a sharded one, for the time being."""
        name = self._names.get(id(parameter))
        if name is None:
            return
        if name not in self._own:
            self._own[name] = Made(self._new(name, memory))
        self._learn(memory, self._own[name])

    def inputs(self, tree: Any) -> None:
        """Take note of what is given to the network next."""
        self.seen()
        alive = {k: v for k, v in self._known.items() if not v[0].expired()}
        self._known = alive
        for tensor in tensors_in(tree):
            self._learn(tensor, Made(data=True))

    def seen(self) -> dict[str, Seen]:
        """What was seen so far of each parameter."""
        self._outputs.tell_apart()
        self._outputs = Outputs()
        return self._seen

    def join(self, parts: list[dict[str, Seen]]) -> None:
        """Take over what several processes saw, in the order of their batches."""
        self._seen, *others = parts
        for other in others:
            for name, one in other.items():
                self._seen[name].join(one)

    def described(self, apart: bool = True) -> dict[str, Matrices]:
        """The parameters that are used as matrices.

        Args:
            apart: whether query, key and value of one matrix are told apart.
        """
        found = {
            name: seen.describe(self._counts[name], apart)
            for name, seen in self.seen().items()
        }
        return {name: one for name, one in found.items() if one is not None}

    def mixed(self) -> list[str]:
        """The parameters that are contracted, but not as matrices of rows and columns."""
        return [name for name, seen in self._seen.items() if seen.mixed]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operator and note what it does."""
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        given = {
            id(tensor): (tensor, made)
            for tensor in tensors_in([list(args), kwargs])
            if (made := self._made(tensor)) is not None
        }
        if given and func.overloadpacket.__name__ not in BLIND:
            self._note(func, args, tensors_in([output]), list(given.values()))
        return output

    def _note(
        self,
        func: Any,
        args: tuple[Any, ...],
        results: list[Tensor],
        given: list[tuple[Tensor, Made]],
    ) -> None:
        name, mutable = func.overloadpacket.__name__, func._schema.is_mutable
        memories = {_memory_of(tensor) for tensor, _ in given}
        if results and not mutable and {_memory_of(r) for r in results} <= memories:
            return
        data = any(made.data for _, made in given)
        weights = [made for _, made in given if made.terms]
        found = operands(name, args, results[0].ndim if results else 0)
        call = None
        if found is not None:
            call = self._contract(found, given)
        elif weights and not mutable and results and (not data or name in LOOKUPS):
            terms = follow(name, func, args, results[0], self._terms)
            if terms is not None:
                self._learn(results[0], Made(terms, data))
                if name in NORMALIZES:
                    self._leave(weights)
                return
            self._leave(weights)
        else:
            self._leave(weights)
            if ATTENTION in name:
                self._outputs.arrive((t, made.tag) for t, made in given)
        for result in results:
            before = self._made(result) if mutable else None
            if data and not (before is not None and before.data):
                self._learn(result, Made(data=True, tag=_tag(result, given, call)))
            elif not data:
                self._learn(result, Made(self._new(None, result)))

    def _contract(
        self, found: list[Operand], given: list[tuple[Tensor, Made]]
    ) -> tuple[int, tuple[int, ...]] | None:
        """Note the matrices among the operands; the number and marks of the call."""
        made = [(operand, self._made(operand.view)) for operand in found]
        own = {_memory_of(operand.view) for operand in found}
        self._leave([m for t, m in given if m.terms and _memory_of(t) not in own])
        call = None
        for operand, one in made:
            if one is None or not one.terms or not operand.view.numel():
                continue
            if one.data and not operand.batched:
                self._leave([one])
                continue
            uses = [u for product in one.terms for u in self._use(operand, product)]
            if operand.marks is not None and uses:
                call = (self._outputs.add(uses), operand.marks)
        if all(one is not None and one.data and not one.terms for _, one in made):
            self._outputs.arrive(
                (o.view, one.tag) for o, one in made if one is not None
            )
        return call

    def _use(
        self, operand: Operand, product: tuple[Memory, ...]
    ) -> list[tuple[Use, int]]:
        """Note what one product in an operand is used as."""
        uses = []
        for found in recognize(operand.view, product, self._numbering):
            seen = self._seen[found.name]
            if found.matrix is None:
                seen.alone = False
                seen.mixed |= found.mixed
                continue
            new = Use(found.matrix, found.outs, operand.table)
            use = seen.uses.setdefault(found.matrix.key, new)
            use.table &= operand.table
            if found.batch is not None and use.outs == found.outs:
                uses.append((use, found.batch * operand.view.shape[1]))
        return uses

    def _leave(self, weights: list[Made], mixed: bool = False) -> None:
        """Note that something else is done with weights, or a contraction without rows."""
        for made in weights:
            for product in made.terms:
                for memory in product:
                    for name in self._owners(memory):
                        self._seen[name].alone = False
                        self._seen[name].mixed |= mixed

    def _owners(self, memory: Memory) -> set[str]:
        if memory.cut.table is None:
            blocks = [self._numbering.block(memory.cut.offset)]
        else:
            blocks = self._numbering.blocks(memory.cut.table).unique().tolist()
        names = [self._numbering.owner(block)[0] for block in blocks]
        return {name for name in names if name is not None}

    def _terms(self, tensor: Tensor) -> Terms:
        made = self._made(tensor)
        return () if made is None else made.terms

    def _new(self, name: str | None, tensor: Tensor) -> Terms:
        """Numbers for the entries of a parameter, or of what was computed from some."""
        length = tensor.untyped_storage().nbytes() // tensor.element_size()
        return ((Memory.whole(length, self._numbering.add(name, length)),),)

    def _made(self, tensor: Tensor) -> Made | None:
        if tensor.layout is not torch.strided:
            return Made(data=True)
        known = self._known.get(_memory_of(tensor))
        if known is None or known[0].expired():
            return None
        _, made, width = known
        if made.terms and tensor.element_size() != width:
            # Two entries are one complex number here.
            self._leave([made], mixed=True)
            return Made(data=made.data)
        return made

    def _learn(self, tensor: Tensor, made: Made) -> None:
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        width = tensor.element_size()
        self._known[storage._cdata] = (StorageWeakRef(storage), made, width)


def in_own_memory(tensor: Tensor) -> Tensor:
    """The tensor in memory of its own, in the order of its entries; a copy if need be."""
    if tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def _memory_of(tensor: Tensor) -> int:
    """What tells blocks of memory apart; sparse tensors have none that counts."""
    if tensor.layout is not torch.strided:
        return id(tensor)
    return tensor.untyped_storage()._cdata


def _tag(
    result: Tensor,
    given: list[tuple[Tensor, Made]],
    call: tuple[int, tuple[int, ...]] | None,
) -> Tag | None:
    """The rows that a result holds: of this contraction, or of the one it goes on from."""
    if call is not None:
        number, marks = call
        return Tag.on(result, Places(tuple(result.shape), marks), number)
    tagged = [
        (tensor, made.tag)
        for tensor, made in given
        if made.tag is not None and tensor.shape == result.shape
    ]
    if len({tag.call for _, tag in tagged}) != 1:
        return None
    return tagged[0][1].copied(tagged[0][0], result)
