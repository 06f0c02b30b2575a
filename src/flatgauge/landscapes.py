"""Slices of the loss: along random directions, eigenvectors, or between checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor

from flatgauge.curvature.hessian import Hessian
from flatgauge.curvature.operator import Scaled
from flatgauge.errors import NonFiniteError, OptionError
from flatgauge.objective import Objective
from flatgauge.provenance import provenance_of
from flatgauge.shapes import Float
from flatgauge.slices import Landscape as Landscape
from flatgauge.slices import Landscapes as Landscapes
from flatgauge.solvers.lanczos import eigenvalues
from flatgauge.vectors import Params, add, check_like, gaussian, generator, multiply

Directions = str | Sequence[Params] | Params | Objective
Progress = Callable[[str, int, int], None]


@overload
def landscape(objective: Objective, *args: Any, **more: Any) -> Landscape: ...


@overload
def landscape(
    objective: Mapping[str, Objective], *args: Any, **more: Any
) -> Landscapes: ...


def landscape(
    objective: Objective | Mapping[str, Objective],
    normalize: str = "layer",
    directions: Directions = "random",
    points: int = 51,
    span: float = 1.0,
    dimensions: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> Landscape | Landscapes:
    """Evaluate the loss on a slice through the objective's point θ.

    A random direction V is drawn from the standard normal distribution and put in the
    units of θ, tensor by tensor ("layer") or filter by filter ("filter"):

        θ_i(t) = W_i + t ‖W_i‖ / ‖V_i‖ V_i,  |t| ≤ span

    The first is Figure 2 of Rangamani et al. 2019 (their section 4.2): for the same V,
    the curve of a network does not change when its layers are rescaled. The second is
    Li et al. 2018, where a filter is what one output of a tensor with two or more
    dimensions reads (W[j]); biases and gains count as one filter, and nothing is left
    out. A tensor or filter that is zero stays zero.

    "eigenvectors" takes the top eigenvectors v of S H S and moves along S v, with S the
    norms of tensors or filters, or 1 for normalize="none": then the loss starts off as
    L + t ⟨∇L, S v⟩ + t² λ / 2. Another objective, or its parameters, gives the line
    (1 − t) θ + t θ', on the interval of length `span` about t = 1/2: span=1 ends at
    the checkpoints, span=3 is [−1, 2].

    Args:
        objective: model, data, loss and the point; or several by name, for one picture.
        normalize: "layer", "filter" or "none"; without effect between checkpoints.
        directions: "random", "eigenvectors", one vector for each dimension (put in the
            units of θ as random ones are), or another checkpoint.
        points: points along each axis; the middle one of an odd number is θ itself.
        span: how far the axes reach.
        dimensions: 1 or 2.
        seed: of the random directions, or of the eigenvectors' start.
        progress: called with (what, index, count) before each point.

    Returns:
        A `Landscape`, or `Landscapes` of several models.

    Raises:
        OptionError: if an argument is out of its range.
        VectorError: if a direction does not fit the parameters.

    >>> import torch
    >>> model = torch.nn.Linear(1, 1, bias=False).double()
    >>> _ = model.weight.data.fill_(2.0)
    >>> one = Objective(model, (torch.ones(1, 1), torch.zeros(1, 1)), loss="mse")
    >>> landscape(one, points=3).losses.round(decimals=9).tolist()
    [16.0, 4.0, 0.0]
    """
    if isinstance(objective, Mapping):
        more = (normalize, directions, points, span, dimensions, seed, progress)
        return Landscapes({n: landscape(one, *more) for n, one in objective.items()})
    _check(normalize, points, span, dimensions)
    objective = objective.whole()
    if isinstance(directions, Objective | Mapping):
        plan = _between(objective, directions, dimensions)
        axis = _axis(points, span / 2, origin=0.5)
    else:
        plan = _through(objective, directions, normalize, dimensions, seed)
        axis = _axis(points, span, origin=0.0)
    axes = (axis,) * dimensions
    losses = losses_on(objective, plan.basis, axes, progress)
    return Landscape(
        plan.title,
        plan.kind,
        normalize,
        plan.labels,
        axes,
        losses,
        plan.eigenvalues,
        provenance=provenance_of(objective, seed),
    )


@dataclass(frozen=True)
class _Plan:
    kind: str
    title: str
    basis: list[Params]
    labels: tuple[str, ...]
    eigenvalues: tuple[float, ...] = ()


def _check(normalize: str, points: int, span: float, dimensions: int) -> None:
    if normalize not in ("layer", "filter", "none"):
        raise OptionError(
            f"normalize= is '{normalize}': use 'layer', 'filter' or 'none'."
        )
    if dimensions not in (1, 2):
        raise OptionError(f"dimensions= is {dimensions}: use 1 or 2.")
    if points < 2:
        raise OptionError(f"points= is {points}: give at least 2.")
    if not (math.isfinite(span) and span > 0):
        raise OptionError(f"span= is {span}: give a positive number.")


def _between(objective: Objective, other: Objective | Params, dimensions: int) -> _Plan:
    """The line from the objective's point to another checkpoint."""
    if dimensions != 1:
        raise OptionError(
            "two checkpoints span a line: use dimensions=1, or give a list of two "
            "directions."
        )
    if isinstance(other, Objective):
        check_buffers(objective, other)
        other = other.parameters
    end = check_like(dict(other), objective.parameters)
    return _Plan(
        "between checkpoints",
        "Between two checkpoints",
        [add(end, objective.parameters, -1.0)],
        ("from the checkpoint (0) to the other one (1)",),
    )


