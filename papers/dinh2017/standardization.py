"""The same function of the raw input under another representation of it.

Dinh et al. (2017), supplement D: a bijection of the inputs as simple as standardization
changes Euclidean quantities, and leaves the function alone.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from flatgauge.errors import SymmetryError
from flatgauge.shapes import Float
from flatgauge.symmetry.maps.chain import Chain, modules_in_order


def absorb_standardization(
    model: nn.Module,
    mean: Float[Tensor, " features"],
    deviation: Float[Tensor, " features"],
) -> nn.Module:
    r"""The model of the raw input x that equals `model` at (x - mean) / deviation.

    $$W_1 \mapsto W_1 \mathrm{diag}(s)^{-1}, \qquad b_1 \mapsto b_1 - W_1 (m / s)$$

    To go the other way, absorb the mean -m/s and the deviation 1/s.

    Args:
        model: a model of which `Chain.of` makes a chain.
        mean: m, one value for each input feature (channel, for a convolution).
        deviation: s, one positive value for each.

    Returns:
        A new model, whose first layer has a bias even where the old one had none.

    Raises:
        SymmetryError: if the model is no chain, its first layer is a convolution that
            pads (a shift is then not constant at the border) or is grouped, or the
            statistics do not fit.
    """
    path = Chain.of(model).layers[0].weight.rpartition(".")[0]
    for other, module in modules_in_order(model, ""):
        if other == path:
            break
        if not isinstance(module, nn.Flatten | nn.Identity):
            raise SymmetryError(
                f"'{other}' ({type(module).__name__}) stands before the first layer, so "
                "the layer does not read the inputs: standardize outside the model."
            )
    twin = copy.deepcopy(model)
    layer = twin.get_submodule(path)
    weight = layer.weight
    assert isinstance(weight, nn.Parameter)
    _check(layer, weight, mean, deviation)

    scales = deviation.to(weight).view(1, -1, *[1] * (weight.dim() - 2))
    scaled = weight.detach() / scales
    shift = (scaled * mean.to(weight).view_as(scales)).flatten(1).sum(1)
    old = layer.bias.detach() if isinstance(layer.bias, Tensor) else 0.0
    with torch.no_grad():
        weight.copy_(scaled)
    layer.bias = nn.Parameter(old - shift, requires_grad=weight.requires_grad)
    return twin


def _check(
    layer: nn.Module,
    weight: Tensor,
    mean: Float[Tensor, " features"],
    deviation: Float[Tensor, " features"],
) -> None:
    if not isinstance(layer, nn.Linear):
        assert isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)
        padded = layer.padding != "valid" and any(size != 0 for size in layer.padding)
        if padded and layer.padding_mode == "zeros":
            raise SymmetryError(
                "the first convolution pads with zeros, and a shift of the inputs would "
                "not reach the padding: standardize outside the model instead."
            )
        if layer.groups != 1:
            raise SymmetryError(
                "the first convolution is grouped: standardize outside the model instead."
            )
    features = weight.shape[1]
    if mean.numel() != features or deviation.numel() != features:
        raise SymmetryError(
            f"the first layer reads {features} features, but {mean.numel()} means and "
            f"{deviation.numel()} deviations were given: give one for each."
        )
    if not bool((torch.isfinite(deviation) & (deviation > 0)).all()):
        raise SymmetryError(
            "a deviation is zero, negative or not finite: drop constant features first."
        )
