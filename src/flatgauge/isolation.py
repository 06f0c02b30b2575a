"""Working on a user's model without leaving a trace.

We measure on a private copy of the model, and every pass runs inside `isolated`, which
gives back the global random state and torch's global switches as they were, also after
an exception or Ctrl-C.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader

from flatgauge.errors import ModelError


def private_copy(model: nn.Module) -> nn.Module:
    """A deep copy that shares nothing with `model` and carries no gradients.

    Raises:
        ModelError: if the model cannot be copied.
    """
    # torch refuses to copy tensors with a history, such as the cached weight that the
    # old weight_norm leaves on its module: those are handed to deepcopy ready-made.
    cached = {
        id(value): value.detach().clone()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and value.grad_fn is not None
    }
    try:
        twin = copy.deepcopy(model, cached)
    except Exception as error:
        raise ModelError(
            f"the model could not be copied ({type(error).__name__}: {error}): "
            "flatgauge measures a private copy so that yours stays as it is; make "
            "copy.deepcopy(model) work first."
        ) from error
    for parameter in twin.parameters():
        parameter.grad = None
    return twin


@contextmanager
def isolated(
    device: torch.device, data: object = None, recurrent: bool = False, seed: int = 0
) -> Iterator[None]:
    """Fixed random states, kernels with second derivatives; all put back at the end.

    Args:
        device: where the model lives; its random state is saved if it is a GPU.
        data: a DataLoader, whose own generators are put back too.
        recurrent: replace fused recurrent kernels by differentiable ones.
        seed: the state that shuffling and random layers see inside.
    """
    with ExitStack() as stack:
        stack.enter_context(_random_states_kept(device, data, seed))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(_attention_fast_path_off())
        if recurrent:
            stack.enter_context(_fused_kernels_off())
        yield


@contextmanager
def _random_states_kept(
    device: torch.device, data: object, seed: int
) -> Iterator[None]:
    generators = [torch.default_generator, *_own_generators(data)]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    states = [generator.get_state() for generator in generators]
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            generators[-1].manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _own_generators(data: object) -> list[torch.Generator]:
    if not isinstance(data, DataLoader):
        return []
    owners = (data, data.sampler, data.batch_sampler)
    found = [getattr(owner, "generator", None) for owner in owners]
    unique = {id(one): one for one in found if isinstance(one, torch.Generator)}
    return list(unique.values())


@contextmanager
def _fused_kernels_off() -> Iterator[None]:
    # Not torch's own flags() contexts: those also set the precision of convolutions.
    cudnn, mkldnn = torch.backends.cudnn.enabled, torch._C._get_mkldnn_enabled()
    torch.backends.cudnn.enabled = False
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = cudnn
        torch._C._set_mkldnn_enabled(mkldnn)


@contextmanager
def _attention_fast_path_off() -> Iterator[None]:
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)
