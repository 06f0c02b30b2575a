"""Working on a user's model without leaving a trace.

We measure on a private copy of the model, and every pass runs inside `isolated`, which
gives back the global random state and torch's global switches as they were, also after
an exception or Ctrl-C.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrizations
from torch.nn.utils.weight_norm import WeightNorm
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils.data import DataLoader

from flatgauge.composed import composed_kernels
from flatgauge.errors import ModelError
from flatgauge.nested import tensors_in
from flatgauge.vectors import graph_nodes

# Marks the copy of a tensor that a model keeps and that was computed from others.
STALE = "_flatgauge_stale"
# What torch calls around a checkpointed function; the second from torch 2.15 on.
CHECKPOINT_RECORDERS = (
    "_checkpoint_without_reentrant_generator",
    "_checkpoint_without_reentrant_generator_impl",
)


def private_copy(model: nn.Module, ready: dict[int, Any] | None = None) -> nn.Module:
    """A deep copy that shares nothing with `model` and carries no gradients.

    Args:
        model: what is copied.
        ready: copies of some of its parts, by id.

    Raises:
        ModelError: if the model cannot be copied.
    """
    # torch refuses to copy tensors with a history, such as the cached weight that the
    # old weight_norm leaves on its module: those are handed to deepcopy ready-made.
    cached = {
        id(tensor): tensor.detach().clone()
        for module in model.modules()
        for tensor in tensors_in(vars(module))
        if tensor.grad_fn is not None
    }
    stale = list(cached.values())
    cached |= ready or {}
    try:
        # A model that rebuilds itself draws random numbers.
        with _random_states_kept(torch.device("cpu")):
            twin = copy.deepcopy(model, cached)
    except Exception as error:
        raise ModelError(
            f"the model could not be copied ({type(error).__name__}: {error}): "
            "flatgauge measures a private copy so that yours stays as it is; make "
            "copy.deepcopy(model) work first."
        ) from error
    for parameter in twin.parameters():
        parameter.grad = None
    for tensor in stale:
        # So that a loss that reads one is found: see `check_private`.
        setattr(tensor.requires_grad_(), STALE, True)
    for module in twin.modules():
        # They may change gradients, and report to the user's own code.
        module._backward_hooks.clear()
        module._backward_pre_hooks.clear()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            # The same gradients, laid out in another way, which has no second ones.
            module.sparse = False
        # Grouped products of experts know neither float64 nor second derivatives.
        config: Any = getattr(module, "config", None)
        if hasattr(config, "_experts_implementation"):
            config._experts_implementation = "eager"
        # Fake quantization looks for its ranges at every call, in evaluation mode, too.
        disable: Any = getattr(module, "disable_observer", None)
        if callable(disable):
            disable()
    return twin


def check_private(total: Tensor, model: nn.Module) -> None:
    """Refuse a loss that was computed with the user's own parameters, not with ours.

    Raises:
        ModelError: if the graph of `total` leads to a parameter of `model`, or to a tensor
            that was computed from its parameters before.
    """
    own = {id(parameter): name for name, parameter in model.named_parameters()}
    for node in graph_nodes([total]):
        variable: Any = getattr(node, "variable", None)
        if getattr(variable, STALE, False):
            raise ModelError(
                "the model reads a tensor that it once computed from its parameters (an "
                f"attribute of shape {tuple(variable.shape)}), so they cannot be replaced "
                "there: compute it in forward."
            )
        name = own.get(id(variable))
        if name is not None:
            raise ModelError(
                f"the loss reads your model's own '{name}' (a closure over the model?), "
                "not the copy that is measured: use the model that forward= is given, "
                "and read parameters as attributes of their modules."
            )


@contextmanager
def isolated(
    device: torch.device,
    data: object = None,
    *,
    recurrent: bool = False,
    weight_norm: bool = False,
    tf32: bool = False,
    seed: int = 0,
    saving: AbstractContextManager[object] | None = None,
) -> Iterator[None]:
    """Fixed random states, full precision, kernels with second derivatives.

    Activation checkpointing is off: its recomputation would read other parameters than
    those of the pass, and the reentrant one knows no second derivatives.

    What was compiled runs as it was written, since compiled code has first derivatives
    only, and functions without second derivatives are replaced (`flatgauge.composed`).

    Derivatives are on inside, whatever the caller's context; all is put back at the end.

    Args:
        device: where the model lives; its random state is saved if it is a GPU.
        data: a DataLoader, whose own generators are put back too.
        recurrent: replace fused recurrent kernels by differentiable ones.
        weight_norm: replace the fused weight norm, whose second derivative is wrong.
        tf32: whether a GPU may round the factors of float32 products to 10 bits.
        seed: the state that shuffling and random layers see inside.
        saving: a context of what autograd is to save inside.
    """
    with ExitStack() as stack:
        if saving is not None:
            stack.enter_context(saving)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autocast(device.type, enabled=False))
        stack.enter_context(_random_states_kept(device, data, seed))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(attention_fast_path_off())
        stack.enter_context(_checkpointing_off())
        stack.enter_context(composed_kernels())
        stack.enter_context(_compilation_off())
        stack.enter_context(on_device(device))
        stack.enter_context(precision(device, tf32))
        if recurrent:
            stack.enter_context(_fused_kernels_off())
        if weight_norm:
            stack.enter_context(ComposedWeightNorm())
        yield


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """New streams and recordings belong to this GPU; nothing on a CPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def has_weight_norm(model: nn.Module) -> bool:
    """Whether weight normalization, old or new, is applied to some module."""
    return any(
        isinstance(module, parametrizations._WeightNorm)
        or any(isinstance(h, WeightNorm) for h in module._forward_pre_hooks.values())
        for module in model.modules()
    )


