"""How many diagonal rescalings there are by linear algebra alone: a second opinion.

A rescaling with exponents e keeps the outputs f to first order at θ if
(∂f/∂θ · diag θ) e = 0. The rows of this matrix are stacked over many random θ, since at
a single θ a shift of a bias looks like a rescaling, too, and a unit may rest. The
dimension of its null space is the number of rescalings: no rule, no program and no label
of `symmetries` enters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from flatgauge.shapes import Float
from flatgauge.vectors import Params, generator

LIMIT = 5000
"""Networks up to this many parameters are looked at whole."""
SAMPLE = 2000
"""Of larger networks, whole tensors with this many entries together are."""
ROWS = 8
"""Rows at each of the values of θ that they are stacked over."""
MARGIN = 50
"""Rows beyond those that decide."""
ZERO = 1e-12
"""Singular values up to this, relative to the largest, may be rounding."""
ROUNDING = 1e-15
"""What rounding always makes of a zero."""
GAP = 1e4
"""How many times larger the next singular value is, or nothing is decided."""
DEPENDENT = 1e-9
"""Rows of one θ are as many as their singular values above this."""
FAINTEST = 1e-3
"""Columns are brought to one length, but fainter ones than this by no more than this."""

TILT = 1e-3
"""Spaces that are tilted by less than this are the same."""
SHOWN = 4
"""Names of tensors that a sentence holds."""

Outputs = Callable[[Params], Sequence[Tensor]]
"""A network's outputs as a function of its parameters."""


@dataclass(frozen=True)
class NumericalDimension:
    """A count of diagonal rescalings that owes nothing to the rules of operators.

    It sees what parameters of usual size show: a network that clamps at 1000 counts as one
    that does not clamp.

    Attributes:
        found: Dimension of the group found, on what was examined. An eps that is too
            small to be seen counts as zero.
        counted: Dimension of the numerical null space; None where it is undecided.
        tensors: How many parameter tensors were examined: all, or the smallest ones.
        of: How many parameter tensors there are.
        idle: Entries that have no effect on the outputs, which are not counted.
        below: The largest singular value that counts as zero, relative to the largest.
        above: The smallest that does not.
        missing: Tensors that the rescalings move which were not found.
        reason: Why it is undecided.
    """

    found: int
    counted: int | None
    tensors: int
    of: int
    idle: int = 0
    below: float = math.nan
    above: float = math.nan
    missing: tuple[str, ...] = ()
    reason: str = ""

    @property
    def missed(self) -> int | None:
        """How many rescalings were not found; None where it is undecided."""
        return None if self.counted is None else self.counted - self.found

    def __str__(self) -> str:
        if self.counted is None:
            return f"numerical dimension: undecided, {self.reason}"
        part = f" on {self.tensors} of {self.of} tensors" * (self.tensors < self.of)
        gap = f"singular values up to {self.below:.0e}, then from {self.above:.0e}"
        said = "nothing was missed"
        if self.missed:
            some = ", ".join(self.missing[:SHOWN])
            more = f" and {len(self.missing) - SHOWN} more" * (
                len(self.missing) > SHOWN
            )
            said = f"{self.missed} missed, which move {some}{more}"
        return (
            f"numerical dimension: {self.counted}, found {self.found}{part}: {said} "
            f"({gap}; {self.idle} entries without effect)"
        )


def examined(params: Params) -> Params:
    """All parameters of a small network; the smallest tensors of a larger one."""
    if sum(tensor.numel() for tensor in params.values()) <= LIMIT:
        return params
    left, chosen = SAMPLE, set[str]()
    for name in sorted(params, key=lambda name: params[name].numel()):
        left -= params[name].numel()
        if left < 0:
            break
        chosen.add(name)
    return {name: tensor for name, tensor in params.items() if name in chosen}


def numerical_dimension(
    outputs: Outputs,
    params: Params,
    chosen: Params,
    exact: Float[Tensor, "entries exact"],
    approximate: Float[Tensor, "entries generators"],
    seed: int = 0,
) -> NumericalDimension:
    """Count the rescalings that move `chosen` alone, and compare with those found.

    Args:
        outputs: The network's outputs on its data, as a function of all parameters.
        params: All parameters θ, in float64.
        chosen: Those that are examined.
        exact: The exponents of a basis of the exact group found, by columns.
        approximate: The same of the group up to eps, which contains it.
        seed: Of the random θ.
    """
    size = exact.shape[0]

    def undecided(reason: str) -> NumericalDimension:
        return NumericalDimension(
            exact.shape[1], None, len(chosen), len(params), reason=reason
        )

    if not size:
        return undecided("since every tensor is too large to be examined")
    needed = size - exact.shape[1] + MARGIN
    rows: list[Tensor] = []
    try:
        with _Double():
            for block in _rows(outputs, params, list(chosen), needed, seed):
                rows.append(block)
                if sum(map(len, rows)) >= needed:
                    break
    except RuntimeError as error:
        return undecided(f"since it was not computed in float64 ({error})")
    matrix = torch.cat(rows) if rows else torch.zeros(0, size)
    if len(matrix) < needed:
        return undecided(
            "since outputs or derivatives near the parameters are not finite"
        )
    lengths = matrix.norm(dim=0)
    widths = lengths.clamp(min=FAINTEST * float(lengths.max()))
    matrix = matrix / widths
    live = matrix.norm(dim=0) > ZERO
    absent = max(0, int(live.sum()) - len(matrix))  # or vectors would be left out
    padded = torch.nn.functional.pad(matrix[:, live], (0, 0, 0, absent))
    _, values, vectors = torch.linalg.svd(padded, full_matrices=False)
    values = values / values.max()
    clear = int((values > ZERO).sum())
    below = float(values[clear:].max()) if clear < len(values) else 0.0
    above = float(values[clear - 1])
    if above < GAP * max(below, ROUNDING):
        return undecided(
            f"since there is no gap between singular values of {below:.0e} and "
            f"{above:.0e}: which of them are zero, nobody can tell"
        )
    null = vectors[clear:].T
    sure, known = (
        _spanning(found[live] * widths[live, None]) for found in (exact, approximate)
    )
    if float((sure - null @ (null.T @ sure)).norm()) > TILT:
        return undecided("since derivatives contradict a rescaling that was found")
    cosines = torch.linalg.svdvals(known.T @ null)
    found = int((cosines > 1 - TILT).sum())
    missing = _named(null, known, live, chosen) if found < null.shape[1] else ()
    return NumericalDimension(
        found, null.shape[1], len(chosen), len(params),
        int((~live).sum()), below, above, missing,
    )  # fmt: skip


