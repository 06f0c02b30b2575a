"""Where numbers come from: the network, its parameters, the data and the machine."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from itertools import groupby

import torch

from flatgauge.fingerprints import data_fingerprint, parameters_fingerprint
from flatgauge.measurements import Provenance
from flatgauge.objective import Objective
from flatgauge.own_precision import own_precision
from flatgauge.vectors import size
from flatgauge.version import __version__


def provenance_of(objective: Objective, seed: int) -> Provenance:
    """What a number was measured on."""
    device = objective.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return Provenance(
        flatgauge=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        device=name,
        dtype=str(objective.dtype).removeprefix("torch."),
        model=type(objective.network.model).__name__,
        parameters=size(objective.parameters),
        fingerprint=parameters_fingerprint(objective),
        loss=objective.loss.name,
        loss_value=objective.value(),
        mode=objective.network.mode,
        samples=objective.sample_count,
        batches=len(objective.batch_sizes),
        seed=seed,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        derivatives=objective.derivatives,
        coupled=objective.coupled,
        batch_sizes=_sizes(objective.batch_sizes) if objective.coupled else "",
        processes=objective.ranks.count,
        data=data_fingerprint(objective),
        precision=objective.precision,
        computed_in=_computed_in(objective),
        sharded=objective.sharded,
    )


def _computed_in(objective: Objective) -> str:
    """The coarsest floating type of the network, where its parameters are finer."""
    coarsest = own_precision(objective)
    return "" if coarsest == objective.dtype else str(coarsest).removeprefix("torch.")


def _sizes(sizes: tuple[int, ...]) -> str:
    """The sizes of batches in their order, such as "3 × 16, 1 × 2"."""
    runs = [(len(list(run)), size) for size, run in groupby(sizes)]
    return ", ".join(f"{count} × {size}" for count, size in runs)
