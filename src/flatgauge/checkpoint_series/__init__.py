"""Many checkpoints of one run or of many: measured one by one, stored as they come."""

from flatgauge.checkpoint_series.result import Point as Point
from flatgauge.checkpoint_series.result import Series as Series
from flatgauge.checkpoint_series.running import Built as Built
from flatgauge.checkpoint_series.running import Recipe as Recipe
from flatgauge.checkpoint_series.running import measure_series as measure_series
from flatgauge.checkpoint_series.running import measured as measured
from flatgauge.checkpoint_series.running import series as series
