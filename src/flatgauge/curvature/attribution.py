"""Whether the slopes at recorded operations belong to samples in the order of the batch.

Let c be vectors in the space of the outputs, δ the slopes ∂⟨f, c⟩/∂(output of an operation),
and r_n a random weight for each sample n. Where the rows of an operation belong to the
samples in order, the slopes under r_n c_n are r_n δ, row by row. Where a parameter is used
in its one recorded operation only, its gradient is what flows in through that operation.
Both are linear, so that random numbers that satisfy them leave no room for an exception;
both are looked at on all samples that are used, for two backward passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.curvature.taps import Tap
from flatgauge.losses.loss import Rows
from flatgauge.noise import standard_normal
from flatgauge.objective import Objective
from flatgauge.vectors import Params, generator

# What rounding can do to a slope, as a share of the largest of its sample, and in units in
# the last place of the largest of all.
ROUNDINGS = 1e3
ROUNDING = {torch.float64: 1e-7, torch.float32: 1e-3}
ROUNDING_TF32 = 0.05


@dataclass(frozen=True)
class Attribution:
    """What one piece of a batch says about its recorded operations.

    Attributes:
        used: the parameters that its outputs depend on.
        explained: those of them whose squares follow from the recorded operations.
        loudest: for each explained parameter, a sample on which it has a large slope.
    """

    used: set[str]
    explained: set[str]
    loudest: dict[str, int]


def attribute(
    objective: Objective, rows: Rows, taps: list[Tap], point: Params, count: int
) -> Attribution:
    """Look at all `count` samples of a piece whose graph is still there."""
    random, outputs = generator(0), rows.outputs
    c = standard_normal(outputs.numel(), random, outputs).view_as(outputs)
    r = standard_normal(count, random, outputs)
    # No weight near 0, behind which a sample could hide.
    r = r + torch.where(r < 0, -0.5, 0.5)
    edges = [tap.output for tap in taps]
    plain = _pull(outputs, edges, c) if edges else []
    leaves = list(point.values())
    both = _pull(outputs, [*edges, *leaves], c * r[rows.samples][:, None])
    weighted, slopes = both[: len(edges)], both[len(edges) :]
    gradients = {n: s for n, s in zip(point, slopes, strict=True) if s is not None}
    used = {name for name, slope in gradients.items() if bool(slope.any())}
    allowed = ROUNDING[objective.dtype]
    if objective.precision == "tf32":
        allowed = max(allowed, ROUNDING_TF32)
    explained: set[str] = set()
    loudest: dict[str, int] = {}
    for tap, one, other in zip(taps, plain, weighted, strict=True):
        names = used.intersection(tap.names.values())
        if (
            not names
            or one is None
            or other is None
            or not _in_order(one, other, r, allowed)
        ):
            continue
        through = _through(tap, other, point)
        for name in names:
            right, own = gradients[name], through.get(name)
            if own is None:
                continue
            if is_near(own, right, allowed, right.abs()):
                explained.add(name)
                loudest[name] = int(one.reshape(count, -1).abs().amax(1).argmax())
    return Attribution(used, explained, loudest)


def _in_order(plain: Tensor, weighted: Tensor, r: Tensor, allowed: float) -> bool:
    """Whether the rows of a slope are those of the samples, one after the other."""
    count = r.shape[0]
    if plain.shape[0] == 0 or plain.shape[0] % count != 0:
        return False
    expected = plain.detach().reshape(count, -1) * r[:, None]
    found = weighted.detach().reshape(count, -1)
    return is_near(found, expected, allowed, expected.abs().amax(1, keepdim=True))


def is_near(found: Tensor, right: Tensor, allowed: float, size: Tensor) -> bool:
    """Within a share of `size` everywhere, and a few roundings of the largest of all.

    Not within a share of the largest: others may be small and meet large inputs.
    """
    floor = ROUNDINGS * torch.finfo(right.dtype).eps * right.abs().max()
    return bool(((found - right).abs() <= allowed * size + floor).all())


def _pull(outputs: Tensor, inputs: list, vectors: Tensor) -> list[Tensor | None]:
    return list(
        torch.autograd.grad(
            outputs, inputs, vectors, retain_graph=True, allow_unused=True
        )
    )


def _through(tap: Tap, slope: Tensor, point: Params) -> Params:
    """The gradients of a tap's own parameters that flow in through its output."""
    names = list(tap.names.values())
    found = torch.autograd.grad(
        [tap.output],
        [point[name] for name in names],
        [slope],
        retain_graph=True,
        allow_unused=True,
    )
    return {n: g for n, g in zip(names, found, strict=True) if g is not None}
