"""The work on a study by the machines of a Ray cluster.

This process claims and stores; tasks measure. Ray repeats a task whose worker died.
"""

from __future__ import annotations

import logging
import os
import time
from importlib import import_module
from typing import Any

from flatgauge.errors import OptionError
from flatgauge.progress import Progress
from flatgauge.results import Report
from flatgauge.studies.presence import present
from flatgauge.studies.store import MOST_DEATHS, StudyStore, died
from flatgauge.studies.working import PAUSE, Work, reason_of, told

AHEAD = 2
"""Tasks for each core of the cluster that are waiting or at work."""


def measure_on_ray(store: StudyStore, work: Work, progress: Progress | None) -> None:
    """Measure all networks on a Ray cluster: the one of RAY_ADDRESS, else this machine.

    Files must have the same paths on all machines.

    Raises:
        OptionError: if Ray is not installed.
    """
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise OptionError(
            "Ray is not installed: pip install 'flatgauge[ray]', or use processes of this "
            "machine (jobs=)."
        ) from error
    own = not ray.is_initialized()
    if own:
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    try:
        with present(store.workers) as owner:
            _measure(ray, store, work, owner, progress)
    finally:
        if own:
            ray.shutdown()


def _measure(
    ray: Any, store: StudyStore, work: Work, owner: str, progress: Progress | None
) -> None:
    remote = ray.remote(num_cpus=1, max_retries=MOST_DEATHS - 1)(_measured)
    sent, folder = ray.put(work), os.getcwd()
    running: dict[Any, str] = {}
    while told(store, work, progress):
        most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        while len(running) < most and (key := store.claim(owner)) is not None:
            running[remote.remote(sent, key, folder)] = key
        if not running:
            time.sleep(PAUSE)
            continue
        done, _ = ray.wait(list(running), timeout=PAUSE)
        for one in done:
            key = running.pop(one)
            try:
                found = ray.get(one)
            except ray.exceptions.RayTaskError as error:
                found = reason_of(error)
            except ray.exceptions.RayError:
                found = died()
            if isinstance(found, str):
                store.fail(key, found)
            else:
                store.keep(key, Report.from_dict(found))


def _measured(work: Work, key: str, folder: str) -> dict[str, Any] | str:
    """A network's report as plain data; why, where there is none."""
    import torch

    torch.set_num_threads(1)
    os.chdir(folder)
    try:
        return work.report(key).to_dict()
    except Exception as error:
        return reason_of(error)
