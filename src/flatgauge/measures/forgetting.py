"""Vectors of earlier measures, forgotten where they would fill the memory.

Five replicates of a diagonal and their mean are six vectors, which at a billion parameters
are 25 GiB: a measure that asks for them again computes them again.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import is_dataclass

from flatgauge.memo import Facts
from flatgauge.memory import memory_budget
from flatgauge.nested import tensors_in
from flatgauge.objective import Objective
from flatgauge.shards import own_entries

# The part of a memory budget that they may fill.
SHARE = 0.05


def forget_vectors(facts: Facts, objective: Objective) -> None:
    """Forget those used longest ago, until the rest fits its part of the memory.

    Where several processes measure together, all forget the same, since what one of them
    computes again takes all of them.
    """
    held = bytes_held(facts, objective)
    room = SHARE * memory_budget(objective.device, objective.memory)
    left, count = sum(held.values()), 0
    for size in held.values():
        if left <= room:
            break
        left, count = left - size, count + 1
    most = -objective.ranks.least(-count)
    for key in list(held)[:most]:
        del facts[key]


def bytes_held(facts: Facts, objective: Objective) -> dict[Hashable, int]:
    """The bytes of the facts that hold tensors other than the objective's own, by key."""
    seen = {id(tensor) for tensor in objective.parameters.values()}
    held = {}
    for key, (fact, _) in facts.items():
        parts = tensors_in(vars(fact) if is_dataclass(fact) else fact)
        new = {id(part): part for part in parts if id(part) not in seen}
        seen |= new.keys()
        if new:
            sizes = (own_entries(one) * one.element_size() for one in new.values())
            held[key] = sum(sizes)
    return held
