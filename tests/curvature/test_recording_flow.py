"""What recordings do around CUDA, with a CUDA that only pretends."""

from __future__ import annotations

import time
from contextlib import nullcontext

import pytest
import torch
from support.cases import CASES, assert_close, random_vector

import flatgauge as fg
from flatgauge.curvature.routes import kept_cuda_graph, recording
from flatgauge.curvature.routes.double_backward import DoubleBackward
from flatgauge.curvature.routes.kept_cuda_graph import KeptCudaGraph
from flatgauge.curvature.routes.recording import Recording, RecordingContext, record
from flatgauge.vectors import copied, copy_into, scale


class Stream:
    """Computes `busy` seconds after the launches."""

    busy = 0.0

    def __init__(self, device=None):
        pass

    def wait_stream(self, other):
        pass

    def synchronize(self):
        # Even a pause of nothing hands the processor to others, for as long as they like.
        if self.busy:
            time.sleep(self.busy)


class Graph:
    """Replays what the test says; its capture can end badly."""

    work = staticmethod(lambda: None)
    broken = False
    captured = 0

    def capture_begin(self, **options):
        assert set(options) == {"pool", "capture_error_mode"}

    def capture_end(self):
        Graph.captured += 1
        if self.broken:
            raise RuntimeError("capture was invalidated")

    def replay(self):
        Graph.work()


@pytest.fixture
def objective(monkeypatch):
    here = Stream()
    pretended = {
        "Stream": Stream,
        "CUDAGraph": Graph,
        "stream": lambda stream: nullcontext(),
        "current_stream": lambda *device: here,
        "graph_pool_handle": lambda: (0, 0),
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": lambda mode: None,
    }
    for name, pretence in pretended.items():
        monkeypatch.setattr(torch.cuda, name, pretence)
    monkeypatch.setattr(recording, "cached_memory", lambda device: 0)
    monkeypatch.setattr(recording, "free_memory", lambda device: 1)
    monkeypatch.setattr(recording, "_idle", {})
    monkeypatch.setattr(Graph, "captured", 0)

    def noted(product, context):
        work = staticmethod(lambda: copy_into(context.image, product(context.vector)))
        monkeypatch.setattr(Graph, "work", work)
        return record(product, context)

    monkeypatch.setattr(kept_cuda_graph, "record", noted)
    return CASES["mlp"].objective()


def test_a_recorded_product_is_right(objective):
    route = KeptCudaGraph(DoubleBackward())
    vector = random_vector(objective)
    truth = fg.Hessian(objective, "double-backward") @ vector
    hessian = fg.Hessian(objective, route)
    for _ in range(2):
        assert_close(hessian @ vector, truth, 1e-12)
    assert hessian._ready().replays
    assert Graph.captured == 1


def test_where_it_cannot_be_recorded_it_goes_on_without(objective, monkeypatch):
    monkeypatch.setattr(Graph, "broken", True)
    hessian = fg.Hessian(objective, KeptCudaGraph(DoubleBackward()))
    vector = random_vector(objective)
    truth = fg.Hessian(objective, "double-backward") @ vector
    for _ in range(2):
        assert_close(hessian @ vector, truth, 1e-12)
    assert not hessian._ready().replays
    assert hessian.plan.to_dict()["failures"] == {
        "double-backward, kept CUDA graph": "capture was invalidated"
    }


def test_a_replay_that_gives_something_else_is_refused(objective):
    context = RecordingContext.of(objective)
    with pytest.raises(RuntimeError, match="its product is off by 1"):
        record(lambda vector: vector, context)


def test_a_capture_that_fails_says_what_the_product_said(objective, monkeypatch):
    monkeypatch.setattr(Graph, "broken", True)
    calls = []

    def product(vector):
        calls.append(vector)
        if len(calls) == 2:
            raise RuntimeError("not while it is captured")
        return vector

    context = RecordingContext.of(objective)
    with pytest.raises(RuntimeError, match="not while it is captured"):
        record(product, context)
    assert Graph.captured == len(context.graphs) == 1
    with pytest.raises(RuntimeError, match="was invalidated"):
        record(lambda vector: vector, context)


def test_living_desks_have_streams_of_their_own(objective):
    first, second = RecordingContext.of(objective), RecordingContext.of(objective)
    stream = first.stream
    assert second.stream is not stream
    del first
    assert RecordingContext.of(objective).stream is stream


def test_it_declines_where_launches_do_not_show(objective, monkeypatch):
    route, batch = KeptCudaGraph(DoubleBackward()), objective.first_batch()
    product = route.inner.prepare(objective, batch)
    monkeypatch.setattr(Stream, "busy", 0.2)
    assert "launches do not show" in route.tried(objective, batch, product, 20)[1]


@pytest.mark.parametrize(("expect", "declined"), [(1, True), (1000, False)])
def test_it_declines_what_saves_less_than_it_takes(
    objective, monkeypatch, expect, declined
):
    route, batch = KeptCudaGraph(Slow()), objective.first_batch()
    vector = random_vector(objective)
    truth = fg.Hessian(objective, "double-backward") @ vector
    monkeypatch.setattr(Slow, "seconds", 0.05)

    def instant(recorded, given):
        copy_into(recorded.context.vector, given)
        with monkeypatch.context() as patch:
            patch.setattr(Slow, "seconds", 0.0)
            recorded.graph.replay()
        return copied(recorded.context.image)

    monkeypatch.setattr(Recording, "product", instant)
    inner = route.inner.prepare(objective, batch)
    recorded, reason = route.tried(objective, batch, inner, expect)
    assert ("would save" in reason) == declined
    assert (recorded is None) == declined
    if recorded is not None:
        assert_close(scale(recorded(vector), 1 / len(batch.targets)), truth, 1e-12)


class Slow(DoubleBackward):
    """Takes so many seconds for each product, but not for a replay."""

    seconds = 0.0

    def prepare(self, objective, batch):
        inner = super().prepare(objective, batch)

        def product(vector):
            time.sleep(self.seconds)
            return inner(vector)

        return product
