"""Permutations of hidden units and channels."""

from __future__ import annotations

from torch import Tensor

from flatgauge.errors import SymmetryError
from flatgauge.shapes import Int
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.vectors import Params


def permutable_layers(chain: Chain) -> list[int]:
    """The hidden layers whose units can stand in any order.

    Left out are those that a grouped convolution makes or reads: its groups tie their
    channels to places.

    >>> from flatgauge.symmetry.maps.chain import Layer
    >>> permutable_layers(Chain((Layer("a"), Layer("b"), Layer("c", groups=2))))
    [0]
    """
    pairs = zip(chain.layers, chain.layers[1:], strict=False)
    return [
        index
        for index, (own, following) in enumerate(pairs)
        if own.groups == following.groups == 1
    ]


def permute_units(
    params: Params, chain: Chain, layer: int, order: Int[Tensor, " units"]
) -> Params:
    """Reorder the units of one hidden layer: unit i becomes what unit order[i] was.

    Args:
        params: the parameters.
        chain: the layers.
        layer: the index of the hidden layer, from 0.
        order: a permutation of its units (or channels).

    Raises:
        SymmetryError: if there is no such hidden layer, `order` is not a permutation of
            its units, or a grouped convolution ties the units to groups.

    >>> import torch
    >>> from flatgauge.symmetry.maps.chain import Layer
    >>> chain = Chain((Layer("a"), Layer("b")))
    >>> point = {"a": torch.tensor([[1.0], [2.0]]), "b": torch.tensor([[3.0, 4.0]])}
    >>> permute_units(point, chain, 0, torch.tensor([1, 0]))["b"]
    tensor([[4., 3.]])
    """
    if not 0 <= layer < len(chain) - 1:
        raise SymmetryError(
            f"there is no hidden layer {layer}: the chain has {len(chain) - 1}, counted "
            "from 0."
        )
    own, following = chain.layers[layer], chain.layers[layer + 1]
    if layer not in permutable_layers(chain):
        raise SymmetryError(
            f"'{own.weight}' or '{following.weight}' is a grouped convolution, whose "
            "channels cannot be permuted across groups."
        )
    units = params[own.weight].shape[0]
    if sorted(order.tolist()) != list(range(units)):
        raise SymmetryError(
            f"{order.tolist()} is not a permutation of the {units} units of "
            f"'{own.weight}'."
        )
    weight = params[following.weight]
    order = order.to(weight.device)
    columns = weight.reshape(weight.shape[0], units, -1)[:, order].reshape(weight.shape)
    moved = {
        **params,
        own.weight: params[own.weight][order],
        following.weight: columns,
    }
    if own.bias is not None:
        moved[own.bias] = params[own.bias][order]
    return moved
