"""The program of a network: a list of ATen operators on values, without side effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from flatgauge.errors import SymmetryError
from flatgauge.nested import leaves, tensors_in

Output = Callable[[Any], Any]
Forward = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the program, known by its shape and dtype alone.

    Attributes:
        shape: Its sizes.
        dtype: Its type.
        strides: Where its entries were in memory, where that is known, and the place of
            the first: what `as_strided` goes by.
    """

    shape: torch.Size
    dtype: torch.dtype
    strides: tuple[tuple[int, ...], int] | None = None

    @classmethod
    def of(cls, tensor: Tensor) -> Value:
        """What is known of a tensor."""
        known = tensor.layout is torch.strided
        strides = (tensor.stride(), int(tensor.storage_offset())) if known else None
        return cls(tensor.shape, tensor.dtype, strides)

    @property
    def floating(self) -> bool:
        """Whether the tensor can be rescaled."""
        return self.dtype.is_floating_point or self.dtype.is_complex


@dataclass(frozen=True, eq=False)
class Node:
    """One operator call.

    Attributes:
        name: The operator without its overload, as in `"aten::relu"`.
        target: What to call to run the operator on other tensors.
        args: Positional arguments, with a `Value` for every tensor.
        kwargs: Keyword arguments, likewise.
        outputs: The tensors it returns; None where it returns something else.
        single: Whether it returns one tensor rather than several.
        module: The path of the module that called it.
    """

    name: str
    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[Value | None, ...]
    single: bool
    module: str

    @property
    def inputs(self) -> list[Value]:
        """The values among the arguments, also inside lists."""
        found = leaves((self.args, self.kwargs))
        return [leaf for leaf in found if isinstance(leaf, Value)]


@dataclass(frozen=True)
class Graph:
    """A program: what it reads, its operators in order, and what it returns.

    Attributes:
        parameters: The value of each parameter, by name.
        buffers: The value of each buffer, by name.
        constants: Buffers, and tensors that are neither, with their entries.
        nodes: The operators, in order.
        outputs: The values whose scales must not change.
        front_end: "export" or "dispatch".
        branches: Modules that read numbers out of tensors that depend on the inputs or
            parameters: other inputs may take another path.
        unreached: Modules that chose no sample at all for a part of theirs.
    """

    parameters: dict[str, Value]
    buffers: dict[str, Value]
    constants: dict[Value, Tensor]
    nodes: list[Node]
    outputs: list[Value]
    front_end: str
    branches: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    uses: dict[Value, list[Node]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", _without_dead_code(self.nodes, self.outputs))
        uses: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.inputs:
                uses.setdefault(value, []).append(node)
        object.__setattr__(self, "uses", uses)

    @property
    def rounded(self) -> bool:
        """Whether some operator asks for less than double precision by name."""
        return any(
            option in (torch.float32, torch.float16, torch.bfloat16)
            for node in self.nodes
            for option in (*node.args, *node.kwargs.values())
            if isinstance(option, torch.dtype)
        )


def _without_dead_code(nodes: list[Node], outputs: list[Value]) -> list[Node]:
    """The nodes that the outputs depend on, and those that return no tensor at all.

    Tensors without entries depend on nothing.
    """
    needed = set(outputs)
    kept: list[Node] = []
    for node in reversed(nodes):
        results = [value for value in node.outputs if value is not None]
        if not results or any(v in needed and v.shape.numel() for v in results):
            kept.append(node)
            needed.update(node.inputs)
    return kept[::-1]


@dataclass(frozen=True)
class Example:
    """What a network is called with, and what of its result must be preserved.

    Attributes:
        args: Its positional inputs.
        kwargs: Its inputs by keyword.
        output: Picks the outputs that count from what it returns.
        forward: Calls the network, which it is given before the inputs; None for a
            plain call.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Output
    forward: Forward | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Example:
        """With a function applied to every tensor among the inputs.

        Torch's own walker also knows the containers that libraries registered with it.
        """
        args, kwargs = pytree.tree_map_only(
            Tensor, function, (self.args, dict(self.kwargs))
        )
        return replace(self, args=args, kwargs=kwargs)

    def outputs(self, network: nn.Module) -> list[Tensor]:
        """The outputs that count, of copies of the inputs."""
        given = self.map(torch.clone)
        return Selected(network, self)(*given.args, **given.kwargs)


class Selected(nn.Module):
    """A network that returns only what its symmetries must preserve."""

    def __init__(self, network: nn.Module, example: Example) -> None:
        super().__init__()
        self.network = network
        self.example = example

    def forward(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """The tensors that count of the network's result."""
        call = self.example.forward
        if call is None:
            result = self.network(*args, **kwargs)
        else:
            result = call(self.network, *args, **kwargs)
        return floating(self.example.output(result))


def floating(tree: Any) -> list[Tensor]:
    """All floating tensors in nested tuples, lists and mappings."""
    return [tensor for tensor in tensors_in(tree) if tensor.is_floating_point()]


@contextmanager
def runnable() -> Iterator[None]:
    """Say of a network that fails inside that its example inputs do not fit.

    Raises:
        SymmetryError: instead of whatever else is raised.
    """
    try:
        yield
    except SymmetryError:
        raise
    except Exception as error:
        raise SymmetryError(
            f"the network could not be run on the example inputs ({error}): pass inputs "
            "that it accepts."
        ) from error


def aliases(model: nn.Module) -> dict[str, str]:
    """The first name of every tensor that has several, by each of its other names."""
    first: dict[int, str] = {}
    others: dict[str, str] = {}
    walks: list[Callable[..., Iterator[tuple[str, Tensor]]]] = [
        model.named_parameters,
        model.named_buffers,
    ]
    for walk in walks:
        for name, tensor in walk(remove_duplicate=False):
            known = first.setdefault(id(tensor), name)
            if known != name:
                others[name] = known
    return others
