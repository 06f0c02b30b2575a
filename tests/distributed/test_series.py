"""Series and callbacks in a training by several processes."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import flatgauge as fg
from flatgauge.integrations.monitor import FlatnessMonitor

TRACE = "hessian-trace"


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(3, 3).double()


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn(4, 2, 3, generator=random, dtype=torch.float64)
    return [(one, torch.tensor([0, 2])) for one in inputs]


def measured(rank: int, count: int, folder: str) -> tuple[list[float | None], bool]:
    """What a process gets, and whether something new was measured."""
    place, own = Path(folder), batches()[rank::count]
    store = place / "store"
    before = {one: one.stat().st_mtime_ns for one in store.glob("*.json")}
    found = fg.series(network(), own, place / "ck", TRACE, store=store)
    torch.distributed.barrier()
    after = {one: one.stat().st_mtime_ns for one in store.glob("*.json")}
    return [one.report[TRACE].value for one in found.points], before != after


def test_the_first_process_stores_and_all_go_on_together(pair, tmp_path):
    (tmp_path / "ck").mkdir()
    for step in (1, 2, 3):
        state = {name: step * one for name, one in network().state_dict().items()}
        torch.save(state, tmp_path / "ck" / f"{step}.pt")
    alone = fg.series(
        network(), batches(), tmp_path / "ck", TRACE, store=tmp_path / "alone"
    )
    expected = [one.report[TRACE].value for one in alone.points]
    (one, new), (other, _) = pair(measured, str(tmp_path))
    assert new
    torch.testing.assert_close(one, expected)
    assert one == other
    assert len(list((tmp_path / "store").iterdir())) == 3
    again = pair(measured, str(tmp_path))
    assert again == [(one, False), (other, False)]
    next((tmp_path / "store").glob("2.pt*")).unlink()
    (filled, new), _ = pair(measured, str(tmp_path))
    assert new
    torch.testing.assert_close(filled, expected)


def watched(rank: int, count: int) -> list[str]:
    """What the first process logs; the other one trains on."""
    if rank:
        return []
    monitor = FlatnessMonitor(batches(), TRACE, every=1, share=0.99)
    monitor.start()
    monitor._started -= 1e6
    return list(monitor(network(), 1))


def test_one_process_measures_by_itself(pair):
    assert pair(watched) == [[f"flatness/{TRACE}"], []]
