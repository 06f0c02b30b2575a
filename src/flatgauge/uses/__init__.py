"""How a network uses its parameters: as which matrices, and as what else."""

from flatgauge.uses.matrices import Matrices as Matrices
from flatgauge.uses.matrices import Matrix as Matrix
from flatgauge.uses.watch import Watcher as Watcher
from flatgauge.uses.watch import in_own_memory as in_own_memory