def _rows(
    outputs: Outputs, params: Params, names: list[str], needed: int, seed: int
) -> Iterator[Tensor]:
    """Rows uᵀ (∂f/∂θ · diag θ) of length 1, for random u at random θ."""
    random = generator(seed)
    for attempt in range(2 * needed):
        move = drawn_anew if attempt % 4 else _near
        point = {name: move(tensor, random) for name, tensor in params.items()}
        leaves = [point[name].requires_grad_() for name in names]
        values = torch.cat([tensor.reshape(-1) for tensor in outputs(point)])
        count = min(values.numel(), ROWS)
        draws = torch.randn(
            count, values.numel(), generator=random, dtype=torch.float64
        )
        gradients = _gradients(values, leaves, draws.to(values))
        block = torch.cat(
            [
                torch.zeros(count, leaf.numel(), dtype=torch.float64)
                if gradient is None
                else (gradient * leaf.detach()).reshape(count, -1).cpu()
                for gradient, leaf in zip(gradients, leaves, strict=True)
            ],
            dim=1,
        )
        lengths = block.norm(dim=1, keepdim=True)
        good = (lengths > 0).squeeze(1) & lengths.isfinite().squeeze(1)
        block = (block / lengths)[good]
        # Of samples that are alike: more rows than they have to say count for nothing.
        yield block[: int((torch.linalg.svdvals(block) > DEPENDENT).sum())]


def _gradients(
    values: Tensor, leaves: list[Tensor], draws: Tensor
) -> Sequence[Tensor | None]:
    """Gradients of several sums of the outputs at a time, where operators allow it."""
    options: dict[str, Any] = {"retain_graph": True, "allow_unused": True}
    try:
        return torch.autograd.grad(
            values, leaves, draws, is_grads_batched=True, **options
        )
    except RuntimeError:
        single = [
            torch.autograd.grad(values, leaves, draw, **options) for draw in draws
        ]
    return [
        None if parts[0] is None else torch.stack(parts)
        for parts in zip(*single, strict=True)
    ]


def drawn_anew(tensor: Tensor, random: torch.Generator) -> Tensor:
    """Entries that bring signals of size 1 to signals of size 1."""
    draw = torch.randn(tensor.shape, generator=random, dtype=torch.float64)
    return draw.to(tensor) / math.sqrt(max(1, tensor[:1].numel()) if tensor.ndim else 1)


def _near(tensor: Tensor, random: torch.Generator) -> Tensor:
    """The entries moved by a part of their size, for networks that only work near them."""
    draw = torch.randn(tensor.shape, generator=random, dtype=torch.float64)
    return tensor + 0.3 * tensor.square().mean().sqrt() * draw.to(tensor)


def _spanning(columns: Tensor) -> Tensor:
    """Orthonormal columns that span the same space."""
    if not columns.shape[1]:
        return columns
    left, values, _ = torch.linalg.svd(columns, full_matrices=False)
    return left[:, values > 1e-9 * float(values.max())]


def _named(
    null: Tensor, known: Tensor, live: Tensor, chosen: Params
) -> tuple[str, ...]:
    """The tensors that are moved in more ways than by the group found, else all moved."""
    counts = [tensor.numel() for tensor in chosen.values()]
    parts = [int(part.sum()) for part in live.split(counts)]
    rest = null - known @ (known.T @ null)
    pieces = [columns.split(parts) for columns in (null, known, rest)]
    moved = [
        (name, _rank(every) > _rank(found), _rank(other) > 0)
        for name, every, found, other in zip(chosen, *pieces, strict=True)
    ]
    more = tuple(name for name, in_more_ways, _ in moved if in_more_ways)
    return more or tuple(name for name, _, at_all in moved if at_all)


def _rank(columns: Tensor) -> int:
    return int((torch.linalg.svdvals(columns) > TILT**2).sum())


class _Double(TorchDispatchMode):
    """Lets casts to a coarser type be casts to float64."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operator, a cast in float64."""
        kwargs = dict(kwargs or {})
        if func is torch.ops.aten._to_copy.default and args[0].is_floating_point():
            dtype = kwargs.get("dtype")
            if dtype is not None and dtype.is_floating_point:
                kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)
