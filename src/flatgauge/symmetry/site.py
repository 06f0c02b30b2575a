"""Where a rule stands: one operator call, and what it may demand of the scales there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from flatgauge.symmetry.graph import Graph, Node
from flatgauge.symmetry.labels import ANY, Scale, nothing, unscaled
from flatgauge.symmetry.system import System

COPIES = ("aten::dropout", "aten::clone", "aten::_to_copy", "aten::to", "aten::alias")
"""Operators that hand on the entries as they are, in evaluation mode."""


@dataclass(frozen=True)
class Integers:
    """A tensor that is not floating: indices or a mask, with its entries where known."""

    shape: torch.Size
    values: Tensor | None = None


@dataclass(frozen=True)
class Pin:
    """A place where scales are fixed, and why.

    Attributes:
        operator: The operator that fixes them.
        module: The path of the module that called it.
        reason: One clause.
    """

    operator: str
    module: str
    reason: str


@dataclass
class Findings:
    """What the walk through a program has noted besides equations."""

    pinned: Counter[Pin] = field(default_factory=Counter)
    unsupported: Counter[tuple[str, str]] = field(default_factory=Counter)
    coarse: Counter[Pin] = field(default_factory=Counter)
    shifted: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """One operator call, as its rule sees it.

    Attributes:
        node: The call.
        graph: The program it belongs to.
        system: The equations gathered so far.
        findings: What was pinned so far, and what was not understood.
        batchnorm: The variant of batch normalization that was asked for.
        needed: Which entries of the first output have an effect on the network's outputs;
            None where all have.
    """

    node: Node
    graph: Graph
    system: System
    findings: Findings
    batchnorm: str
    needed: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        """The shape of the first output."""
        output = self.node.outputs[0]
        return torch.Size() if output is None else output.shape

    def scale(self, operand: Any) -> Scale:
        """The scale of any operand: a tensor, an integer tensor or a number."""
        if isinstance(operand, Scale):
            return operand
        if isinstance(operand, Integers):
            return unscaled(operand.shape)
        if operand == operand * 2:  # zero or infinite
            return nothing(())
        return unscaled(())

    def equal(self, left: Scale, right: Scale) -> Scale:
        """Demand equal scales (with broadcasting); return the common scale."""
        shape = torch.broadcast_shapes(left.shape, right.shape)
        left, right = left.expand(shape), right.expand(shape)
        if not right.terms:
            left, right = right, left
        if not left.terms:
            if not right.zeros:
                self.pin(right, "combined with a value of fixed scale")
            else:
                self.system.vanish(right)
            return left
        self.system.vanish(left - right)
        if left.zeros and right.zeros:
            return self._overlay(left, right)
        if left.zeros or right.zeros:
            return right if left.zeros else left
        return min(left, right, key=_complexity)

    def _overlay(self, left: Scale, right: Scale) -> Scale:
        (_, a), (_, b) = (
            self.system.collapse(left).terms[0],
            self.system.collapse(right).terms[0],
        )
        return Scale(left.shape, ((1.0, torch.where(a == ANY, b, a)),), zeros=True)

    def effective(self, scale: Scale) -> Scale:
        """The scale with any scale at entries that have no effect on the outputs."""
        if self.needed is None or not scale.terms:
            return scale
        label = self.system.collapse(scale.expand(self.shape)).terms[0][1]
        return Scale(
            self.shape, ((1.0, label.masked_fill(~self.needed, ANY)),), zeros=True
        )

    def pin(self, scale: Scale, reason: str) -> Scale:
        """Fix a scale to zero and note the reason; return the scale 0."""
        if scale.terms:
            self.system.vanish(scale)
            self.findings.pinned[Pin(self.node.name, self.node.module, reason)] += 1
        return unscaled(scale.shape)

    def coarse(self, reason: str) -> None:
        """Note that scales are held together here for want of knowledge."""
        self.findings.coarse[Pin(self.node.name, self.node.module, reason)] += 1

    def epsilon(self, scale: Scale) -> None:
        """Demand a zero scale of the exact group only: a tiny constant is added there."""
        self.system.vanish(scale, approximately=True)

    def uniform(self, scale: Scale, dims: Iterable[int] | None = None) -> Scale:
        """Demand one scale along `dims` (default: all), which keep size 1."""
        rank = len(scale.shape)
        chosen = range(rank) if dims is None else sorted({d % rank for d in dims})
        if scale.zeros and any(scale.varies(dim) for dim in chosen):
            scale = self.system.collapse(scale)
            label = scale.terms[0][1]
            if chosen and label.numel():
                label = label.amax(dim=tuple(chosen), keepdim=True)
            common = Scale(label.shape, ((1.0, label),), zeros=True)
        else:
            common = scale.first(chosen)
        if any(scale.varies(dim) for dim in chosen):
            self.system.vanish(scale - common)
        return common

    def tag(self, scale: Scale, part: str) -> None:
        """Remember the part that the variables of `scale` play, for their label."""
        self.system.tag(scale, part)

    def feeds(self, *operators: str) -> bool:
        """Whether the first output is read by one of these operators."""
        output = self.node.outputs[0]
        readers = [] if output is None else self.graph.uses.get(output, [])
        return any(reader.name in operators for reader in readers)

    def feeds_only(self, *operators: str) -> bool:
        """Whether the first output, or a copy of it, is read by these operators alone."""
        pending = list(self.node.outputs[:1])
        while pending:
            value = pending.pop()
            if value is None or value in self.graph.outputs:
                return False
            for reader in self.graph.uses.get(value, []):
                if reader.name in COPIES:
                    pending.append(reader.outputs[0])
                elif reader.name not in operators:
                    return False
        return True


def _complexity(scale: Scale) -> tuple[int, int]:
    laid_out = sum(
        label.shape[dim]
        for _, label in scale.terms
        for dim in range(label.ndim)
        if label.stride(dim) != 0
    )
    return len(scale.terms), laid_out
