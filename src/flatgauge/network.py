"""The private copy of a user's model, as a function of named parameters and a batch."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from flatgauge.data import Batch
from flatgauge.errors import FlatgaugeError, ModelError, OptionError
from flatgauge.fsdp import (
    check_not_flattened,
    check_resharded,
    mesh_of,
    unsharded_twins,
)
from flatgauge.gathering import Gathering, ReadOutside
from flatgauge.isolation import has_weight_norm, private_copy
from flatgauge.nested import tensors_in
from flatgauge.placement import chosen_parameters, placement
from flatgauge.ranks import ALONE, Ranks
from flatgauge.recompute import blocks_of, recomputed
from flatgauge.shards import is_sharded, joined
from flatgauge.vectors import Params, graph_nodes, map_tensors

Forward = Callable[[nn.Module, Any], Any]
COARSE = (torch.float16, torch.bfloat16)


class Network:
    """f(θ, batch): a copy of the model whose chosen parameters can be replaced.

    Args:
        model: the user's module, which is copied.
        device: where the copy goes; the model's own device if None.
        dtype: its floating type, float32 or float64; the model's own if None.
        mode: "eval" or "train".
        params: a predicate on names; by default what requires gradients is chosen.
        forward: callable(model, batch) -> outputs, instead of our own call.
        checkpoint: whether blocks are computed again where derivatives are taken.
        ranks: the processes that a sharded model is shared by.

    Attributes:
        gathering: puts the parameters of a sharded model together; None for others.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        mode: str,
        params: Callable[[str], bool] | None,
        forward: Forward | None,
        checkpoint: bool = False,
        ranks: Ranks = ALONE,
    ):
        if not isinstance(model, nn.Module):
            raise ModelError(
                f"model= is {type(model).__name__}: give a torch.nn.Module."
            )
        check_not_flattened(model)
        check_resharded(model)
        mesh = mesh_of(model, ranks)
        # DDP gives the first process's buffers to all at every call.
        self._one_for_all = getattr(model, "broadcast_buffers", False)
        model = unwrapped(model)
        # What torch.compile was given.
        model = getattr(model, "_orig_mod", model)
        check_not_scripted(model)
        if mode not in ("eval", "train"):
            raise OptionError(f"mode= is '{mode}': use 'eval' or 'train'.")
        chosen = chosen_parameters(model, params)
        self.device, self.dtype = placement(chosen, device, dtype)
        ready = unsharded_twins(model) if mesh is not None else None
        self.model = private_copy(model, ready).to(device=self.device)
        # Not model.to(dtype=...), which drops the imaginary part of complex tensors.
        self.model._apply(lambda t: t.to(self.dtype) if t.is_floating_point() else t)
        self.model.requires_grad_(False)
        self.mode = mode
        _set_mode(self.model, mode)
        self.forward = forward
        self.causal = forward is None and _is_causal(model)
        self.recurrent = any(isinstance(m, nn.RNNBase) for m in self.model.modules())
        self.weight_norm = has_weight_norm(self.model)
        own = dict(self.model.named_parameters())
        self.parameters: Params = {name: own[name].detach() for name in chosen}
        self.ranks = ranks
        self.gathering = None if mesh is None else Gathering(self.model, mesh, ranks)
        if self.gathering is not None:
            if checkpoint:
                raise OptionError(
                    "checkpoint=True is not for sharded models yet: leave it out."
                )
            self.parameters = map_tensors(self.gathering.cut, self.parameters)
        self._bound = None if forward is None else _Bound(self.model, forward)
        self._watched: dict[int, str] = {}
        self._whole: Network | None = None
        self.checkpoint = checkpoint
        self._blocks = blocks_of(self.model) if checkpoint else {}
        settings: Any = getattr(self.model, "config", None)
        if checkpoint and hasattr(settings, "use_cache"):
            # Of keys and values, which blocks would hand on beside their outputs.
            settings.use_cache = False

    def share(self, ranks: Ranks) -> None:
        """See that all processes have the same model.

        Raises:
            ModelError: naming what differs.
        """
        if ranks.count == 1:
            return
        if self._one_for_all:
            for buffer in self.model.buffers():
                buffer.copy_(ranks.given_by(0, buffer.cpu()))
        first, *others = ranks.gathered(self._checksums())
        for rank, other in enumerate(others, 1):
            if other != first:
                both = first.keys() | other.keys()
                name = min(n for n in both if first.get(n) != other.get(n))
                advice = (
                    "give the model as DistributedDataParallel wraps it, which takes the "
                    "first process's"
                    if name in dict(self.model.named_buffers())
                    else "give every process the same model and weights"
                )
                raise ModelError(
                    f"'{name}' is not the same on rank {rank} as on rank 0: {advice}, or "
                    "pass process_group=False."
                )

    def _checksums(self) -> dict[str, tuple[Any, ...]]:
        """What tells models apart, by the name of a parameter or buffer."""
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        return {
            name: (name in self.parameters, str(tensor.dtype), *_checksum(tensor))
            for name, tensor in named
        }

    def model_at(self, params: Params) -> nn.Module:
        """A model of the user's class with these parameters, ready to train."""
        whole = {id(p): nn.Parameter(joined(p)) for p in self.model.parameters()}
        twin = private_copy(self.model, whole if self.gathering is not None else None)
        own = dict(twin.named_parameters())
        for name, value in params.items():
            own[name].data.copy_(joined(value))
            own[name].requires_grad_()
        return twin

    def whole(self) -> Network:
        """The same of which this process has all rows of every parameter."""
        if self.gathering is None:
            return self
        if self._whole is None:
            names = list(self.parameters)
            self._whole = self.with_model(self.model_at(self.parameters), names)
        return self._whole

    def with_model(
        self,
        model: nn.Module,
        names: list[str],
        dtype: torch.dtype | None = None,
        mode: str | None = None,
    ) -> Network:
        """The same treatment of another model, with the parameters of these names."""
        return Network(
            model,
            device=self.device,
            dtype=dtype or self.dtype,
            mode=mode or self.mode,
            params=set(names).__contains__,
            forward=self.forward,
            checkpoint=self.checkpoint,
            ranks=self.ranks,
        )

    @contextmanager
    def watched(self, on: bool) -> Iterator[None]:
        """If on, refuse parameters that the model reads past its own attributes.

        The model's own, which others replace, require gradients for that while: outputs
        that depend on them came by another way.
        """
        if not on:
            yield
            return
        own = dict(self.model.named_parameters())
        self._watched = {id(own[name]): name for name in self.parameters}
        try:
            for name in self.parameters:
                own[name].requires_grad_()
            yield
        finally:
            self._watched = {}
            self.model.requires_grad_(False)

    def saving(self) -> AbstractContextManager[None]:
        """Inside, autograd keeps no whole parameters of a sharded model."""
        return nullcontext() if self.gathering is None else self.gathering.saving()

    def recomputing(self) -> AbstractContextManager[None]:
        """Inside, blocks keep their inputs alone, where that was asked for."""
        return recomputed(self._blocks)

    def _check_reach(self, outputs: Any) -> None:
        """Raises ModelError, naming a parameter that could not be replaced."""
        for node in graph_nodes(tensors_in(outputs)):
            name = self._watched.get(id(getattr(node, "variable", None)))
            if name is not None:
                raise ModelError(
                    f"the model reads '{name}' through a reference of its own (a list or "
                    "a closure?), so it cannot be replaced: read it as an attribute of "
                    "its module."
                )

    def evaluate(self, params: Params, batch: Batch) -> tuple[Any, Any]:
        """The outputs at `params`, and the targets that belong to them."""
        state = dict(params)
        if self.mode == "train":
            # BatchNorm variants of the user's own may write to their buffers.
            buffers = self.model.named_buffers()
            state |= {name: buffer.clone() for name, buffer in buffers}
        try:
            outputs = self._outputs(state, batch)
        except FlatgaugeError:
            raise
        except Exception as error:
            shapes = [tuple(tensor.shape) for tensor in tensors_in(batch.inputs)[:3]]
            wide = self.dtype == torch.float64
            precision = " in float64, or pass dtype=torch.float32" if wide else ""
            raise ModelError(
                f"the model failed on batch {batch.index} with inputs of shape {shapes} "
                f"({type(error).__name__}: {error}): check that it runs on this batch"
                f"{precision}."
            ) from error
        if self._watched:
            self._check_reach(outputs)
        if self.forward is None:
            outputs, targets = self._align(_scores(outputs), batch.targets)
        else:
            targets = batch.targets
        if isinstance(outputs, Tensor) and outputs.dtype in COARSE:
            raise ModelError(
                f"the model returned {outputs.dtype}, too coarse for second derivatives: "
                "take casts and autocast out of its forward."
            )
        return outputs, targets

    def _outputs(self, state: Params, batch: Batch) -> Any:
        """What the model returns."""
        if self.gathering is None:
            return self._called(state, batch)
        own = dict(self.model.named_parameters()) | state
        while True:
            try:
                with self.gathering.calls(own):
                    outside = {
                        name: own[name] for name in self.gathering.outside([*own])
                    }
                    whole = self.gathering.gathered("model", outside)
                    return self._called(state | whole, batch)
            except ReadOutside as found:
                self.gathering.keep_whole(found.name)

    def _called(self, state: Params, batch: Batch) -> Any:
        if self._bound is not None:
            prefixed = {f"model.{name}": value for name, value in state.items()}
            return functional_call(self._bound, prefixed, (batch.whole,))
        arguments, keywords = _arguments(batch.inputs)
        return functional_call(self.model, state, arguments, keywords)

    def _align(self, outputs: Any, targets: Any) -> tuple[Any, Any]:
        """Shift a causal language model's scores against its token labels."""
        token_labels = (
            isinstance(targets, Tensor)
            and isinstance(outputs, Tensor)
            and not targets.is_floating_point()
            and targets.ndim == 2
            and outputs.ndim == 3
        )
        if self.causal and token_labels:
            return outputs[:, :-1], targets[:, 1:]
        return outputs, targets


