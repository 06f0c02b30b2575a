"""The rescalings of the three papers: whole layers, and single nodes.

Each function takes a `Params` and returns a new one that computes the same function;
tensors that a map leaves alone are passed on as they are. All are linear in the
parameters, so they also move tangent vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from flatgauge.errors import SymmetryError
from flatgauge.shapes import Float
from flatgauge.symmetry.maps.chain import (
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
        SymmetryError: if there is not one positive factor per layer with product 1.

    >>> from flatgauge.symmetry.maps.chain import Layer
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
        scales: for each hidden layer a vector of positive factors, one per unit.

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
