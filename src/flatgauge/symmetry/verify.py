"""The test that every group must pass: a random element must not change the outputs."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from flatgauge.errors import SymmetryError
from flatgauge.nested import map_nested
from flatgauge.symmetry.generators import Generator
from flatgauge.symmetry.graph import Output, copied, floating
from flatgauge.symmetry.group import Group
from flatgauge.vectors import generator

SPREAD = 0.5
TOLERANCE = 1e-10
ROUNDED_TOLERANCE = 1e-4
"""For networks that compute in single precision whatever their dtype."""


def verified(
    group: Group,
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    output: Output,
) -> Group:
    """Apply a random element of `group` to a copy in float64 and compare the outputs.

    Parameters that are zero or constant are perturbed first, and the running statistics
    of normalization layers are drawn anew, so that the test cannot pass for want of
    anything to change.

    Returns:
        The group with the `error` found and, measured with the model's own running
        statistics, the `approximate_error`.

    Raises:
        SymmetryError: if the outputs change, are not finite, differ between two equal
            runs, or do not depend on the parameters.
    """
    own = perturbed(copy.deepcopy(model).eval(), statistics=False).double()
    doubled_args, doubled_kwargs = map_nested(_double, (args, dict(kwargs)))
    run = _Runner(doubled_args, doubled_kwargs, output)
    rounded = group.rounded
    try:
        run(own)
    except RuntimeError:  # an operator without a double-precision kernel
        own = perturbed(copy.deepcopy(model).eval(), statistics=False)
        run, rounded = _Runner(args, dict(kwargs), output), True
    generic = perturbed(own)
    expected = run(generic)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in expected):
        raise SymmetryError(
            "the outputs are not finite on the example inputs, so nothing can be proved "
            "about symmetries: pass inputs on which the network works."
        )
    tolerance = ROUNDED_TOLERANCE if rounded else TOLERANCE
    if relative_change(expected, run(generic)) > tolerance:
        raise SymmetryError(
            "two runs on the same inputs gave different outputs: remove the randomness "
            "from the forward pass in evaluation mode."
        )
    error = approximate = math.nan
    if group.dimension:
        element = group.random_element(seed=0, spread=SPREAD)
        error = relative_change(expected, run(group.act(generic, element)))
        if not error <= tolerance:
            guilty = _guilty(run, generic, expected, group, tolerance)
            names = ", ".join(f"'{name}'" for name in guilty.exponents)
            raise SymmetryError(
                f"a rescaling of {names} that should preserve the outputs changes them by "
                f"{error:.1e}: the network does something there that its operators do not "
                "show (memory shared in place, code outside torch); no group is returned."
            )
        if relative_change(expected, run(_scaled_at_random(generic))) <= tolerance:
            raise SymmetryError(
                "the outputs do not depend on the parameters on the example inputs, so "
                "nothing can be proved about symmetries: pass typical inputs."
            )
    if group.approximate_dimension > group.dimension:
        element = group.random_element(seed=0, spread=SPREAD, approximate=True)
        approximate = relative_change(run(own), run(group.act(own, element)))
    else:
        approximate = error
    return replace(group, error=error, approximate_error=approximate)


class _Runner:
    """Runs copies of a model on the same inputs, leaving the random state alone."""

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Output
    ) -> None:
        self.args = args
        self.kwargs = kwargs
        self.output = output

    def __call__(self, model: nn.Module) -> list[Tensor]:
        args, kwargs = copied((self.args, self.kwargs))
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            return floating(self.output(model(*args, **kwargs)))


def perturbed(model: nn.Module, statistics: bool = True, seed: int = 1) -> nn.Module:
    """A copy whose constant parameters and running statistics are random."""
    twin = copy.deepcopy(model)
    random = generator(seed)
    with torch.no_grad():
        for parameter in twin.parameters():
            if not parameter.is_floating_point() or not parameter.numel():
                continue
            low, high = parameter.aminmax()
            if bool(low == high):
                noise = torch.randn(
                    parameter.shape, generator=random, dtype=torch.float64
                )
                parameter.add_(0.3 * noise.to(parameter))
        for module in twin.modules() if statistics else ():
            for name, buffer in module.named_buffers(recurse=False):
                draw = torch.rand(buffer.shape, generator=random, dtype=torch.float64)
                if name == "running_mean":
                    buffer.copy_(draw - 0.5)
                elif name == "running_var":
                    buffer.copy_(draw + 0.5)
    return twin


def relative_change(before: Sequence[Tensor], after: Sequence[Tensor]) -> float:
    """‖after - before‖ / ‖before‖, the largest over all tensors."""
    worst = 0.0
    for old, new in zip(before, after, strict=True):
        difference = (new.double() - old.double()).norm().item()
        size = old.double().norm().item()
        change = difference / size if size > 0 else difference
        worst = change if not change <= worst else worst
    return worst


def _guilty(
    run: _Runner,
    model: nn.Module,
    expected: list[Tensor],
    group: Group,
    tolerance: float,
) -> Generator:
    """Halve the set of generators until one is left that changes the outputs."""
    draw = torch.randn(group.dimension, generator=generator(0), dtype=torch.float64)
    suspects = torch.arange(group.dimension)
    while len(suspects) > 1:
        half = suspects[: len(suspects) // 2]
        coordinates = torch.zeros_like(draw)
        coordinates[half] = SPREAD * draw[half]
        change = relative_change(
            expected, run(group.act(model, group.element(coordinates)))
        )
        suspects = half if not change <= tolerance else suspects[len(half) :]
    return group.generators[int(suspects[0])]


def _scaled_at_random(model: nn.Module) -> nn.Module:
    twin = copy.deepcopy(model)
    random = generator(2)
    with torch.no_grad():
        for parameter in twin.parameters():
            if parameter.is_floating_point():
                draw = torch.randn(
                    parameter.shape, generator=random, dtype=torch.float64
                )
                parameter.mul_(torch.exp(SPREAD * draw).to(parameter))
    return twin


def _double(tensor: Tensor) -> Tensor:
    return tensor.detach().double() if tensor.is_floating_point() else tensor
