from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from support.untouched import disturb, global_state
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from flatgauge.errors import ModelError
from flatgauge.isolation import isolated, private_copy

CPU = torch.device("cpu")


def test_all_is_put_back():
    before = global_state()
    with isolated(CPU, recurrent=True):
        disturb()
        inside = global_state()
    assert inside != before
    assert global_state() == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_all_is_put_back_after_an_exception(error):
    def fail():
        with isolated(CPU, recurrent=True):
            disturb()
            raise error

    before = global_state()
    with pytest.raises(error):
        fail()
    assert global_state() == before


@pytest.mark.gpu
def test_random_state_of_a_gpu():
    torch.rand(1, device="cuda")
    before = global_state()
    with isolated(torch.device("cuda")):
        first = float(torch.rand(1, device="cuda"))
    with isolated(torch.device("cuda:0")):
        assert float(torch.rand(1, device="cuda")) == first
    with torch.autocast("cuda"), isolated(torch.device("cuda")):
        matrix = torch.ones(2, 2, device="cuda")
        assert (matrix @ matrix).dtype == torch.float32
    assert global_state() == before


def test_the_users_switches_are_put_back_as_they_were():
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with isolated(CPU):
            pass
        assert not torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_random_numbers_inside_follow_the_seed():
    def draw(seed):
        with isolated(CPU, seed=seed):
            return float(torch.rand(())), random.random(), float(np.random.rand())  # noqa: NPY002

    assert draw(0) == draw(0)
    assert all(a != b for a, b in zip(draw(0), draw(1), strict=True))


@pytest.mark.parametrize("where", ["loader", "sampler"])
def test_generators_of_a_loader_are_put_back_and_seeded(where):
    own = torch.Generator().manual_seed(5)
    data = TensorDataset(torch.arange(32))
    if where == "loader":
        loader = DataLoader(data, batch_size=32, shuffle=True, generator=own)
    else:
        loader = DataLoader(
            data, batch_size=32, sampler=RandomSampler(data, generator=own)
        )
    before = own.get_state()

    def order(seed):
        with isolated(CPU, loader, seed=seed):
            return next(iter(loader))[0].tolist()

    first = order(0)
    assert torch.equal(before, own.get_state())
    torch.rand(1, generator=own)
    assert order(0) == first
    assert order(1) != first


def test_derivatives_are_on_inside():
    for outer in (torch.no_grad, torch.inference_mode):
        with outer(), isolated(CPU):
            assert torch.is_grad_enabled()
            assert not torch.is_inference_mode_enabled()


def test_full_precision_inside():
    with torch.autocast("cpu", dtype=torch.bfloat16), isolated(CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_coarse_matrix_products_are_the_users_choice_alone():
    place = torch.backends.mkldnn.matmul
    torch.set_float32_matmul_precision("medium")
    try:
        with isolated(CPU, tf32=True):
            assert place.fp32_precision == "ieee"
        assert place.fp32_precision == "bf16"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


class TestPrivateCopy:
    """The copy shares nothing with the model."""

    def test_shares_no_memory_and_has_no_gradients(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        model(torch.randn(4, 2)).sum().backward()
        twin = private_copy(model)
        for ours, theirs in zip(twin.parameters(), model.parameters(), strict=True):
            assert ours.grad is None
            assert theirs.grad is not None
            assert ours.data_ptr() != theirs.data_ptr()
        for ours, theirs in zip(twin.buffers(), model.buffers(), strict=True):
            assert torch.equal(ours, theirs)
            assert ours.data_ptr() != theirs.data_ptr()

    def test_activations_kept_on_the_model_do_not_matter(self):
        class Keeper(nn.Linear):
            def forward(self, x):
                self.last = super().forward(x)
                self.all = {"list": [self.last], "none": None}
                return self.last

        model = Keeper(2, 2)
        model(torch.ones(1, 2))
        twin = private_copy(model)
        assert twin.all["list"][0] is twin.last
        assert twin.last.grad_fn is None
        assert model.last.grad_fn is not None

    def test_backward_hooks_are_dropped_and_forward_hooks_kept(self):
        model, seen = nn.Linear(1, 1), []
        model.register_full_backward_hook(lambda *_: seen.append("back"))
        model.register_full_backward_pre_hook(lambda *_: seen.append("pre"))
        model.register_forward_hook(lambda *_: seen.append("forward"))
        private_copy(model)(torch.ones(1, 1, requires_grad=True)).sum().backward()
        assert seen == ["forward"]
        model(torch.ones(1, 1, requires_grad=True)).sum().backward()
        assert seen == ["forward", "forward", "pre", "back"]

    def test_a_model_that_cannot_be_copied_is_refused(self):
        class Stubborn(nn.Linear):
            def __deepcopy__(self, memo):
                raise TypeError("no copies")

        with pytest.raises(
            ModelError, match=r"could not be copied .*no copies.*deepcopy"
        ):
            private_copy(Stubborn(1, 1))
