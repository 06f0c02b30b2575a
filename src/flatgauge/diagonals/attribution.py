"""Which parameters' gradients flow through one tapped operation, sample by sample.

While a model runs, it is seen which operations use which parameters. Let c be vectors in
the space of the outputs, δ the slopes ∂⟨f, c⟩/∂(output of an operation), and r_n a random
weight for each sample n. Where the rows of an operation belong to the samples in order, in
front of positions or behind them, the slopes under r_n c_n are r_n δ, row by row. Where a
parameter is used in its one tapped operation only, its gradient is what flows in through
that operation. Both are linear, so that random numbers that satisfy them leave no room for
an exception; both are looked at on all samples that are used, for two backward passes.
"""

from __future__ import annotations

import inspect
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode

from flatgauge.curvature.agreement import is_near, working_rounding
from flatgauge.diagonals.composites import COMPOSITES, opened
from flatgauge.diagonals.taps import TAPPED
from flatgauge.diagonals.taps.layout import Layout, layouts
from flatgauge.diagonals.taps.tap import Tap
from flatgauge.losses.loss import Rows
from flatgauge.nested import tensors_in
from flatgauge.noise import standard_normal
from flatgauge.objective import Objective
from flatgauge.vectors import Params, generator

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
    plain = _slopes([outputs], edges, [c]) if edges else []
    inputs = [*edges, *point.values()]
    both = _slopes([outputs], inputs, [c * r[rows.samples][:, None]])
    weighted, slopes = both[: len(edges)], both[len(edges) :]
    gradients = {n: s for n, s in zip(point, slopes, strict=True) if s is not None}
    used = {name for name, slope in gradients.items() if bool(slope.any())}
    allowed = working_rounding(objective)
    explained: dict[str, int] = {}
    for tap, one, other in zip(taps, plain, weighted, strict=True):
        own = [name for name in tap.names.values() if name in used]
        if not own or one is None or other is None:
            continue
        layout = _layout(tap, one, other, r, allowed)
        if layout is None:
            continue
        tap.layout = layout
        size = layout.samples_first(one).flatten(1).abs().amax(1)
        through = _slopes([tap.output], [point[name] for name in own], [other])
        for name, slope in zip(own, through, strict=True):
            right = gradients[name]
            if slope is not None and is_near(slope, right, allowed, right.abs()):
                explained[name] = int(size.argmax())
    return used, explained


def _layout(
    tap: Tap, plain: Tensor, weighted: Tensor, r: Tensor, allowed: float
) -> Layout | None:
    """Where the samples are in a slope, if its rows belong to them.

    Of several that fit within rounding, as where one slope is far larger than all others,
    the one that fits best.
    """
    plain, weighted = plain.detach(), weighted.detach()
    best, least = None, math.inf
    for layout in layouts(plain.shape, tap.sample_dims(plain.ndim), len(r)):
        expected = layout.samples_first(plain).flatten(1) * r[:, None]
        found = layout.samples_first(weighted).flatten(1)
        off = float((found - expected).double().norm())
        near = is_near(found, expected, allowed, expected.abs().amax(1, keepdim=True))
        if near and off < least:
            best, least = layout, off
    return best
