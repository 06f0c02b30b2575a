"""The program of a network that cannot be exported, written down while it runs.

A dispatch mode sees every ATen operator that the network calls. That follows one run on
one set of inputs; whatever could make another run differ is refused, or taken note of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, functionalize
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.exported import PREFIX
from flatgauge.symmetry.graph import (
    Example,
    Graph,
    Node,
    Selected,
    Value,
    runnable,
)

READERS = ("aten::_local_scalar_dense", "aten::is_nonzero")
CHOOSERS = ("aten::nonzero", "aten::masked_select", "aten::index")
ESCAPES = ("numpy", "tolist", "__array__", "data_ptr", "__dlpack__")


def watch_graph(
    network: nn.Module, example: Example, *, functional: bool = False
) -> Graph:
    """Run a network once and write down every ATen operator it calls.

    Args:
        network: a copy.
        example: what it is called with.
        functional: whether torch turns writes to memory into new tensors on the way.
            What asks for gradients inside cannot be run like that.

    Raises:
        SymmetryError: if the run fails, or if it writes into memory that another living
            tensor shares.
    """
    model, given = Selected(network, example), example.map(torch.clone)
    run = _functional(model) if functional else model
    recorder = _Recorder(model, (given.args, given.kwargs))
    hooks = [
        hook
        for name, module in model.named_modules()
        for hook in recorder.follow(name, module)
    ]
    try:
        with runnable(), _Escapes(recorder), recorder:
            outputs = run(*given.args, **given.kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return recorder.graph(outputs)


def _functional(model: nn.Module) -> Callable[..., list[Tensor]]:
    """The model, run without writing to memory."""
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def call(tensors: dict[str, Tensor], args: Any, kwargs: Any) -> list[Tensor]:
        return functional_call(model, tensors, args, kwargs)

    return lambda *args, **kwargs: functionalize(call)(own, args, kwargs)


class _Recorder(TorchDispatchMode):
    """Writes down operators, and gives tensors that are written to a new value."""

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        super().__init__()
        self.parameters: dict[str, Value] = {}
        self.buffers: dict[str, Value] = {}
        self.constants: dict[Value, Tensor] = {}
        self.nodes: list[Node] = []
        self.branches: list[str] = []
        self.unreached: list[str] = []
        self._values = WeakIdKeyDictionary()
        # By their memory, too: what autograd keeps for later comes back as new tensors.
        self._places: dict[int, tuple[StorageWeakRef, dict[Any, Value]]] = {}
        self._dependent: set[Value] = set()
        self._modules: list[str] = [""]
        for name, parameter in model.named_parameters():
            value = self.parameters[name.removeprefix(PREFIX)] = self._new(parameter)
            self._dependent.add(value)
        for name, buffer in model.named_buffers():
            value = self.buffers[name.removeprefix(PREFIX)] = self._new(buffer)
            self.constants[value] = buffer.detach()
        for leaf in pytree.tree_leaves(inputs):
            if isinstance(leaf, Tensor):
                value = self._new(leaf)
                if value.floating:
                    self._dependent.add(value)

    def follow(self, name: str, module: nn.Module) -> list[Any]:
        """Keep track of the module that is running."""
        path = name.removeprefix(PREFIX.rstrip(".")).removeprefix(".")

        def enter(*_: Any) -> None:
            self._modules.append(path)

        def leave(*_: Any) -> None:
            self._modules.pop()

        return [
            module.register_forward_pre_hook(enter),
            module.register_forward_hook(leave, always_call=True),
        ]

    def graph(self, outputs: list[Tensor]) -> Graph:
        """The program that was written down."""
        results = [self._value(tensor) for tensor in outputs]
        return Graph(
            self.parameters, self.buffers, self.constants, self.nodes, results,
            "dispatch", tuple(dict.fromkeys(self.branches)),
            tuple(dict.fromkeys(self.unreached)),
        )  # fmt: skip

    def escape(self, tensor: Tensor, name: str) -> None:
        """Note that a tensor leaves torch."""
        if name == "tolist" or not tensor.is_floating_point():
            self._note_branch((self._value(tensor),))
        node = Node(
            f"python::{name}", _absent, (self._value(tensor),), {}, (), False,
            self._modules[-1],
        )  # fmt: skip
        self.nodes.append(node)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operator and write it down."""
        kwargs = kwargs or {}
        inputs, options = pytree.tree_map_only(Tensor, self._value, (args, kwargs))
        written = self._written(func, args, kwargs)
        result = func(*args, **kwargs)
        name, target = func._schema.name, func
        if name in READERS:
            self._note_branch(inputs)
        if name in CHOOSERS and args[0].numel() and not result.numel():
            self.unreached.append(self._modules[-1])
        if written is not None:
            name, target = self._functional(func)
            # What was seen in this memory is no more.
            self._places.pop(written.untyped_storage()._cdata, None)
            outputs: tuple[Value | None, ...] = (self._new(written),)
            single = True
        else:
            single = not isinstance(result, list | tuple)
            leaves = (result,) if single else tuple(result)
            outputs = tuple(
                self._new(leaf) if isinstance(leaf, Tensor) else None for leaf in leaves
            )
        node = Node(name, target, inputs, options, outputs, single, self._modules[-1])
        self.nodes.append(node)
        if any(value in self._dependent for value in node.inputs):
            self._dependent.update(value for value in outputs if value is not None)
        return result

    def _new(self, tensor: Tensor) -> Value:
        value = Value.of(tensor)
        self._values[tensor] = value
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            known = self._places.get(storage._cdata)
            if known is None or known[0].expired():
                known = self._places[storage._cdata] = (StorageWeakRef(storage), {})
            known[1][_place(tensor)] = value
        return value

    def _value(self, tensor: Tensor) -> Value:
        if tensor not in self._values:
            seen = self._seen_there(tensor)
            if seen is None:
                self.constants[self._new(tensor)] = tensor.detach()
            else:
                self._values[tensor] = seen
        return self._values[tensor]

    def _seen_there(self, tensor: Tensor) -> Value | None:
        """The value of a tensor that is known by another name."""
        if tensor.layout is not torch.strided:
            return None
        known = self._places.get(tensor.untyped_storage()._cdata)
        if known is None or known[0].expired():
            return None
        return known[1].get(_place(tensor))

    def _written(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tensor | None:
        """The tensor that an operator writes to, if no other shares its memory."""
        if not func._schema.is_mutable:
            return None
        if not func._schema.name.endswith("_") or not isinstance(args[0], Tensor):
            raise SymmetryError(
                f"the operator '{func._schema.name}' in module '{self._modules[-1]}' "
                "writes to its arguments, which cannot be followed: make the network "
                "exportable by torch.export."
            )
        memory = args[0].untyped_storage().data_ptr()
        for other in list(self._values):
            if other is not args[0] and other.untyped_storage().data_ptr() == memory:
                raise SymmetryError(
                    f"'{func._schema.name}' in module '{self._modules[-1]}' writes in "
                    "place to memory that another tensor shares, which cannot be "
                    "followed: make the network exportable by torch.export, or write "
                    "out of place."
                )
        return args[0]

    def _functional(self, func: Any) -> tuple[str, Any]:
        namespace, _, name = func._schema.name.partition("::")
        plain = name.removesuffix("_")
        packet = getattr(getattr(torch.ops, namespace), plain, None)
        return f"{namespace}::{plain}", packet or _absent

    def _note_branch(self, inputs: tuple[Any, ...]) -> None:
        """Numbers that are read out of tensors may decide what is computed next."""
        if any(
            value in self._dependent for value in inputs if isinstance(value, Value)
        ):
            self.branches.append(self._modules[-1])


class _Escapes(TorchFunctionMode):
    """Notices tensors that leave torch, such as by `.numpy()`."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Pass on, after noting an escape."""
        name = getattr(func, "__name__", "")
        if name in ESCAPES and isinstance(args[0], Tensor):
            self.recorder.escape(args[0], name)
        return func(*args, **(kwargs or {}))


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """What tells tensors in one block of memory apart."""
    shape, stride = tuple(tensor.shape), tensor.stride()
    return tensor.storage_offset(), shape, stride, tensor.dtype


def _absent(*_: Any, **__: Any) -> Any:
    raise SymmetryError("an operator without a functional form was called on labels.")
