"""What an objective averages over: samples, weighted samples, or batches as given."""

from flatgauge.units.survey import Survey, survey

__all__ = ["Survey", "survey"]
