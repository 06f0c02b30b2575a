"""The rescalings of the three papers: whole layers, and single nodes.

Each function takes a `Params` and returns a new one that computes the same function;
tensors that a map leaves alone are passed on as they are. All are linear in the
parameters, so they also move tangent vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.errors import NotConvergedError, SymmetryError
from flatgauge.shapes import Float
from flatgauge.symmetry.chain import (
    Chain,
    check_positive,
    divide_inputs,
    scale_outputs,
)
from flatgauge.vectors import Params


def rescale_layers(params: Params, chain: Chain, alphas: Sequence[float]) -> Params:
    r"""Scale layer k by α_k, with Π α_k = 1: Dinh et al. (2017), supplement B and E.

    $$W_k \mapsto α_k W_k, \qquad b_k \mapsto \Bigl(\prod_{j \le k} α_j\Bigr) b_k$$

    A hidden bias takes the product up to its layer; the last bias stays.

    Args:
        params: the parameters.
        chain: the layers.
        alphas: one positive factor for each layer, with product 1.

    Raises:
        SymmetryError: if there is not one positive factor a layer with product 1.

    >>> from flatgauge.symmetry.chain import Layer
    >>> chain = Chain((Layer("a"), Layer("b")))
    >>> point = {"a": torch.tensor([[3.0]]), "b": torch.tensor([[5.0]])}
    >>> rescale_layers(point, chain, (2.0, 0.5))
    {'a': tensor([[6.]]), 'b': tensor([[2.5000]])}
    """
    factors = torch.tensor(alphas, dtype=torch.float64)
    check_positive(factors, "layers")
    if len(alphas) != len(chain):
        raise SymmetryError(
            f"{len(alphas)} factors were given for {len(chain)} layers: give one each."
        )
    if abs(math.fsum(math.log(alpha) for alpha in alphas)) > 1e-12:
        raise SymmetryError(
            f"the factors multiply to {math.prod(alphas)}, not 1, so the function would "
            "change: divide the last one by their product."
        )
    moved, cumulative = dict(params), 1.0
    for layer, alpha in zip(chain.layers, alphas, strict=True):
        cumulative *= alpha
        moved[layer.weight] = params[layer.weight] * alpha
        if layer.bias is not None and layer is not chain.layers[-1]:
            moved[layer.bias] = params[layer.bias] * cumulative
    return moved


def rescale_hidden_layer(params: Params, chain: Chain, alpha: float) -> Params:
    """T_α of one hidden layer, (α W_1, W_2/α): Dinh et al. (2017), section 4.

    Raises:
        SymmetryError: if the chain has not exactly two layers, or α is not positive.
    """
    if len(chain) != 2:
        raise SymmetryError(
            f"this map is for one hidden layer, and the chain has {len(chain) - 1}: "
            "use rescale_layers."
        )
    check_positive(torch.tensor([alpha], dtype=torch.float64), "the hidden layer")
    return rescale_layers(params, chain, (alpha, 1 / alpha))


def rescale_nodes(
    params: Params, chain: Chain, scales: Sequence[Float[Tensor, " _"]]
) -> Params:
    r"""Scale every hidden unit by a factor of its own: Rangamani et al. (2019), section 6.

    $$W_k \mapsto Λ_k W_k Λ_{k-1}^{-1}, \quad b_k \mapsto Λ_k b_k, \quad Λ_0 = Λ_K = I,$$

    with Λ_k = diag(scales[k-1]). The paper prints Λ_4 W_3 for the last layer of three;
    it must be W_3 Λ_4. A convolution's units are its channels.

    Args:
        params: the parameters.
        chain: the layers.
        scales: for each hidden layer a vector of positive factors, one a unit.

    Raises:
        SymmetryError: if the scales do not fit the hidden layers or are not positive.
    """
    if len(scales) != len(chain) - 1:
        raise SymmetryError(
            f"scales for {len(scales)} layers were given, but {len(chain) - 1} are "
            "hidden: give one vector for each."
        )
    moved = dict(params)
    for layer, following, own in zip(
        chain.layers, chain.layers[1:], scales, strict=False
    ):
        check_positive(own, f"'{layer.weight}'")
        if own.numel() != params[layer.weight].shape[0]:
            raise SymmetryError(
                f"'{layer.weight}' has {params[layer.weight].shape[0]} units, but "
                f"{own.numel()} scales were given: give one for each."
            )
        moved = scale_outputs(moved, layer, own)
        moved = divide_inputs(moved, following, own)
    return moved


def rescale_node(
    params: Params, chain: Chain, layer: int, unit: int, alpha: float
) -> Params:
    """Divide one unit's row by α, multiply its columns by α: Tsuzuku et al. (15)-(16).

    Args:
        params: the parameters.
        chain: the layers.
        layer: the index of the hidden layer, from 0.
        unit: the index of the unit in it, from 0.
        alpha: a positive factor.

    Raises:
        SymmetryError: if there is no such hidden unit, or α is not positive.
    """
    units = [params[item.weight].shape[0] for item in chain.layers[:-1]]
    if not (0 <= layer < len(units) and 0 <= unit < units[layer]):
        raise SymmetryError(
            f"there is no unit {unit} in hidden layer {layer}: the hidden layers, "
            f"counted from 0, have {units} units."
        )
    check_positive(torch.tensor([alpha], dtype=torch.float64), "the unit")
    own, following = chain.layers[layer], chain.layers[layer + 1]
    scales = torch.ones(units[layer], dtype=torch.float64)
    scales[unit] = 1 / alpha
    return divide_inputs(scale_outputs(params, own, scales), following, scales)


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

    >>> from flatgauge.symmetry.chain import Layer
    >>> chain = Chain((Layer("a"), Layer("b")))
    >>> diagonal = {"a": torch.tensor([1.0, 3.0]), "b": torch.tensor([9.0])}
    >>> found = flattest_trace(diagonal, chain)
    >>> round(found.trace, 9), [round(alpha, 9) for alpha in found.alphas]
    (12.0, [0.816496581, 1.224744871])
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
