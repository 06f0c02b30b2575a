"""Processes whose tensors are on a GPU: one by NCCL, two that share it by gloo."""

from __future__ import annotations

import pytest
from support import shared_work
from support.processes import Processes, assert_same

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", params=[("nccl", 1), ("gloo", 2)], ids=str)
def on_a_gpu(request, tmp_path_factory):
    backend, count = request.param
    processes = Processes(count, tmp_path_factory.mktemp(backend), backend)
    yield processes
    processes.close()


@pytest.mark.parametrize(
    ("name", "how"),
    [("mlp", "uneven"), ("lenet", "uneven"), ("resnet", "uneven"), ("gpt2", "even")],
)
def test_the_default_set(on_a_gpu, name, how):
    arguments = name, how, (), {}, "cuda"
    alone = shared_work.measured(0, 0, *arguments)
    assert_same(alone, on_a_gpu(shared_work.measured, *arguments))
