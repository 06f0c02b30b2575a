"""The work on a study in this process: claim a network, measure it, store it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flatgauge.checkpoint_series import Built, measured
from flatgauge.checkpoints import Checkpoint
from flatgauge.errors import FlatgaugeError, ProcessGroupError
from flatgauge.progress import Progress
from flatgauge.results import Report
from flatgauge.studies.presence import present
from flatgauge.studies.store import StudyStore

PAUSE = 0.05
"""Seconds between two looks at what others do."""
NETWORKS = "networks"


@dataclass(frozen=True)
class Work:
    """What is to be measured, and how; it can be sent to other processes.

    Attributes:
        build: makes an objective of a checkpoint.
        checkpoints: by key, in the order in which they are measured.
        requests: the measures.
        options: by measure name.
        seed: for every random draw, the same for all.
    """

    build: Callable[[Checkpoint], Built]
    checkpoints: Mapping[str, Checkpoint]
    requests: Sequence[str]
    options: Mapping[str, Mapping[str, Any]]
    seed: int

    @property
    def names(self) -> dict[str, str]:
        """The checkpoints' names by key."""
        return {key: one.name for key, one in self.checkpoints.items()}

    def report(self, key: str) -> Report:
        """Measure one network."""
        how = self.requests, self.options, self.seed
        return measured(self.checkpoints[key], key, self.build, *how)


def measure_next(store: StudyStore, work: Work, owner: str) -> bool:
    """Claim, measure and store a network; False where there is none to claim."""
    key = store.claim(owner)
    if key is None:
        return False
    try:
        report = work.report(key)
    except ProcessGroupError:
        raise
    except Exception as error:
        store.fail(key, reason_of(error))
    else:
        store.keep(key, report)
    return True


def reason_of(error: BaseException) -> str:
    """Why a network could not be measured."""
    if isinstance(error, FlatgaugeError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def measure_here(store: StudyStore, work: Work, progress: Progress | None) -> None:
    """Measure all networks in this process, beside any others that are at work.

    It ends when no network is left, be it that others had them in hand.
    """
    with present(store.workers) as owner:
        while left := told(store, work, progress):
            if not measure_next(store, work, owner) and left:
                time.sleep(PAUSE)


def told(store: StudyStore, work: Work, progress: Progress | None) -> int:
    """How many networks are left, after saying so."""
    left, count = store.left(), len(work.checkpoints)
    if progress is not None and left:
        progress(NETWORKS, count - left, count)
    return left
