"""Commands that torchrun starts several times, and what each process reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from flatgauge.cli.app import main
from flatgauge.cli.processes import LAUNCHED, own_share

NET = """
import torch
from torch import nn

def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)).double()

def data():
    torch.manual_seed(1)
    return [(torch.randn(n, 5).double(), torch.randint(0, 3, (n,))) for n in (4, 3, 4)]
"""


@pytest.fixture
def placed(monkeypatch):
    """This process as one of several."""

    def place(rank: int, count: int) -> None:
        monkeypatch.setenv(LAUNCHED, "test")
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(count))

    return place


def together(placed, data, size, count, read):
    """What all processes read, one after the other."""
    found = []
    for rank in range(count):
        placed(rank, count)
        found += read(own_share(data, size))
    return found


@pytest.mark.parametrize("count", [2, 3, 5])
def test_tensors_are_shared_out_by_whole_batches(placed, count):
    pair = (torch.arange(11.0), torch.arange(11))
    read = together(placed, pair, 3, count, lambda own: [own[1].tolist()])
    assert [row for part in read for row in part] == list(range(11))
    assert all(len(part) % 3 == 0 for part in read if 10 not in part)


def test_other_data_are_shared_out_in_order(placed):
    whole = TensorDataset(torch.arange(11.0), torch.arange(11))
    rows = together(placed, whole, 2, 3, lambda own: [int(one[1]) for one in own])
    assert rows == list(range(11))
    batches = [(torch.tensor([i]), torch.tensor([i])) for i in range(7)]
    for data in (batches, DataLoader(whole, 2)):
        seen = together(placed, data, None, 3, list)
        assert torch.equal(
            torch.cat([one[1] for one in seen]),
            torch.cat([one[1] for one in data]),
        )


def test_what_is_shared_out_already_stays(placed):
    whole = TensorDataset(torch.arange(4.0), torch.arange(4))
    sampler = DistributedSampler(whole, num_replicas=2, rank=1)
    loader = DataLoader(whole, 2, sampler=sampler)
    placed(1, 2)
    assert own_share(loader, None) is loader


def test_alone_everything_is_read():
    data = (torch.zeros(3), torch.zeros(3))
    assert own_share(data, 2) is data


def test_what_needs_no_model_is_done_by_the_first_process(placed, capsys):
    placed(1, 2)
    assert main(["list"]) == 0
    assert capsys.readouterr().out == ""
    placed(0, 2)
    assert main(["list"]) == 0
    assert "hessian-trace" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["measure", "--measure", "hessian-trace", "--measure", "fisher-rao-norm"],
        ["spectrum", "--k", "1", "--probes", "2", "--steps", "6"],
        ["symmetries"],
    ],
    ids=lambda command: command[0],
)
def test_commands_of_two_processes(tmp_path, command):
    (tmp_path / "net.py").write_text(NET)
    name, *options = command
    arguments = [name, "net.py:model", "net.py:data", *options, "--json"]
    alone = _run(tmp_path, ["-m", "flatgauge", *arguments, "one.json"])
    run = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "flatgauge"]
    both = _run(tmp_path, [*run, *arguments, "two.json"])
    assert both.replace("two.json", "one.json") == alone
    one, two = (
        json.loads((tmp_path / f"{n}.json").read_text()) for n in ("one", "two")
    )
    assert (one["provenance"]["processes"], two["provenance"]["processes"]) == (1, 2)
    for request, found in two["measurements"].items():
        known = one["measurements"][request]["value"]
        assert found["value"] == pytest.approx(known, rel=1e-10)


def _run(folder: Path, arguments: list[str]) -> str:
    source = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(source)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
