"""Checkpoints as trainers write them: files and folders, which are data and never run."""

from flatgauge.checkpoints.loading import load_weights as load_weights
from flatgauge.checkpoints.loading import saved_arguments as saved_arguments
from flatgauge.checkpoints.places import Checkpoint as Checkpoint
from flatgauge.checkpoints.places import find_checkpoints as find_checkpoints
from flatgauge.checkpoints.places import step_of as step_of
from flatgauge.checkpoints.reading import StandIn as StandIn
