"""Read a network: as a program of operators, and as what its parameters are used as."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import nn

from flatgauge.errors import SymmetryError
from flatgauge.isolation import isolated, private_copy
from flatgauge.symmetry.dispatched import watch_graph
from flatgauge.symmetry.exported import export_graph
from flatgauge.symmetry.graph import Example, Graph, Selected, aliases, runnable
from flatgauge.uses import Matrices, Watcher, in_own_memory


@dataclass(frozen=True)
class Reading:
    """What is read off a network, whatever is then asked of its symmetries.

    Attributes:
        graph: Its program in evaluation mode.
        used: The parameters that are used as matrices. Query, key and value of one matrix
            are not told apart: they share its inputs, and their rows are independent.
        fixed: Parameters and buffers that cannot be rescaled, with the reason.
        aliases: The first name of every tensor that has several, by its other names.
    """

    graph: Graph
    used: Mapping[str, Matrices]
    fixed: Mapping[str, str]
    aliases: Mapping[str, str]


def read(model: nn.Module, example: Example, *, exported: bool = True) -> Reading:
    """Read `model` on example inputs; the model itself is not touched.

    Args:
        model: any.
        example: what it is called with.
        exported: whether to try `torch.export` first.

    Raises:
        SymmetryError: if it cannot be read, neither by `torch.export` nor by watching it.
    """
    with isolated(device_of(model)):
        graph = _capture(model, example, exported)
        used = _used_matrices(model, example)
    return Reading(graph, used, _fixed(graph, model), aliases(model))


def device_of(model: nn.Module) -> torch.device:
    """Where a network computes."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _capture(model: nn.Module, example: Example, exported: bool) -> Graph:
    """The program, by `torch.export`, else by watching the network run."""
    first: Exception | None = None
    # Exporting never writes to parameters, so their memory need not be copied.
    shared = {id(p): nn.Parameter(p.data, False) for p in model.parameters()}
    try:
        if exported:
            twin = private_copy(model, shared)
            with torch.no_grad():
                return export_graph(twin.eval(), example)
    except Exception as error:
        first = error
    try:
        return watch_graph(_still(model), example)
    except SymmetryError as error:
        refusal = error
    with suppress(Exception):
        return watch_graph(_still(model), example, functional=True)
    raise refusal from first


def _still(model: nn.Module) -> nn.Module:
    """A copy to be run: a forward may differentiate, but never by parameters."""
    return private_copy(model).eval().requires_grad_(False)


def _used_matrices(model: nn.Module, example: Example) -> dict[str, Matrices]:
    """The parameters that are used as matrices on the example inputs.

    Not `uses_of` an objective: frozen parameters are rescaled, too, in evaluation mode.
    """
    with runnable():
        twin = _still(model)
        for parameter in twin.parameters():
            parameter.data = in_own_memory(parameter.data)
        watcher = Watcher(dict(twin.named_parameters()))
        given = example.map(torch.clone)
        watcher.inputs([list(given.args), given.kwargs])
        with watcher:
            Selected(twin, example)(*given.args, **given.kwargs)
    return watcher.described(apart=False)


def _fixed(graph: Graph, model: nn.Module) -> dict[str, str]:
    """Parameters and buffers that cannot be rescaled, with the reason."""
    reasons: dict[str, str] = {}
    for name, value in graph.parameters.items():
        if not value.dtype.is_floating_point:
            reasons[name] = "not a real floating tensor"
        elif value not in graph.uses:
            reasons[name] = "not used by the forward pass"
    spans = sorted(
        (tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, name)
        for walk in (model.named_parameters, model.named_buffers)
        for name, tensor in walk()
        if tensor.numel()
    )
    reach, owner = 0, ""
    for start, stop, name in spans:
        if start < reach:
            reasons[name] = reasons[owner] = "shares its memory with another tensor"
        if stop > reach:
            reach, owner = stop, name
    return reasons
