"""Many checkpoints with a target for each: which measure orders them by it."""

from flatgauge.studies.plan import Plan as Plan
from flatgauge.studies.result import Network as Network
from flatgauge.studies.result import Study as Study
from flatgauge.studies.running import run_study as run_study
from flatgauge.studies.running import study as study
from flatgauge.studies.table import Table as Table
from flatgauge.studies.table import find_table as find_table
from flatgauge.studies.table import read_table as read_table
