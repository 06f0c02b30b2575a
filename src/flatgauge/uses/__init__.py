"""As which matrices a network uses its parameters: `uses_of` finds it, `Matrices` says it.

Where it is decided:

- which operand of an operator is a matrix, and which of a parameter's entries are its rows
  and columns: `operands`;
- what all uses of one parameter together make of it, and when query, key and value are
  matrices of their own: `describe`.

The rest follows weights until they get there: `watch` goes by the memory that operators
write, `entrywise` knows those that move or combine entries, and `places` the numbers that
entries have.
"""

from flatgauge.uses.matrices import Matrices as Matrices
from flatgauge.uses.matrices import Matrix as Matrix
from flatgauge.uses.matrices import Uses as Uses
from flatgauge.uses.watch import Watcher as Watcher
from flatgauge.uses.watch import in_own_memory as in_own_memory
from flatgauge.uses.watch import uses_of as uses_of