def check_not_scripted(model: nn.Module) -> None:
    """Raises ModelError, naming a part whose parameters cannot be replaced."""
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            what = f"'{name}' in model=" if name else "model="
            raise ModelError(
                f"{what} is a ScriptModule (torch.jit), whose parameters cannot be "
                "replaced: pass the module that it was scripted or traced from."
            )


def unwrapped(model: nn.Module) -> nn.Module:
    """The model under DataParallel or DistributedDataParallel.

    Raises:
        ModelError: if there are processes that talk inside of the model.
    """
    parallel = nn.parallel.DistributedDataParallel
    outer = parallel | nn.DataParallel
    own: Any = model.module if isinstance(model, outer) else model
    for name, module in own.named_modules():
        if isinstance(module, parallel):
            raise ModelError(
                f"'{name}' in model= is DistributedDataParallel, which talks to other "
                "processes in its forward: pass a model of plain modules."
            )
    return own


class _Bound(nn.Module):
    """A user's forward as a module, so that parameters can be replaced under it."""

    def __init__(self, model: nn.Module, function: Forward):
        super().__init__()
        self.model = model
        self.function = function

    def forward(self, batch: Any) -> Any:
        return self.function(self.model, batch)


def _checksum(tensor: Tensor) -> tuple[tuple[int, ...], int]:
    if is_sharded(tensor):
        # Every process has other rows.
        return tuple(tensor.shape), 0
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return tuple(tensor.shape), zlib.crc32(flat.view(torch.uint8).numpy().data)


def _set_mode(model: nn.Module, mode: str) -> None:
    """Eval mode, or train mode with batch statistics and untouched running ones."""
    model.train(mode == "train")
    if mode == "train":
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._NormBase):
                module.track_running_stats = False


def _is_causal(model: nn.Module) -> bool:
    """A Hugging Face model that generates left to right from one sequence."""
    can_generate = getattr(model, "can_generate", None)
    config = getattr(model, "config", None)
    if not callable(can_generate) or config is None:
        return False
    return bool(can_generate()) and not getattr(config, "is_encoder_decoder", False)


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of the model for one batch's inputs."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list) and not isinstance(
        inputs, nn.utils.rnn.PackedSequence
    ):
        return tuple(inputs), {}
    return (inputs,), {}


def _scores(outputs: Any) -> Any:
    """The logits of a Hugging Face output; anything else as it is."""
    if isinstance(outputs, Mapping) and "logits" in outputs:
        return outputs["logits"]
    return outputs
