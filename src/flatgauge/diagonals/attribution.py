"""Which parameters' gradients flow through one tapped operation, sample by sample.

While a model runs, it is seen which operations use which parameters. Let c be vectors in
the space of the outputs, δ the slopes ∂⟨f, c⟩/∂(output of an operation), and r_n a random
weight for each sample n. Where the rows of an operation belong to the samples in order, in
front of positions or behind them, the slopes under r_n c_n are r_n δ, row by row. This is
linear, so that random numbers that satisfy it leave no room for an exception; it is looked at
on all samples that are used, for two backward passes that stop at the operations. That a
parameter's gradient flows in through its one tapped operation alone is read off the graph
(`paths`).
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode

from flatgauge.curvature.agreement import within, working_rounding
from flatgauge.diagonals.composites import COMPOSITES, opened
from flatgauge.diagonals.paths import ways_in
from flatgauge.diagonals.taps import TAPPED
from flatgauge.diagonals.taps.layout import Layout, layouts
from flatgauge.diagonals.taps.tap import Tap
from flatgauge.losses.loss import Rows
from flatgauge.nested import tensors_in
from flatgauge.noise import standard_normal
from flatgauge.objective import Objective
from flatgauge.vectors import Params, fetched, generator

_slopes = partial(torch.autograd.grad, retain_graph=True, allow_unused=True)


class TapWatcher(TorchFunctionMode):
    """A context in which a model runs at the tensors of `point`.

    `taps` holds the operations that were understood; `others` the names of parameters
    that were used in any other way, or more than once; `entries` counts the numbers in
    all that depends on the parameters.
    """

    def __init__(self, point: Params):
        super().__init__()
        self._names = {id(tensor): name for name, tensor in point.items()}
        self._used: set[str] = set()
        self.taps: list[Tap] = []
        self.entries = 0
        self.others: set[str] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Run the operation, and note the parameters among its arguments."""
        kwargs = kwargs or {}
        if func in COMPOSITES:
            with self:
                return opened(func)(*args, **kwargs)
        output = func(*args, **kwargs)
        used = [
            self._names[id(tensor)]
            for tensor in tensors_in([list(args), kwargs])
            if id(tensor) in self._names
        ]
        made = tensors_in([output])
        self.entries += sum(tensor.numel() for tensor in made if tensor.requires_grad)
        if used and made:
            again = self._used.intersection(used) or len(set(used)) < len(used)
            self._used.update(used)
            tap = None if again else self._tap(func, args, kwargs, output)
            if tap is None:
                self.others.update(used)
            else:
                self.taps.append(tap)
        return output

    def _tap(self, func: Any, args: Any, kwargs: Any, output: Any) -> Tap | None:
        if func not in TAPPED or not output.requires_grad:
            return None
        try:
            bound = inspect.signature(TAPPED[func]).bind(*args, **kwargs)
        except TypeError:
            return None
        names = {
            role: self._names[id(value)]
            for role, value in bound.arguments.items()
            if id(value) in self._names
        }
        tap = TAPPED[func](*args, **kwargs)
        if tap is None or not tap.roles.issuperset(names):
            return None
        # Not the output itself: an in-place operation would move it on in the graph.
        tap.output, tap.names = get_gradient_edge(output), names
        return tap


def attribute(
    objective: Objective, rows: Rows, taps: list[Tap], point: Params, count: int
) -> tuple[set[str], dict[str, int]]:
    """Look at all `count` samples of a piece of a batch whose graph is still there.

    Returns:
        The parameters that its outputs depend on, and those of them whose squares follow
        from the taps, each with the number of a sample on which it has a large slope.
        These taps are told where the samples are.
    """
    random, outputs = generator(0), rows.outputs
    c = standard_normal(outputs.numel(), random, outputs).view_as(outputs)
    r = standard_normal(count, random, outputs)
    # No weight near 0, behind which a sample could hide.
    r = r + torch.where(r < 0, -0.5, 0.5)
    edges = [tap.output for tap in taps]
    ways = ways_in(outputs, edges, point)
    own = [
        [n for n in tap.names.values() if ways.get(n) == i]
        for i, tap in enumerate(taps)
    ]
    rest = sorted(ways.keys() - {name for names in own for name in names})
    plain = _slopes([outputs], edges, [c]) if edges else []
    inputs = [*edges, *(point[name] for name in rest)]
    both = _slopes([outputs], inputs, [c * r[rows.samples][:, None]]) if inputs else []
    weighted, slopes = both[: len(edges)], both[len(edges) :]
    numbers, allowed = Numbers(), working_rounding(objective)
    others = [
        (name, numbers.add(slope.any()))
        for name, slope in zip(rest, slopes, strict=True)
        if slope is not None
    ]
    fits = [
        []
        if one is None or other is None
        else _fits(tap, one.detach(), other.detach(), r, allowed, numbers)
        for tap, one, other in zip(taps, plain, weighted, strict=True)
    ]
    known = numbers.fetched()
    used = {name for name, place in others if known[place]}
    explained: dict[str, int] = {}
    for tap, names, some in zip(taps, own, fits, strict=True):
        if some and not known[some[0].largest]:
            continue
        used.update(names)
        fitting = [one for one in some if known[one.near]]
        if fitting:
            best = min(fitting, key=lambda one: known[one.off])
            tap.layout = best.layout
            explained.update(dict.fromkeys(names, int(known[best.loudest])))
    return used, explained


class Numbers:
    """Numbers on a device that are waited for once, all together."""

    def __init__(self) -> None:
        self._waiting: list[Tensor] = []

    def add(self, number: Tensor) -> int:
        """Its place among them."""
        self._waiting.append(number.double())
        return len(self._waiting) - 1

    def fetched(self) -> list[float]:
        """All of them, in order."""
        return fetched(self._waiting)


@dataclass(frozen=True)
class Fit:
    """How the samples' slopes fit a layout; numbers by their places.

    Attributes:
        near: whether they do, within rounding.
        off: by how much they do not.
        largest: the largest slope.
        loudest: the sample with that.
    """

    layout: Layout
    near: int
    off: int
    largest: int
    loudest: int


def _fits(
    tap: Tap,
    plain: Tensor,
    weighted: Tensor,
    r: Tensor,
    allowed: float,
    numbers: Numbers,
) -> list[Fit]:
    """Where the samples may be in a slope, whose rows then are those of c times r.

    Several may fit within rounding, as where one slope is far larger than all others; the
    one that fits best is right.
    """
    dtype = torch.promote_types(plain.dtype, r.dtype)
    found = []
    for layout in layouts(plain.shape, tap.sample_dims(plain.ndim), len(r)):
        one, other = (
            layout.samples_first(slopes).flatten(1).to(dtype)
            for slopes in (plain, weighted)
        )
        difference = torch.addcmul(other, one, r.to(dtype)[:, None], value=-1)
        size, off = _largest(one), _largest(difference)
        near = within(off, allowed, size * r.abs())
        found.append(
            Fit(
                layout,
                numbers.add(near.all()),
                numbers.add(torch.linalg.vector_norm(off)),
                numbers.add(size.max()),
                numbers.add(size.argmax()),
            )
        )
    return found


def _largest(rows: Tensor) -> Tensor:
    """The largest absolute value of each row."""
    return torch.linalg.vector_norm(rows, math.inf, dim=1)
