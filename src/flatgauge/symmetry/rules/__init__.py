"""The scaling rules of ATen operators, by family.

To teach flatgauge a new operator, write one function with `@scale_rule("ns::name")` in
the family it belongs to (or in your own code). `elementwise.py` has the shortest
examples.
"""

from flatgauge.symmetry.rules import attention as _attention  # noqa: F401
from flatgauge.symmetry.rules import contraction as _contraction  # noqa: F401
from flatgauge.symmetry.rules import elementwise as _elementwise  # noqa: F401
from flatgauge.symmetry.rules import indexing as _indexing  # noqa: F401
from flatgauge.symmetry.rules import normalization as _normalization  # noqa: F401
from flatgauge.symmetry.rules import reduction as _reduction  # noqa: F401
from flatgauge.symmetry.rules import structural as _structural  # noqa: F401
from flatgauge.symmetry.rules.registry import find_rule as find_rule
from flatgauge.symmetry.rules.registry import scale_rule as scale_rule
