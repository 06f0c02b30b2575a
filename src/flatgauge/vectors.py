"""Named vectors: a `Params` maps parameter names to tensors, and is an element of R^n.

Every curvature operator maps a `Params` to a `Params` of the same names and shapes;
the solvers work on the same vectors laid out flat, in the order of the names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

from flatgauge.errors import (
    FlatgaugeError,
    ModelError,
    NonFiniteError,
    OutOfMemoryError,
    VectorError,
)
from flatgauge.memory import memory_ended
from flatgauge.noise import random_signs, standard_normal
from flatgauge.shapes import Float
from flatgauge.shards import (
    added,
    cut,
    flat,
    is_sharded,
    like,
    number,
    own_entries,
    own_range,
    plain,
)

Params = dict[str, Tensor]
# Entries of short vectors that go through an operator at a time, and the most of these.
ENTRIES_TOGETHER, MOST_TOGETHER = 2**18, 32
# torch's operations on lists of tensors, which its own optimizers use.
_many: Any = torch


def size(vector: Params) -> int:
    """The dimension n: the number of entries over all tensors."""
    return sum(tensor.numel() for tensor in vector.values())


def _on_shards(vector: Params) -> bool:
    """Whether processes share it: then each of its tensors is sharded."""
    return is_sharded(next(iter(vector.values()), None))


def together(space: Params, fewest: int = 8) -> int:
    """How many vectors go through an operator at a time: more of short ones.

    Calls cost most of a product with a short one, and memory is what long ones take.
    """
    return max(min(ENTRIES_TOGETHER // max(size(space), 1), MOST_TOGETHER), fewest)


def even_share(count: int, most: int) -> int:
    """At most so many at a time, in passes of the same size: a small one pays its calls alone.

    >>> even_share(30, 23), even_share(17, 16), even_share(5, 8)
    (15, 9, 5)
    """
    return max(1, math.ceil(count / max(math.ceil(count / most), 1)))


def own_bytes(vector: Params) -> int:
    """What a vector takes of this process's memory."""
    if not _on_shards(vector):
        return sum(tensor.nbytes for tensor in vector.values())
    return sum(own_entries(t) * t.element_size() for t in vector.values())


def dot(left: Params, right: Params) -> Tensor:
    """The Euclidean inner product, accumulated in float64 (a 0-dimensional tensor)."""
    if _on_shards(left):
        pairs = [(flat(left[name]), flat(right[name])) for name in left]
        parts = [torch.dot(plain(a).double(), plain(b).double()) for a, b in pairs]
        return added(torch.stack(parts).sum(), pairs[0][0])
    products = [
        torch.dot(left[name].reshape(-1).double(), right[name].reshape(-1).double())
        for name in left
    ]
    return torch.stack(products).sum()


def fetched(numbers: Sequence[Tensor]) -> list[float]:
    """Tensors of one entry as numbers, with one wait where they are on one device."""
    if len({one.device for one in numbers}) > 1:
        return [float(one) for one in numbers]
    return torch.stack(list(numbers)).tolist() if numbers else []


def root_mean_squares(vector: Params) -> dict[str, float]:
    """Of the entries of every tensor, in float64; 0 of one without any."""
    squares = {n: t.double().square().mean() for n, t in vector.items() if t.numel()}
    if _on_shards(vector):
        known = [number(one) for one in squares.values()]
    else:
        known = fetched(list(squares.values()))
    roots = {name: one**0.5 for name, one in zip(squares, known, strict=True)}
    return {name: roots.get(name, 0.0) for name in vector}


def norm(vector: Params) -> Tensor:
    """The Euclidean norm, accumulated in float64, all tensors in few launches."""
    if _on_shards(vector):
        return dot(vector, vector).sqrt()
    norms = _many._foreach_norm(list(vector.values()), 2, dtype=torch.float64)
    return torch.stack(norms).norm()


def scale(vector: Params, factor: float | Tensor) -> Params:
    """`factor * vector`."""
    if isinstance(factor, Tensor):
        # torch's operation on lists cannot be differentiated in the factor.
        return {name: tensor * factor for name, tensor in vector.items()}
    scaled = _many._foreach_mul(list(vector.values()), factor)
    return dict(zip(vector, scaled, strict=True))


def add(left: Params, right: Params, factor: float | Tensor = 1.0) -> Params:
    """`left + factor * right`."""
    if isinstance(factor, Tensor):
        return {name: tensor + factor * right[name] for name, tensor in left.items()}
    others = [right[name] for name in left]
    sums = _many._foreach_add(list(left.values()), others, alpha=factor)
    return dict(zip(left, sums, strict=True))


def add_into(total: Params, other: Params, factor: float = 1.0) -> None:
    """`total += factor * other` in place, all tensors in one launch."""
    _many._foreach_add_(list(total.values()), [other[n] for n in total], alpha=factor)


