"""How flat an orbit can be made: its smallest trace, and the factors that reach it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.errors import NotConvergedError, SymmetryError
from flatgauge.shapes import Float
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.vectors import Params


@dataclass(frozen=True)
class FlattestTrace:
    """The smallest Hessian trace over the layer rescalings of one network.

    Attributes:
        trace: the smallest trace.
        alphas: the factors that reach it, for `rescale_layers`.
    """

    trace: float
    alphas: tuple[float, ...]


def flattest_trace(diagonal: Params, chain: Chain) -> FlattestTrace:
    r"""The smallest trace of the Hessian over all layer rescalings of a chain.

    T_α divides the block trace t_k of W_k by α_k². Without hidden biases the smallest
    sum over Π α_k = 1 is, by the inequality of the means,

    $$K \Bigl(\prod_k t_k\Bigr)^{1/K}, \qquad α_k^2 = t_k / (\textstyle\prod_j t_j)^{1/K},$$

    plus the block trace of the last bias, which does not move. With hidden biases the
    sum is convex in the logarithms of the α and Newton's method finds its minimum.

    Args:
        diagonal: the diagonal of the Hessian (only its sums over tensors matter).
        chain: the layers; they must hold every entry of `diagonal`.

    Raises:
        SymmetryError: if a weight's block trace is not positive (then the trace has no
            minimum), a hidden bias's is negative, or `diagonal` has other names.
        NotConvergedError: if Newton's method does not settle.
    """
    sums = {
        name: float(tensor.detach().double().sum()) for name, tensor in diagonal.items()
    }
    known = {item.weight for item in chain.layers}
    known |= {item.bias for item in chain.layers if item.bias is not None}
    if set(sums) != known:
        raise SymmetryError(
            f"the diagonal is of {sorted(sums)}, but the chain has {sorted(known)}: "
            "give the diagonal for exactly the chain's parameters."
        )
    weights = torch.tensor(
        [sums[item.weight] for item in chain.layers], dtype=torch.float64
    )
    biases = torch.tensor(
        [sums[item.bias] if item.bias else 0.0 for item in chain.layers[:-1]],
        dtype=torch.float64,
    )
    if bool((weights <= 0).any()) or bool((biases < 0).any()):
        raise SymmetryError(
            f"block traces {weights.tolist()} of weights and {biases.tolist()} of biases "
            "have no smallest sum over the orbit: it exists where they are positive."
        )
    geometric = weights.log().mean()
    start = ((weights.log() - geometric) / 2).cumsum(0)[:-1]
    logs = _minimize_exponentials(weights, biases, start)
    last = chain.layers[-1].bias
    steps = _differences(logs)
    trace = (weights * (-2 * steps).exp()).sum() + (biases * (-2 * logs).exp()).sum()
    return FlattestTrace(
        float(trace) + (sums[last] if last else 0.0), tuple(steps.exp().tolist())
    )


def _differences(cumulative: Float[Tensor, " hidden"]) -> Float[Tensor, " layers"]:
    zero = cumulative.new_zeros(1)
    return torch.cat([zero, cumulative, zero]).diff()


def _minimize_exponentials(
    weights: Float[Tensor, " layers"],
    biases: Float[Tensor, " hidden"],
    start: Float[Tensor, " hidden"],
) -> Float[Tensor, " hidden"]:
    """The minimum over s of Σ w_k exp(-2(s_k - s_{k-1})) + Σ b_k exp(-2 s_k)."""
    identity = torch.eye(len(start), dtype=start.dtype)
    exponents = torch.stack([_differences(row) for row in identity], dim=1) * -2
    exponents = torch.cat([exponents, -2 * identity])
    coefficients = torch.cat([weights, biases])

    point = start
    for _ in range(200):
        terms = coefficients * (exponents @ point).exp()
        gradient = exponents.T @ terms
        hessian = exponents.T @ (terms[:, None] * exponents)
        step = torch.linalg.solve(hessian, -gradient)
        decrement = float(-gradient @ step)
        if decrement <= 1e-24 * float(terms.sum()):
            return point
        # A step of at most 1 in any logarithm keeps Newton's method descending.
        point = point + step / max(1.0, float(step.abs().max()))
    raise NotConvergedError(
        "Newton's method for the flattest trace did not settle in 200 steps: the block "
        "traces differ by too many orders of magnitude."
    )
