"""Forward differentiation where warnings are errors, in a process that did none yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import torch, flatgauge as fg
data = torch.ones(2, 3), torch.tensor([0, 1])
objective = fg.Objective(torch.nn.Linear(3, 2), data)
fg.Hessian(objective, "reverse-over-forward") @ objective.parameters
"""


def test_no_warning_of_torch_gets_through():
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CODE],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
