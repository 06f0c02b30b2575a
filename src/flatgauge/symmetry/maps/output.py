"""Maps of the layer that makes the outputs: shifting, centring and scaling them.

The layer is given by its `Axes`: a chain's last one by `axes_of`, that of any network by
`output_layer.py`. A shift of all outputs changes no softmax; a scale changes no
argmax.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from torch import Tensor

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.maps.chain import Layer
from flatgauge.vectors import Params

Axes = Mapping[str, int]
"""The tensors of the layer, each with the dimension that runs over the outputs."""


def axes_of(layer: Layer) -> dict[str, int]:
    """The axes of a linear or convolutional layer.

    Raises:
        SymmetryError: if it is a grouped convolution.

    >>> axes_of(Layer("w", "b"))
    {'w': 0, 'b': 0}
    """
    if layer.groups != 1:
        raise SymmetryError(
            f"the outputs of '{layer.weight}' read different groups, so no common shift "
            "can be taken from its weight."
        )
    return {name: 0 for name in (layer.weight, layer.bias) if name is not None}


def shift_output(params: Params, axes: Axes, steps: Mapping[str, Tensor]) -> Params:
    """Add the same to every output: b + s·1, W + 1 vᵀ.

    Args:
        params: the parameters.
        axes: the layer.
        steps: what is added to some of its tensors, of size 1 along the outputs.

    Raises:
        SymmetryError: if a step is for another tensor, or does not fit.
    """
    for name, step in steps.items():
        if name not in axes:
            raise SymmetryError(
                f"'{name}' is not of the layer that makes the outputs: shift one of "
                f"{list(axes)}."
            )
        shape = list(params[name].shape)
        shape[axes[name]] = 1
        if list(step.shape) != shape:
            raise SymmetryError(
                f"one step of shape {tuple(shape)} must reach every output of '{name}', "
                f"but {tuple(step.shape)} was given."
            )
    moved = {name: params[name] + step.to(params[name]) for name, step in steps.items()}
    return {**params, **moved}


def center_output(params: Params, axes: Axes) -> Params:
    """Take the mean over the outputs from every tensor of the layer.

    This picks one member of each class under output shifts, so that a norm or a
    curvature measured there no longer depends on the shift. It commutes with column
    scalings.

    Args:
        params: the parameters.
        axes: the layer.

    >>> import torch
    >>> center_output({"w": torch.tensor([[1.0, 2.0], [3.0, 6.0]])}, {"w": 0})
    {'w': tensor([[-1., -2.],
            [ 1.,  2.]])}
    """
    centred = {
        name: params[name] - params[name].mean(axis, keepdim=True)
        for name, axis in axes.items()
    }
    return {**params, **centred}


def scale_output(params: Params, names: Iterable[str], factor: float) -> Params:
    """Multiply every output by a positive factor: the argmax stays, the loss may not.

    Args:
        params: the parameters.
        names: the tensors of the layer.
        factor: a positive number.

    Raises:
        SymmetryError: if the factor is not positive and finite.
    """
    if not (factor > 0 and math.isfinite(factor)):
        raise SymmetryError(
            f"outputs were to be scaled by {factor}: give a positive, finite factor."
        )
    return {**params, **{name: params[name] * factor for name in names}}
