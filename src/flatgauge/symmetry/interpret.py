"""Walk through a program, operator by operator, and gather the equations of its scales."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.capture import Reading
from flatgauge.symmetry.graph import Node, Value
from flatgauge.symmetry.labels import ANY, Scale, nothing, unscaled
from flatgauge.symmetry.needed import partly_needed
from flatgauge.symmetry.parameters import buffer_scales, parameter_scales
from flatgauge.symmetry.rules import find_rule
from flatgauge.symmetry.site import Findings, Integers, Pin, Site
from flatgauge.symmetry.system import ZERO, System
from flatgauge.vectors import first_line

FOLD_LIMIT = 2**22
"""Integer tensors with more entries than this are not computed ahead."""


class SymmetryWarning(UserWarning):
    """Symmetries may have been missed, because an operator is not understood."""


@dataclass(frozen=True)
class Interpretation:
    """The equations of a program, and the scales of what can be rescaled.

    Attributes:
        system: The equations.
        scales: The scale of every parameter and of every rescalable buffer.
        findings: What was pinned, and what was not understood.
    """

    system: System
    scales: dict[str, Scale]
    findings: Findings


def interpret(reading: Reading, *, strict: bool, batchnorm: str) -> Interpretation:
    """Apply the rule of every operator of a program in order.

    Args:
        reading: The program, and what its parameters are used as.
        strict: Whether to raise where an operator has no rule.
        batchnorm: The variant of batch normalization.

    Raises:
        SymmetryError: if `strict` and an operator has no rule.
    """
    graph, fixed = reading.graph, reading.fixed
    system, findings = System(), Findings()
    parameters = parameter_scales(graph, system, fixed, reading.used, findings)
    buffers = buffer_scales(graph, system, batchnorm, fixed)
    known: dict[Value, Scale | Integers] = {}
    for value, tensor in graph.constants.items():
        known[value] = _constant(value, tensor.cpu())
    for name, scale in parameters.items():
        known[graph.parameters[name]] = scale
    for name, reason in fixed.items():
        findings.pinned[Pin("parameter", name, reason)] += 1
    for name, value in graph.buffers.items():
        if name in buffers:
            known[value] = buffers[name]
        elif value.floating and name.endswith(("running_mean", "running_var")):
            # They are zeros by chance, before any training.
            known[value] = unscaled(value.shape)
    needed = partly_needed(graph)
    for name, scale in parameters.items():
        _hold_idle(system, scale, needed.get(graph.parameters[name]))
    for node in graph.nodes:
        first = next(iter(node.outputs), None)
        mask = None if first is None else needed.get(first)
        site = Site(node, graph, system, findings, batchnorm, mask)
        results = _apply(site, known, strict)
        for value, result in zip(node.outputs, results, strict=True):
            if value is not None:
                known[value] = _checked(site, value, result)
    for value in graph.outputs:
        node = Node("output", torch.nn.Identity(), (value,), {}, (value,), True, "")
        site = Site(node, graph, system, findings, batchnorm)
        site.pin(site.scale(_lookup(known, value)), "an output of the network")
    if graph.branches or graph.unreached:
        # What no sample reaches is free on these data, and on no others.
        system.fix_the_unconstrained(parameters.values())
    _warn(findings)
    return Interpretation(system, {**parameters, **buffers}, findings)


def _hold_idle(system: System, scale: Scale, needed: Tensor | None) -> None:
    """Entries without effect that have a scale of their own are not rescaled."""
    if needed is None or not scale.terms:
        return
    variables = torch.stack([label for _, label in scale.terms]) != ZERO
    held = ~needed & (variables.sum(0) == 1)
    terms = ((c, label.masked_fill(~held, ANY)) for c, label in scale.terms)
    system.vanish(Scale(scale.shape, tuple(terms), zeros=True))


def _constant(value: Value, tensor: torch.Tensor | None) -> Scale | Integers:
    if not value.floating:
        return Integers(value.shape, tensor)
    if tensor is not None and not bool(tensor.any()):
        return nothing(value.shape)
    return unscaled(value.shape)


def _lookup(known: Mapping[Value, Scale | Integers], value: Value) -> Scale | Integers:
    if value in known:
        return known[value]
    if value.floating and not value.shape.numel():
        return nothing(value.shape)
    return _constant(value, None)


def _apply(
    site: Site, known: Mapping[Value, Scale | Integers], strict: bool
) -> tuple[Any, ...]:
    node = site.node
    args, kwargs = pytree.tree_map_only(
        Value, partial(_lookup, known), (node.args, dict(node.kwargs))
    )
    operands = [_lookup(known, value) for value in node.inputs]
    folded = _fold(node, operands, args, kwargs)
    if folded is not None:
        return folded
    scaled = any(isinstance(item, Scale) and item.terms for item in operands)
    rule = find_rule(node.name, scaled=scaled)
    if rule is not None:
        try:
            result = rule(site, *args, **kwargs)
            return (result,) if node.single else tuple(result)
        except SymmetryError:
            raise
        except Exception as error:
            # What it has demanded so far can only hold more fixed.
            scaled = True
            warnings.warn(
                f"the scaling rule of '{node.name}' failed in module '{node.module}' "
                f"({type(error).__name__}: {first_line(error)}): please report this.",
                SymmetryWarning,
                stacklevel=5,
            )
    if scaled:
        _unknown(site, operands, strict)
    return (None,) * len(node.outputs)


def _fold(
    node: Node, operands: list[Scale | Integers], args: Any, kwargs: Any
) -> tuple[Any, ...] | None:
    """Compute integer tensors whose arguments are known, such as index tables."""
    outputs = [value for value in node.outputs if value is not None]
    if not outputs or any(value.floating for value in outputs):
        return None
    if any(isinstance(item, Scale) or item.values is None for item in operands):
        return None
    if max(value.shape.numel() for value in outputs) > FOLD_LIMIT:
        return None
    args, kwargs = pytree.tree_map_only(
        Integers, lambda known: known.values, (args, kwargs)
    )
    if "device" in kwargs:
        kwargs["device"] = torch.device("cpu")
    results = node.target(*args, **kwargs)
    results = (results,) if node.single else tuple(results)
    return tuple(Integers(result.shape, result) for result in results)


def _unknown(site: Site, operands: list[Scale | Integers], strict: bool) -> None:
    name, module = site.node.name, site.node.module
    if strict:
        raise SymmetryError(
            f"the operator '{name}' in module '{module}' has no scaling rule: register "
            "one with @scale_rule, or pass strict=False to pin its tensors."
        )
    site.findings.unsupported[name, module] += 1
    for item in operands:
        if isinstance(item, Scale):
            site.pin(item, "an operator without a scaling rule")


def _checked(site: Site, value: Value, result: Any) -> Scale | Integers:
    if result is None:
        return _constant(value, None)
    if not value.floating:
        return result if isinstance(result, Integers) else Integers(value.shape)
    if result.shape != value.shape:
        raise SymmetryError(
            f"the scaling rule of '{site.node.name}' in module '{site.node.module}' "
            f"returned a scale of shape {tuple(result.shape)} for a tensor of shape "
            f"{tuple(value.shape)}: return a scale of the output's own shape."
        )
    return result


def _warn(findings: Findings) -> None:
    by_operator: dict[str, list[str]] = {}
    for (operator, module), count in findings.unsupported.items():
        by_operator.setdefault(operator, []).extend([module] * count)
    if by_operator:
        sites = "; ".join(
            f"'{operator}' ({len(modules)} calls, first in module '{modules[0]}')"
            for operator, modules in by_operator.items()
        )
        warnings.warn(
            f"no scaling rule for {sites}: their tensors are held fixed, so symmetries "
            "may be missed; register a rule with @scale_rule.",
            SymmetryWarning,
            stacklevel=5,
        )
