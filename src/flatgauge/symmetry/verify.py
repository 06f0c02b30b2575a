"""The test that every group must pass: a random element must not change the outputs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from flatgauge.data import Batch, map_batch
from flatgauge.errors import FlatgaugeError, SymmetryError
from flatgauge.isolation import isolated, private_copy
from flatgauge.network import Network
from flatgauge.objective import Objective
from flatgauge.symmetry.capture import device_of
from flatgauge.symmetry.dimension import examined, numerical_dimension
from flatgauge.symmetry.generators import Generator
from flatgauge.symmetry.graph import Example, Selected, floating
from flatgauge.symmetry.group import Group
from flatgauge.vectors import Params, generator, ravel, size

SPREAD = 0.5
"""Of the log-scales of the element that is tried."""

Run = Callable[[nn.Module], list[Tensor]]


def allowed_change(rounded: bool) -> float:
    """How far rounding alone may move the outputs of a rescaled copy in float64.

    Args:
        rounded: whether the network computes in single precision whatever its dtype.
    """
    return 1e-4 if rounded else 1e-10


def verified(group: Group, model: nn.Module, example: Example) -> Group:
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
    with isolated(device_of(model)):
        error, approximate = _errors(group, model, example)
    return replace(group, error=error, approximate_error=approximate)


def verify_on_data(objective: Objective, group: Group) -> None:
    """The same test on every batch of an objective: a group is read off a few samples.

    Other samples may take another path through the network. It is in evaluation mode,
    as the first test is, since what is exact may rest on running statistics.

    Raises:
        SymmetryError: if the outputs of a batch change.
    """
    if not group.dimension:
        return
    with objective.isolated():
        network, rounded = _in_double(objective, objective.first_batch(), group)
        names = list(network.parameters)
        if network.mode == "train":
            own = network.model_at(network.parameters)
            network = network.with_model(own, names, mode="eval")
        element = group.random_element(seed=0, spread=SPREAD)
        twin = group.act(network.model_at(network.parameters), element)
        moved = network.with_model(twin, names, dtype=network.dtype)

    def check(batch: Batch) -> None:
        before, after = (_batch_outputs(one, batch) for one in (network, moved))
        change = relative_change(before, after)
        if not change <= allowed_change(rounded):
            raise SymmetryError(
                f"a rescaling that preserves the outputs of the first samples changes "
                f"those of batch {batch.index} by {change:.1e}, which take another "
                "path: use symmetries(model, example_inputs) with inputs that take "
                "all paths."
            )

    objective.sum(check)


def with_dimension(
    group: Group, model: nn.Module, example: Example, sound: bool = True
) -> Group:
    """The group with a count of its rescalings by linear algebra alone beside it.

    Buffers are held fixed: what is counted moves parameters only. Derivatives that are
    not `sound` decide nothing.
    """
    given = example.map(_double)
    with isolated(device_of(model)):
        generic = perturbed(private_copy(model).eval()).double()
        selected = Selected(generic, given)
        params = {
            name: parameter.detach()
            for name, parameter in generic.named_parameters()
            if parameter.is_floating_point()
        }

        def outputs(point: Params) -> list[Tensor]:
            fresh = given.map(torch.clone)
            state = {f"network.{name}": tensor for name, tensor in point.items()}
            with torch.random.fork_rng():
                torch.manual_seed(0)
                return torch.func.functional_call(
                    selected, state, fresh.args, dict(fresh.kwargs)
                )

        chosen = examined(params)
        ones = {name: torch.ones_like(tensor).cpu() for name, tensor in chosen.items()}
        exact, approximate = (
            torch.stack([ravel(vector) for vector in found], 1)
            if len(found := group.vertical(ones, approximate=up_to_eps))
            else torch.zeros(size(ones), 0, dtype=torch.float64)
            for up_to_eps in (False, True)
        )
        counted = numerical_dimension(outputs, params, chosen, exact, approximate)
    if not sound:
        reason = (
            "since its derivatives were taken as given, and need not be those of it"
        )
        counted = replace(counted, counted=None, reason=reason)
    if group.branches and counted.missed:
        reason = (
            f"since numbers decide what is computed in '{group.branches[0]}': "
            f"{counted.missed} more keep the outputs only while the path stays the same"
        )
        counted = replace(counted, counted=None, reason=reason)
    return replace(group, numerical=counted)


def _in_double(
    objective: Objective, batch: Batch, group: Group
) -> tuple[Network, bool]:
    """The network in float64 where it runs in it, and whether it rounds more coarsely."""
    try:
        double = objective.in_double().network
        _batch_outputs(double, batch)
    except (FlatgaugeError, RuntimeError):
        # An operator without a double-precision kernel.
        point = objective.parameters
        own = objective.network.model_at(point)
        return objective.network.with_model(own, list(point)), True
    return double, group.rounded


def _batch_outputs(network: Network, batch: Batch) -> list[Tensor]:
    placed = map_batch(
        lambda t: t.to(network.dtype) if t.is_floating_point() else t, batch
    )
    return floating(network.evaluate(network.parameters, placed)[0])


def _errors(group: Group, model: nn.Module, example: Example) -> tuple[float, float]:
    """The relative change of the outputs: exactly, and up to eps."""
    # A forward of the user's may differentiate, but never with respect to parameters.
    still = private_copy(model).eval().requires_grad_(False)
    own = perturbed(still, statistics=False).double()
    run, rounded = partial(_outputs, example.map(_double)), group.rounded
    try:
        run(own)
    except RuntimeError:  # an operator without a double-precision kernel
        own = perturbed(still, statistics=False)
        run, rounded = partial(_outputs, example), True
    generic = perturbed(own)
    expected = run(generic)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in expected):
        raise SymmetryError(
            "the outputs are not finite on the example inputs, so nothing can be proved "
            "about symmetries: pass inputs on which the network works."
        )
    tolerance = allowed_change(rounded)
    if relative_change(expected, run(generic)) > tolerance:
        raise SymmetryError(
            "two runs on the same inputs gave different outputs: remove the randomness "
            "from the forward pass in evaluation mode."
        )
    error = math.nan
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
        return error, relative_change(run(own), run(group.act(own, element)))
    return error, error


def _outputs(example: Example, model: nn.Module) -> list[Tensor]:
    """The outputs that count, with the same random numbers in every run."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return example.outputs(model)


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
    run: Run,
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