def copy_into(target: Params, source: Params) -> None:
    """`target = source` in place, all tensors in one launch."""
    _many._foreach_copy_(list(target.values()), [source[n] for n in target])


def copied(vector: Params) -> Params:
    """A copy, all tensors in one launch."""
    copies = _many._foreach_mul(list(vector.values()), 1.0)
    return dict(zip(vector, copies, strict=True))


def multiply(left: Params, right: Params) -> Params:
    """The entrywise product."""
    return {name: tensor * right[name] for name, tensor in left.items()}


def map_tensors(function: Callable[[Tensor], Tensor], vector: Params) -> Params:
    """Apply `function` to each tensor."""
    return {name: function(tensor) for name, tensor in vector.items()}


def zeros_like(vector: Params) -> Params:
    """The zero of the space of `vector`."""
    return map_tensors(torch.zeros_like, vector)


def ravel(vector: Params) -> Float[Tensor, " n"]:
    """All entries in one flat tensor, in the order of the names.

    Of a vector that processes share, those of this one: see `flatgauge.shards`.
    """
    if _on_shards(vector):
        return torch.cat([flat(tensor) for tensor in vector.values()])
    return torch.cat([tensor.reshape(-1) for tensor in vector.values()])


def unravel(entries: Float[Tensor, " n"], space: Params) -> Params:
    """The inverse of `ravel` for vectors of `space`: views into `entries`."""
    on_shards = _on_shards(space)
    sizes = [
        own_entries(tensor) if on_shards else tensor.numel()
        for tensor in space.values()
    ]
    if entries.numel() != sum(sizes):
        raise VectorError(
            f"a flat vector of {entries.numel()} entries was given, but the space has "
            f"{sum(sizes)}: pass one entry for each parameter."
        )
    pieces = entries.split(sizes)
    return {
        name: like(piece, tensor) if on_shards else piece.view_as(tensor)
        for (name, tensor), piece in zip(space.items(), pieces, strict=True)
    }


def unit_columns(space: Params, start: int, stop: int) -> Float[Tensor, "n k"]:
    """The unit vectors of some places, as `ravel` lays vectors out."""
    first = next(iter(space.values()))
    parts, offset = [], 0
    for tensor in space.values():
        own = own_range(tensor)
        places = torch.arange(own.start, own.stop, device=first.device) + offset
        wanted = torch.arange(start, stop, device=first.device)
        parts.append((places[:, None] == wanted).to(first.dtype))
        offset += tensor.numel()
    return torch.cat(parts).as_subclass(type(flat(first)))


def generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A random generator of our own, so that the global state is never touched."""
    return torch.Generator(device=device).manual_seed(seed)


def gaussian(space: Params, random: torch.Generator) -> Params:
    """Independent standard normal entries, made where `space` is."""
    return unravel(flat_gaussian(space, random), space)


def rademacher(space: Params, random: torch.Generator) -> Params:
    """Independent entries that are +1 or -1 with probability one half each."""
    return unravel(flat_rademacher(space, random), space)


def flat_gaussian(space: Params, random: torch.Generator) -> Float[Tensor, " n"]:
    """The same, as `ravel` would lay it out."""
    return _drawn(standard_normal, space, random)


def flat_rademacher(space: Params, random: torch.Generator) -> Float[Tensor, " n"]:
    """The same, as `ravel` would lay it out."""
    return _drawn(random_signs, space, random)


def _drawn(
    draw: Callable[[int, torch.Generator, Tensor, list[range] | None], Tensor],
    space: Params,
    random: torch.Generator,
) -> Tensor:
    first = next(iter(space.values()))
    if not is_sharded(first):
        return draw(size(space), random, first, None)
    places, offset = [], 0
    for tensor in space.values():
        own = own_range(tensor)
        places.append(range(own.start + offset, own.stop + offset))
        offset += tensor.numel()
    return draw(offset, random, first, places).as_subclass(type(flat(first)))


def gradient_of(
    output: Tensor,
    point: Params,
    *,
    create_graph: bool = False,
    keep_graph: bool = False,
) -> Params:
    """∂output/∂point, with zeros for parameters that it does not depend on."""
    if not output.requires_grad:
        return zeros_like(point)
    slopes = torch.autograd.grad(
        output,
        list(point.values()),
        create_graph=create_graph,
        retain_graph=create_graph or keep_graph,
        allow_unused=True,
        materialize_grads=True,
    )
    return dict(zip(point, slopes, strict=True))


def unused_in(total: Tensor, point: Params) -> list[str]:
    """The parameters that a loss does not depend on."""
    if not total.requires_grad:
        return list(point)
    slopes = torch.autograd.grad(total, list(point.values()), allow_unused=True)
    return [name for name, slope in zip(point, slopes, strict=True) if slope is None]


def graph_nodes(tensors: Iterable[Tensor]) -> Iterator[Node]:
    """Every node of the graph that the tensors were computed by."""
    waiting, seen = [tensor.grad_fn for tensor in tensors], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(following for following, _ in node.next_functions)
            yield node


def check_twice_differentiable(slopes: Iterable[Tensor]) -> None:
    """Refuse slopes that torch would differentiate again without all of their parts.

    It marks operations with one derivative only by a node that leads nowhere, so that
    the derivative with respect to parameters passes it by.
    """
    if any(node.name() == "torch::autograd::Error" for node in graph_nodes(slopes)):
        raise ModelError(
            "an operation of the model has a first derivative only (once_differentiable): "
            "replace the operation by one with second derivatives."
        )


@contextmanager
def derivative_errors(what: str) -> Iterator[None]:
    """Turn errors of torch, or of a model's own backward, into a sentence."""
    try:
        yield
    except FlatgaugeError:
        raise
    except Exception as error:
        if memory_ended(error):
            raise OutOfMemoryError(
                f"the {what} does not fit in memory ({first_line(error)}): use smaller "
                "batches or a device with more memory."
            ) from error
        if "checkpoint" in str(error).lower():
            advice = "turn activation checkpointing off"
        elif "inplace" in str(error):
            advice = "write the operation without changing its input in place"
        else:
            advice = "replace the operation by one with second derivatives"
        raise ModelError(
            f"the {what} could not be computed ({type(error).__name__}: "
            f"{first_line(error)}): {advice}."
        ) from error


