"""Maps of the last layer: shifting, centring and scaling the outputs.

The last layer is addressed by a `Layer`, such as `Chain.of(model).layers[-1]`; it may
belong to any network, if its outputs are the network's and its weight is used nowhere
else. A shift of all outputs changes no softmax; a scale changes no argmax.
"""

from __future__ import annotations

import math

from torch import Tensor

from flatgauge.errors import SymmetryError
from flatgauge.shapes import Float
from flatgauge.symmetry.maps.chain import Layer
from flatgauge.vectors import Params


def shift_output(params: Params, layer: Layer, shift: float) -> Params:
    """Add the same number to every output: b + s·1.

    Args:
        params: the parameters.
        layer: the last layer.
        shift: the number s.

    Raises:
        SymmetryError: if the layer has no bias.
    """
    if layer.bias is None:
        raise SymmetryError(
            f"'{layer.weight}' has no bias to shift: use shift_output_by_input."
        )
    return {**params, layer.bias: params[layer.bias] + shift}


def shift_output_by_input(
    params: Params, layer: Layer, direction: Float[Tensor, "..."]
) -> Params:
    """Add the same linear function of the layer's input to every output: W + 1 vᵀ.

    Args:
        params: the parameters.
        layer: the last layer.
        direction: the vector v, with the shape of one output's weights.

    Raises:
        SymmetryError: if `direction` has another shape, or the layer is grouped.
    """
    weight = params[layer.weight]
    if layer.groups != 1 or direction.shape != weight.shape[1:]:
        raise SymmetryError(
            f"one vector of shape {tuple(weight.shape[1:])} must reach every output of "
            f"'{layer.weight}' (one group), but {tuple(direction.shape)} and "
            f"{layer.groups} groups were given."
        )
    return {**params, layer.weight: weight + direction.to(weight)}


def center_output(params: Params, layer: Layer) -> Params:
    """Take the mean over the outputs from the last layer's weight and bias.

    This picks one member of each class under output shifts, so that a norm or a
    curvature measured there no longer depends on the shift. It commutes with column
    scalings.

    Args:
        params: the parameters.
        layer: the last layer.

    Raises:
        SymmetryError: if the layer is a grouped convolution.

    >>> import torch
    >>> center_output({"w": torch.tensor([[1.0, 2.0], [3.0, 6.0]])}, Layer("w"))
    {'w': tensor([[-1., -2.],
            [ 1.,  2.]])}
    """
    if layer.groups != 1:
        raise SymmetryError(
            f"the outputs of '{layer.weight}' read different groups, so no common shift "
            "can be taken from its weight."
        )
    names = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
    centred = {
        name: params[name] - params[name].mean(0, keepdim=True) for name in names
    }
    return {**params, **centred}


def scale_output(params: Params, layer: Layer, factor: float) -> Params:
    """Multiply every output by a positive factor: the argmax stays, the loss may not.

    Args:
        params: the parameters.
        layer: the last layer.
        factor: a positive number.

    Raises:
        SymmetryError: if the factor is not positive and finite.
    """
    if not (factor > 0 and math.isfinite(factor)):
        raise SymmetryError(
            f"outputs were to be scaled by {factor}: give a positive, finite factor."
        )
    names = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
    return {**params, **{name: params[name] * factor for name in names}}
