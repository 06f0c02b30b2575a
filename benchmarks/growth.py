"""How time and memory grow with the number of samples."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

PROGRAM = """
import sys, resource, torch
sys.path.insert(0, ".")
import flatgauge as fg
from benchmarks.networks import NETWORKS
from benchmarks.timing import once
count, budget = int(sys.argv[2]), int(sys.argv[3])
network = NETWORKS[sys.argv[1]]
random = torch.Generator().manual_seed(1)
size = network.on_cpu[1]
batches = [network.draw(size, random) for _ in range(count // size)]
objective = fg.Objective(network.model(), batches)
objective.gradient()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
hessian = fg.Hessian(objective, memory_budget=budget)
vector = objective.gradient()
hessian @ vector
seconds = min(once(lambda: hessian @ vector, "cpu") for _ in range(3))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(seconds, (after - before) * 1024, hessian._kept is not None)
"""


def growth(network: str, samples: int, budget: int) -> dict[str, Any]:
    """In a process of its own, so that peaks of memory do not mix."""
    command = [sys.executable, "-c", PROGRAM, network, str(samples), str(budget)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, peak, kept = printed.stdout.split()[-3:]
    return {
        "network": network,
        "samples": samples,
        "budget": budget,
        "seconds": float(seconds),
        "peak": int(peak),
        "kept": kept == "True",
    }