def check_buffers(objective: Objective, other: Objective) -> None:
    """Refuse checkpoints that differ in more than their parameters."""
    if objective.network.mode == "train":
        return
    theirs = dict(other.network.model.named_buffers())
    for name, buffer in objective.network.model.named_buffers():
        if name not in theirs or not torch.equal(
            buffer, theirs[name].to(buffer.device)
        ):
            raise OptionError(
                f"the checkpoints differ in the buffer '{name}', which a line between "
                "parameters leaves out: use mode='train', whose batch statistics follow "
                "the parameters, or pass other.parameters to keep the first one's buffers."
            )


def _through(
    objective: Objective,
    directions: str | Sequence[Params],
    normalize: str,
    dimensions: int,
    seed: int,
) -> _Plan:
    """Directions through the objective's point, in its units."""
    point = objective.parameters
    suffix = "" if normalize == "none" else f", {normalize}-normalized"
    if directions == "eigenvectors":
        norms = {name: _norms(tensor, normalize) for name, tensor in point.items()}
        found = eigenvalues(Scaled(Hessian(objective), norms), dimensions, seed=seed)
        return _Plan(
            "eigenvectors",
            f"Along the top eigenvectors{suffix}",
            [multiply(norms, vector) for vector in found.vectors],
            tuple(
                f"eigenvector {index + 1} (λ = {value:.4g})"
                for index, value in enumerate(found.values)
            ),
            tuple(found.values),
        )
    if directions == "random":
        random = generator(seed)
        kind, title = "random", f"Along random directions{suffix}"
        chosen = [gaussian(point, random) for _ in range(dimensions)]
    elif isinstance(directions, str):
        raise OptionError(
            f"directions= is '{directions}': use 'random', 'eigenvectors', a list of "
            "vectors, or another objective."
        )
    else:
        kind, title = "given", f"Along given directions{suffix}"
        chosen = _checked(directions, point, dimensions)
    count = [""] if dimensions == 1 else [" 1", " 2"]
    labels = tuple(f"{kind} direction{index}" for index in count)
    basis = [_in_units_of(point, vector, normalize) for vector in chosen]
    return _Plan(kind, title, basis, labels)


def _checked(
    directions: Sequence[Params], point: Params, dimensions: int
) -> list[Params]:
    if len(directions) != dimensions:
        raise OptionError(
            f"{len(directions)} directions were given for {dimensions} dimensions: give "
            "one for each."
        )
    return [check_like(vector, point) for vector in directions]


def _in_units_of(point: Params, direction: Params, normalize: str) -> Params:
    """Each part of a direction, made as long as the same part of the point."""
    if normalize == "none":
        return direction
    scaled = {}
    for name, tensor in direction.items():
        lengths = _norms(tensor, normalize)
        target = _norms(point[name], normalize)
        safe = torch.where(lengths > 0, lengths, torch.ones_like(lengths))
        scaled[name] = tensor * (target / safe)
    return scaled


def _norms(tensor: Tensor, normalize: str) -> Tensor:
    """The norm that each entry's unit is taken from, entry by entry."""
    if normalize == "none":
        return torch.ones_like(tensor)
    if normalize == "layer" or tensor.ndim < 2:
        return tensor.norm().expand_as(tensor)
    rows = tensor.flatten(1).norm(dim=1)
    return rows.reshape(-1, *[1] * (tensor.ndim - 1)).expand_as(tensor)


def _axis(points: int, reach: float, origin: float) -> Float[Tensor, " points"]:
    """Evenly spaced about `origin`, with that point met exactly."""
    steps = 2 * torch.arange(points, dtype=torch.float64) - (points - 1)
    return origin + reach * steps / (points - 1)


def losses_on(
    objective: Objective,
    basis: Sequence[Params],
    axes: tuple[Tensor, ...],
    progress: Progress | None,
) -> Float[Tensor, "*points"]:
    """The loss at θ + Σ t_i v_i for every point t of the grid; NaN if it is not finite."""
    grid = torch.cartesian_prod(*axes).reshape(-1, len(axes)).tolist()
    losses = []
    for index, place in enumerate(grid):
        if progress is not None:
            progress("the loss on a slice", index, len(grid))
        point = objective.parameters
        for t, direction in zip(place, basis, strict=True):
            point = add(point, direction, t)
        try:
            losses.append(objective.at(point).value())
        except NonFiniteError:
            losses.append(math.nan)
    shape = [len(axis) for axis in axes]
    return torch.tensor(losses, dtype=torch.float64).reshape(shape)
