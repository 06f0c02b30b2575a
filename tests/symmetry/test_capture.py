"""A network is read once per objective, and reading leaves no trace."""

from __future__ import annotations

from collections import Counter
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from support.cases import CASES
from support.hidden import INPUTS, Hidden
from support.models import mlp
from torch import Tensor

import flatgauge as fg
from flatgauge.symmetry import capture


@pytest.fixture
def read(monkeypatch) -> Counter[str]:
    """How often a network is exported, and how often its weights are watched."""
    calls: Counter[str] = Counter()
    for name in ("export_graph", "Watcher"):
        own = getattr(capture, name)

        def counted(*given, own=own, name=name):
            calls[name] += 1
            return own(*given)

        monkeypatch.setattr(capture, name, counted)
    return calls


ONCE = {"export_graph": 1, "Watcher": 1}


@pytest.mark.parametrize("name", ["mlp", "resnet"])
def test_an_audit_reads_the_network_once(name, read):
    """For two variants of batch norm, and for the adversary."""
    found = fg.audit(CASES[name].objective(), "hessian-trace", elements=1)
    assert found.sharpened is not None
    assert read == ONCE


def test_what_was_read_serves_other_losses_and_options(read):
    objective = CASES["resnet"].objective()
    for batchnorm in ("joint", "eps-corrected", "eval-only", "parameters"):
        assert fg.symmetries(objective, batchnorm=batchnorm).batchnorm == batchnorm
    fg.symmetries(objective.with_loss("normalized-cross-entropy"))
    assert read == ONCE
    fg.symmetries(objective, output=lambda outputs: outputs)
    fg.symmetries(objective.at(objective.parameters))
    assert read == {"export_graph": 3, "Watcher": 3}


class Restless(Hidden):
    """Draws random numbers, and takes note of what it is run under."""

    seen: list[tuple[bool, bool]]

    def hidden(self, h: Tensor) -> Tensor:
        np.random.rand()  # noqa: NPY002
        torch.rand(())
        fast = torch.backends.mha.get_fastpath_enabled()
        self.seen.append((fast, torch.backends.cuda.flash_sdp_enabled()))
        return h.relu()


def numpy_state() -> tuple[bytes, int]:
    _, key, position, *_ = np.random.get_state()  # noqa: NPY002
    return key.tobytes(), position


@pytest.mark.parametrize("front_end", ["export", "dispatch"])
def test_the_walk_is_isolated(front_end, monkeypatch):
    def refuse(*_):
        raise RuntimeError("not exportable")

    if front_end == "dispatch":
        monkeypatch.setattr(capture, "export_graph", refuse)
    network = Restless()
    # Of the class, so that copies write to the same list.
    monkeypatch.setattr(Restless, "seen", [], raising=False)
    drawn, state = numpy_state(), torch.get_rng_state()
    group = fg.symmetries(network, INPUTS)
    assert group.front_end == front_end
    assert numpy_state() == drawn
    assert torch.equal(torch.get_rng_state(), state)
    assert set(Restless.seen) == {(False, False)}


def test_a_group_is_a_value():
    group = fg.symmetries(mlp(4, 8, 3), INPUTS)
    assert group.error < 1e-12
    with pytest.raises(FrozenInstanceError):
        group.error = 0.0
