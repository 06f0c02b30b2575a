"""What an objective averages over: samples, weighted samples, or batches as given."""

from flatgauge.units.survey import survey

__all__ = ["survey"]
