"""The scaling rules of ATen operators, by family.

To teach flatgauge a new operator, write one function with `@scale_rule("ns::name")` in
the family it belongs to, in a new file here, or in your own code. `elementwise.py` has the
shortest examples.
"""

import importlib
import pkgutil

from flatgauge.symmetry.rules.registry import find_rule as find_rule
from flatgauge.symmetry.rules.registry import scale_rule as scale_rule

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
