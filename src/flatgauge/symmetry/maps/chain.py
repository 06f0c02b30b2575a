"""A chain of linear layers with positively homogeneous activations, by parameter name.

The explicit maps of the papers speak of "layer k" and "unit i of layer k"; a `Chain`
says which parameters these are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from flatgauge.errors import SymmetryError
from flatgauge.shapes import Float
from flatgauge.vectors import Params

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LAYERS = (nn.Linear, *_CONVOLUTIONS)
_ELEMENTWISE = (
    nn.Tanh,
    nn.Sigmoid,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.ELU,
    nn.SELU,
    nn.CELU,
    nn.Softplus,
    nn.Hardtanh,
    nn.Hardswish,
    nn.ReLU6,
)
_HOMOGENEOUS = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.Identity,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
)
_POOLINGS = tuple(
    getattr(nn, f"{kind}Pool{space}d")
    for kind in ("Max", "Avg", "AdaptiveMax", "AdaptiveAvg")
    for space in (1, 2, 3)
)


@dataclass(frozen=True)
class Layer:
    """One linear or convolutional layer, addressed by the names of its parameters.

    Args:
        weight: name of the weight, laid out (outputs, inputs per group, taps...).
        bias: name of the bias, or None.
        groups: the number of groups of a grouped convolution.
    """

    weight: str
    bias: str | None = None
    groups: int = 1


@dataclass(frozen=True)
class Chain:
    """The layers of f(x) = W_K φ(... φ(W_1 x + b_1) ...) + b_K, in order.

    Build one from a model with `Chain.of`, or by hand from names where the model's code
    is known to be such a chain.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1, bias=False))
    >>> Chain.of(net).layers[1]
    Layer(weight='2.weight', bias=None, groups=1)
    """

    layers: tuple[Layer, ...]

    def __len__(self) -> int:
        """The number K of layers."""
        return len(self.layers)

    @staticmethod
    def of(model: nn.Module, *, homogeneous: bool = True) -> Chain:
        """The chain that a (nested) `nn.Sequential` is, its first dimension the batch.

        Args:
            model: the model.
            homogeneous: whether activations must be positively homogeneous, as rescaling
                needs; permuting units does not.

        Raises:
            SymmetryError: if the model is not a chain of linear and convolutional
                layers with ReLU, leaky ReLU, dropout, pooling and flattening between.
        """
        layers: list[Layer] = []
        previous: nn.Module | None = None
        tail: list[nn.Module] = []
        owners: dict[int, str] = {}
        for path, module in modules_in_order(model, ""):
            if not homogeneous and type(module) in _ELEMENTWISE:
                tail.append(module)
                continue
            if type(module) not in LAYERS:
                check_between(path, module, previous)
                tail.append(module)
                continue
            check_connection(path, previous, tail, module)
            for parameter in module.parameters():
                if id(parameter) in owners:
                    raise SymmetryError(
                        f"'{path}' and '{owners[id(parameter)]}' share a parameter, so "
                        "they cannot be rescaled against each other: untie them first."
                    )
                owners[id(parameter)] = path
            layers.append(layer_at(path, module))
            previous, tail = module, []
        if not layers:
            raise SymmetryError("the model has no linear or convolutional layer.")
        activations = (nn.ReLU, nn.LeakyReLU, *_ELEMENTWISE)
        if any(type(module) in activations for module in tail):
            raise SymmetryError(
                "an activation follows the last layer, so it does not give the outputs: "
                "build the Chain from names, or drop the activation."
            )
        return Chain(tuple(layers))


def scale_outputs(
    params: Params, layer: Layer, scales: Float[Tensor, " units"]
) -> Params:
    """Multiply each unit's row of the weight, and its bias, by that unit's scale."""
    weight = params[layer.weight]
    rows = scales.to(weight).view(-1, *[1] * (weight.dim() - 1))
    moved = {**params, layer.weight: weight * rows}
    if layer.bias is not None:
        moved[layer.bias] = params[layer.bias] * scales.to(params[layer.bias])
    return moved


def divide_inputs(
    params: Params, layer: Layer, scales: Float[Tensor, " units"]
) -> Params:
    """Divide the columns that read each unit by that unit's scale.

    A linear layer behind a flattened convolution reads one channel through several
    neighbouring columns.
    """
    weight = params[layer.weight]
    inputs = weight.shape[1] * layer.groups
    if inputs % scales.numel():
        raise SymmetryError(
            f"'{layer.weight}' reads {inputs} inputs, which {scales.numel()} units "
            "cannot feed evenly: the layers do not form a chain."
        )
    columns = scales.to(weight).repeat_interleave(inputs // scales.numel())
    grouped = weight.reshape(layer.groups, -1, *weight.shape[1:])
    shape = (layer.groups, 1, weight.shape[1], *[1] * (weight.dim() - 2))
    return {**params, layer.weight: (grouped / columns.view(shape)).view_as(weight)}


def check_positive(scales: Float[Tensor, " n"], what: str) -> None:
    """Refuse scales that are not positive and finite.

    Raises:
        SymmetryError: naming `what` the scales were for.
    """
    if not bool((torch.isfinite(scales) & (scales > 0)).all()):
        raise SymmetryError(
            f"the scales of {what} must be positive and finite, because the activations "
            f"are homogeneous for positive factors only; given {scales.tolist()}."
        )


def modules_in_order(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """The leaves of nested `nn.Sequential`s with their paths, in the order of use.

    Raises:
        SymmetryError: if a Sequential has a forward of its own.
    """
    if isinstance(module, nn.Sequential):
        if type(module).forward is not nn.Sequential.forward:
            raise SymmetryError(
                f"{type(module).__name__} has a forward of its own, so it need not be a "
                "chain: build the Chain from names."
            )
        # Not named_children, which leaves out a module's second appearance.
        for name, child in module._modules.items():
            if child is not None:
                yield from modules_in_order(child, f"{path}.{name}" if path else name)
        return
    yield path, module


def layer_at(path: str, module: nn.Module) -> Layer:
    """The address of the linear or convolutional layer `module`, found at `path`.

    Raises:
        SymmetryError: if its weight is not itself a parameter.
    """
    prefix = f"{path}." if path else ""
    own = [name for name, _ in module.named_parameters(recurse=False)]
    if sorted(own) not in (["weight"], ["bias", "weight"]):
        raise SymmetryError(
            f"'{path}' computes its weight from {own}, so rescaling the weight is not "
            "a map of its parameters: use symmetries() instead."
        )
    bias = f"{prefix}bias" if "bias" in own else None
    groups = module.groups if isinstance(module, _CONVOLUTIONS) else 1
    return Layer(f"{prefix}weight", bias, groups)


def check_between(path: str, module: nn.Module, previous: nn.Module | None) -> None:
    """Refuse a module that may not stand behind the layer `previous` in a chain.

    Raises:
        SymmetryError: if positive factors of single units do not pass through it.
    """
    kind = type(module)
    if kind in _HOMOGENEOUS:
        return
    if kind in _POOLINGS and not isinstance(previous, nn.Linear):
        return
    if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1):
        return
    where = f"'{path}' ({kind.__name__})" if path else kind.__name__
    raise SymmetryError(
        f"{where} is not a positively homogeneous link of a chain, so these rescalings "
        "do not exist through it: use an nn.Sequential of Linear, Conv, ReLU, LeakyReLU, "
        "Dropout, pooling and Flatten, build the Chain from names, or use symmetries()."
    )


def check_connection(
    path: str, previous: nn.Module | None, between: list[nn.Module], module: nn.Module
) -> None:
    """Refuse a layer that does not read the units of `previous` one by one.

    Raises:
        SymmetryError: if what stands `between` mixes units.
    """
    flattened = any(isinstance(item, nn.Flatten) for item in between)
    if isinstance(previous, nn.Linear):
        fits = (
            isinstance(module, nn.Linear)
            and module.in_features == previous.out_features
        )
    elif previous is None:
        fits = True
    else:
        fits = flattened == isinstance(module, nn.Linear)
    if not fits:
        raise SymmetryError(
            f"'{path}' does not read the units of the layer before it one by one: put "
            "a Flatten between a convolution and a linear layer, and nothing that "
            "mixes features elsewhere."
        )
