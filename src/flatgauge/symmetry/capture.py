"""Read a network as a program: by `torch.export`, else by watching it run."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.exported import export_graph
from flatgauge.symmetry.graph import Graph, Output, Selected
from flatgauge.symmetry.live import watch_graph


def capture(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Output
) -> Graph:
    """The program of `model` in evaluation mode; the model itself is not touched.

    Raises:
        SymmetryError: if neither way works.
    """
    shared = {id(tensor): tensor for tensor in model.parameters()}
    try:
        # Exporting never writes to parameters, so their memory need not be copied.
        twin = copy.deepcopy(model, memo={**shared})
        return export_graph(Selected(twin, output).eval(), args, kwargs)
    except Exception as refusal:
        first = refusal
    try:
        twin = copy.deepcopy(model)
    except Exception as error:
        raise SymmetryError(
            f"the network cannot be copied ({error}): make it work with copy.deepcopy."
        ) from error
    try:
        return watch_graph(Selected(twin, output).eval(), args, kwargs)
    except SymmetryError as error:
        raise error from first
