"""The program of a network from `torch.export`, made free of side effects."""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.graph import Example, Graph, Node, Selected, Value, aliases

PREFIX = "network."


def export_graph(network: nn.Module, example: Example) -> Graph:
    """Export a network and read off its program.

    `run_decompositions({})` decomposes nothing: it turns in-place operations, also those
    through a view, into functional ones.

    Raises:
        SymmetryError: if the sizes of tensors depend on the inputs.
    """
    with _in_silence():
        program = torch.export.export(
            Selected(network, example),
            example.args,
            dict(example.kwargs),
            strict=False,
        )
        for entry in program.graph.nodes:
            _values(entry.meta.get("val"))
        program = program.run_decompositions({})
    return _read(program, aliases(network))


@contextmanager
def _in_silence() -> Iterator[None]:
    """Where an export fails, torch logs and prints all that it has read so far."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        logging.disable()
        try:
            yield
        finally:
            logging.disable(before)


def _read(program: ExportedProgram, tied: Mapping[str, str]) -> Graph:
    parameters: dict[str, Value] = {}
    buffers: dict[str, Value] = {}
    constants: dict[Value, Tensor] = {}
    environment: dict[fx.Node, Any] = {}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    nodes: list[Node] = []
    results: list[Value] = []
    for entry in program.graph.nodes:
        if entry.op == "placeholder":
            value: Any = _values(entry.meta.get("val"))
            spec: Any = specs[entry.name]
            target = (spec.target or "").removeprefix(PREFIX)
            target = tied.get(target, target)
            value = parameters.get(target) or buffers.get(target) or value
            environment[entry] = value
            if spec.kind is InputKind.PARAMETER:
                parameters[target] = value
            elif spec.kind is InputKind.BUFFER:
                buffers[target] = value
                constants[value] = _tensor(program, spec.target)
            elif spec.kind is InputKind.CONSTANT_TENSOR:
                constants[value] = _tensor(program, spec.target)
        elif entry.op == "call_function" and entry.target is operator.getitem:
            source, index = entry.args
            environment[entry] = environment[source][index]
        elif entry.op == "call_function":
            environment[entry] = _values(entry.meta.get("val"))
            nodes.append(_node(entry, environment))
        elif entry.op == "output":
            returned = fx.map_arg(entry.args[0], environment.__getitem__)
            kept = program.graph_signature.user_outputs
            names = [arg.name for arg in entry.args[0]]
            results = [v for v, n in zip(returned, names, strict=True) if n in kept]
    return Graph(parameters, buffers, constants, nodes, results, "export")


def _node(entry: fx.Node, environment: dict[fx.Node, Any]) -> Node:
    target: Any = entry.target
    schema = getattr(target, "_schema", None)
    result = environment[entry]
    single = not isinstance(result, list)
    stack = entry.meta.get("nn_module_stack") or {"": ("", None)}
    path = list(stack.values())[-1][0]
    return Node(
        name=schema.name if schema is not None else str(target),
        target=target,
        args=fx.map_arg(entry.args, environment.__getitem__),
        kwargs=fx.map_arg(entry.kwargs, environment.__getitem__),
        outputs=(result,) if single else tuple(result),
        single=single,
        module=path.removeprefix("network").removeprefix("."),
    )


def _values(meta: Any) -> Any:
    if isinstance(meta, Tensor):
        if not all(type(size) is int for size in meta.shape):
            raise SymmetryError("the sizes of its tensors depend on the inputs.")
        return Value.of(meta)
    if isinstance(meta, list | tuple):
        return [_values(item) for item in meta]
    return None


def _tensor(program: ExportedProgram, name: str) -> Tensor:
    source: Any = program.constants if name in program.constants else program.state_dict
    return source[name].detach()
