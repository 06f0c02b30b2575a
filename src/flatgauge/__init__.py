"""Measure how flat a minimum is, in ways that reparametrization does not change."""

from flatgauge.errors import FlatgaugeError as FlatgaugeError
from flatgauge.version import __version__ as __version__
