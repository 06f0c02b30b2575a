"""Results for other people's tools.

A format is one file here: `SUFFIXES`, and `write(result, path)`, which is found by the
suffix of a file's name. `TABLE = True` says that it is made of rows, and nothing without.
"""

from flatgauge.exports.tabular import Tabular as Tabular
from flatgauge.exports.tabular import formats as formats
