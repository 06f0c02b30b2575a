"""Splitting a layer into two parallel branches: Tsuzuku et al. (2019), (26)-(30)."""

from __future__ import annotations

import copy
from collections import Counter
from typing import final

import torch
from torch import Tensor, nn

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.maps.chain import LAYERS, Chain, modules_in_order


@final
class Branches(nn.Module):
    """φ(first(x)) + φ(second(x)): one layer computed as the sum of two."""

    def __init__(self, first: nn.Module, second: nn.Module, activation: nn.Module):
        super().__init__()
        self.first = first
        self.second = second
        self.activation = activation

    def forward(self, inputs: Tensor) -> Tensor:
        """The sum of both branches behind their activations."""
        return self.activation(self.first(inputs)) + self.activation(
            self.second(inputs)
        )


def split_branches(model: nn.Module, layer: int, share: float) -> nn.Module:
    r"""Replace layer W by two branches of weights cW and (1-c)W that give the same sum.

    $$φ(Wx + b) = φ(cWx + cb) + φ((1-c)Wx + (1-c)b), \qquad 0 < c \le 1$$

    for positively homogeneous φ. The branches are tensors of their own, and what
    follows reads their sum. c = 1/2 is the paper's (27), c = 1 its (29)-(30), where the
    second branch is zero and ReLU stands on its kink. Going from any c < 1 to c = 1
    halves the trace of the split layer's Hessian.

    Args:
        model: a model of which `Chain.of` makes a chain.
        layer: the index of the layer, from 0.
        share: c, the share of the first branch.

    Returns:
        A new model; the parameters `W` become `W.first` and `W.second`, others keep
        their names.

    Raises:
        SymmetryError: if the model is no chain, has no such layer, or c is not in (0, 1].
    """
    chain = Chain.of(model, homogeneous=False)
    if not 0 <= layer < len(chain):
        raise SymmetryError(
            f"there is no layer {layer}: the chain has {len(chain)}, counted from 0."
        )
    _check_share(share)
    twin = copy.deepcopy(model)
    modules = list(modules_in_order(twin, ""))
    paths = [path for path, _ in modules]
    path = chain.layers[layer].weight.rpartition(".")[0]
    place = paths.index(path)
    activation: nn.Module = nn.Identity()
    following = modules[place + 1] if place + 1 < len(modules) else None
    if following is not None and isinstance(following[1], nn.ReLU | nn.LeakyReLU):
        activation = copy.deepcopy(following[1])
        activation.inplace = False
        twin.set_submodule(following[0], nn.Identity())
    return _replaced(twin, path, share, activation)


def splittable(model: nn.Module) -> list[str]:
    """The linear layers and convolutions of any model whose tensors are theirs alone.

    Returns:
        Their paths, the smallest first.
    """
    owners = Counter(
        id(parameter)
        for module in model.modules()
        for parameter in module.parameters(recurse=False)
    )
    found = {
        path: sum(p.numel() for p in module.parameters())
        for path, module in model.named_modules()
        if type(module) in LAYERS
        and not module._forward_hooks
        and not module._forward_pre_hooks
        and set(dict(module.named_parameters())) <= {"weight", "bias"}
        and module._parameters.get("weight") is not None
        and all(owners[id(p)] == 1 for p in module.parameters())
    }
    return sorted(found, key=lambda path: found[path])


def split_layer(model: nn.Module, path: str, share: float) -> nn.Module:
    r"""Replace a linear layer of any model by two that add up to it.

    $$W x + b = (c W x + c b) + ((1-c) W x + (1-c) b), \qquad 0 < c \le 1$$

    Args:
        model: any model, which is not changed.
        path: of a layer that `splittable` names.
        share: c, the share of the first branch.

    Raises:
        SymmetryError: if the layer cannot be split, or c is not in (0, 1].
    """
    if path not in splittable(model):
        raise SymmetryError(
            f"'{path}' is no linear layer with tensors of its own: choose a path that "
            "splittable(model) names."
        )
    _check_share(share)
    return _replaced(copy.deepcopy(model), path, share, nn.Identity())


def _replaced(
    twin: nn.Module, path: str, share: float, activation: nn.Module
) -> nn.Module:
    """With two branches in the place of a layer."""
    layer = twin.get_submodule(path)
    branches = Branches(_scaled(layer, share), _scaled(layer, 1 - share), activation)
    if not path:
        return branches
    twin.set_submodule(path, branches)
    return twin


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise SymmetryError(
            f"the first branch cannot take the share {share}: give one above 0 and at "
            "most 1, because the activations are homogeneous for positive factors only."
        )


def _scaled(module: nn.Module, factor: float) -> nn.Module:
    branch = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in branch.parameters():
            parameter.mul_(factor)
    return branch