def first_line(error: BaseException) -> str:
    """What an error says, without its stack of C++ calls."""
    return next(iter(str(error).strip().splitlines()), "")


def check_finite(vector: Params, what: str) -> None:
    """Raise if a derivative is not finite, naming the parameter."""
    name = _not_finite(vector)
    if name is not None:
        raise NonFiniteError(
            f"the {what} with respect to '{name}' is not finite: look for square "
            "roots or logarithms at 0, or measure in dtype=torch.float64."
        )


def is_finite(vector: Params) -> bool:
    """Whether every entry is a finite number."""
    return _not_finite(vector) is None


def check_finite_parameters(parameters: Params) -> None:
    """Raise if a parameter is not finite, naming it."""
    name = _not_finite(parameters)
    if name is not None:
        raise NonFiniteError(
            f"the parameter '{name}' has NaN or infinite entries: load a checkpoint "
            "that trained to the end."
        )


def _not_finite(vector: Params) -> str | None:
    """The first tensor that is not finite; one wait for the device if there is none."""
    total = (
        norm(vector)
        if _on_shards(vector)
        else torch.stack(_many._foreach_norm(list(vector.values()))).sum()
    )
    if math.isfinite(float(total)):
        return None
    infinite = (n for n, t in vector.items() if not number(torch.isfinite(t).all()))
    return next(infinite, None)


def check_like(vector: Params, space: Params) -> Params:
    """Return `vector` in the order of `space`, or say in one sentence why it cannot be.

    Raises:
        VectorError: if names, shapes, dtype or device differ.
    """
    if not isinstance(vector, Mapping):
        raise VectorError(
            f"a vector is {type(vector).__name__}: give a mapping from the names of "
            "objective.parameters to tensors."
        )
    missing = [name for name in space if name not in vector]
    extra = [name for name in vector if name not in space]
    if missing or extra:
        raise VectorError(
            "the vector's names do not match the parameters: "
            f"missing {_some(missing)}, not known {_some(extra)}; "
            "build it from objective.parameters."
        )
    for name, expected in space.items():
        given = vector[name]
        if not isinstance(given, Tensor):
            raise VectorError(
                f"the vector's '{name}' is {type(given).__name__}: give a tensor."
            )
        if is_sharded(given) and not is_sharded(expected):
            raise VectorError(
                f"the vector's '{name}' is sharded, but the parameter is not: pass its "
                "full_tensor()."
            )
        if given.shape != expected.shape:
            raise VectorError(
                f"the vector's '{name}' has shape {tuple(given.shape)}, but the "
                f"parameter has {tuple(expected.shape)}: give it the parameter's shape."
            )
        if given.dtype != expected.dtype or given.device != expected.device:
            raise VectorError(
                f"the vector's '{name}' is {given.dtype} on {given.device}, but the "
                f"parameter is {expected.dtype} on {expected.device}: convert it first."
            )
    return {name: vector[name] for name in space}


def dealt_like(vector: Params, space: Params) -> Params:
    """A vector that every process has, sharded where the space is; others as they are."""
    return {name: cut(vector[name], tensor) for name, tensor in space.items()}


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{shown}{more}" if names else "none"
