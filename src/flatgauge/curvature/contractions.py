"""Which parameters are matrices: used in linear maps, convolutions and embeddings.

Node-wise measures treat such a tensor as one matrix of row and column units, or as
several, by how the network uses it on any of its batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from flatgauge.data import Batch
from flatgauge.memo import once_per_network
from flatgauge.objective import Objective
from flatgauge.uses import Matrices, Watcher, in_own_memory
from flatgauge.vectors import map_tensors


@dataclass(frozen=True)
class Contractions:
    """What the parameters of an objective are used as.

    Attributes:
        matrices: those that are used as matrices, and as nothing else.
        mixed: those that are contracted, but not as matrices of rows and columns.
    """

    matrices: dict[str, Matrices]
    mixed: list[str]

    @property
    def note(self) -> str:
        """One clause on what is contracted and yet no matrix, or nothing."""
        if not self.mixed:
            return ""
        names = ", ".join(f"'{name}'" for name in self.mixed)
        return (
            f"Left out, since no matrix of rows and columns expresses its use: {names}."
        )


@once_per_network
def contractions(objective: Objective) -> Contractions:
    """What is seen in one pass over all batches."""
    point = map_tensors(in_own_memory, objective.parameters)
    watcher = Watcher(point)

    def look(batch: Batch) -> None:
        watcher.inputs([batch.whole, batch.inputs, batch.targets])
        with watcher:
            objective.evaluate(point, batch)

    objective.sum(look)
    found = watcher.described()
    return Contractions(
        {name: one for name, one in found.items() if one.alone}, watcher.mixed()
    )
