"""The default set of measures in units of one gradient, with each measure's share."""

from __future__ import annotations

from typing import Any

import flatgauge as fg
from benchmarks.networks import NETWORKS
from benchmarks.timing import once


def default_set(
    name: str, device: str, precision: str, samples: int = 10_000, batch: int = 1000
) -> dict[str, Any]:
    """One run over the whole data, and the gradient before and after it."""
    network = NETWORKS[name]
    batches = network.batches(device, samples, batch)
    objective = fg.Objective(network.model().to(device), batches, precision=precision)
    objective.gradient()
    gradients = [once(objective.gradient, device) for _ in range(2)]
    reports: list[fg.Report] = []
    taken = once(lambda: reports.append(fg.measure(objective)), device)
    gradients += [once(objective.gradient, device) for _ in range(2)]
    gradient = sorted(gradients)[len(gradients) // 2]
    rows = reports[0].measurements
    return {
        "network": name,
        "device": device,
        "precision": precision,
        "samples": samples,
        "seconds": taken,
        "gradients": taken / gradient,
        "shares": {key: one.cost.seconds / taken for key, one in rows.items()},
        "statuses": {key: one.status.name for key, one in rows.items()},
    }
