"""Which operations use which parameters, seen while a model runs."""

from __future__ import annotations

import inspect
from typing import Any

from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode

from flatgauge.curvature.taps import TAPPED, Call, Tap
from flatgauge.nested import tensors_in
from flatgauge.vectors import Params


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
            bound = inspect.signature(TAPPED[func]).bind(None, *args, **kwargs)
        except TypeError:
            return None
        names = {
            role: self._names[id(value)]
            for role, value in bound.arguments.items()
            if id(value) in self._names
        }
        if not set(names) <= {"weight", "bias"}:
            return None
        # Not the output itself: an in-place operation would move it on in the graph.
        return TAPPED[func](Call(get_gradient_edge(output), names), *args, **kwargs)