class ComposedWeightNorm(TorchFunctionMode):
    """Computes g v / ‖v‖ from operations whose derivatives are right.

    The fused kernel takes ‖v‖ as a constant in its second derivative (torch 2.13).
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") == "_weight_norm":
            v, g, *dim = args
            return v * (g / torch.norm_except_dim(v, 2, *dim))
        return func(*args, **(kwargs or {}))


@contextmanager
def _random_states_kept(
    device: torch.device, data: object = None, seed: int = 0
) -> Iterator[None]:
    generators = [torch.default_generator, *_own_generators(data)]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    states = [generator.get_state() for generator in generators]
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        for generator in generators:
            generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _own_generators(data: object) -> list[torch.Generator]:
    # Of which a process may read a share.
    data = getattr(data, "shared_out", data)
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


def _compilation_off() -> AbstractContextManager[object]:
    """Nothing where torch's compiler was never loaded."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


@contextmanager
def _checkpointing_off() -> Iterator[None]:
    """What `torch.utils.checkpoint.checkpoint` looks up, however users imported it."""
    torch_checkpoint: Any = checkpoint
    reentrant = torch_checkpoint.CheckpointFunction
    recorders = {
        name: vars(torch_checkpoint)[name]
        for name in CHECKPOINT_RECORDERS
        if name in vars(torch_checkpoint)
    }
    # torch's class inherits `apply`; inside another pass it is ours already.
    own = vars(reentrant).get("apply")
    reentrant.apply = staticmethod(lambda function, _, *args: function(*args))
    vars(torch_checkpoint).update(dict.fromkeys(recorders, _record_nothing))
    try:
        yield
    finally:
        vars(torch_checkpoint).update(recorders)
        if own is None:
            del reentrant.apply
        else:
            reentrant.apply = own


def _record_nothing(*_: Any, **__: Any) -> Iterator[None]:
    """Nothing before the function and nothing after it: torch resumes this twice."""
    yield


@contextmanager
def precision(device: torch.device, tf32: bool = False) -> Iterator[None]:
    """How float32 matrices are multiplied and convolved, for the time being.

    Users may have allowed GPUs to round factors to 10 bits and CPUs to 7; we do so only
    where TF32 was asked for, on a GPU.
    """
    backends: Any = torch.backends
    kind = backends.cudnn if device.type == "cuda" else backends.mkldnn
    matmul = backends.cuda.matmul if device.type == "cuda" else kind.matmul
    places = [matmul, kind.conv, kind.rnn]
    wanted = "tf32" if tf32 and device.type == "cuda" else "ieee"
    # Only what must change: a value that is put back no longer follows its parent's.
    fine = (wanted, "none") if device.type == "cpu" else (wanted,)
    before = {p: p.fp32_precision for p in places if p.fp32_precision not in fine}
    try:
        for place in before:
            place.fp32_precision = wanted
        yield
    finally:
        for place, own in before.items():
            place.fp32_precision = own


@contextmanager
def attention_fast_path_off() -> Iterator[None]:
    """Run nn.MultiheadAttention as written, not as one fused operator."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)
