"""Networks of one shape as one batched network, their parameters stacked."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flatgauge.errors import ModelError
from flatgauge.vectors import Params


def forward(model: nn.Module, parameters: Params, inputs: Tensor) -> Tensor:
    """The outputs of every network of a stack on its own inputs, [networks, batch, ...].

    `model` is a (nested) `nn.Sequential` of linear layers, convolutions, and modules
    without parameters that treat every sample alone.
    """
    return _apply(model, "", parameters, inputs)


def _apply(module: nn.Module, path: str, parameters: Params, x: Tensor) -> Tensor:
    if isinstance(module, nn.Sequential):
        for name, child in module.named_children():
            x = _apply(child, f"{path}{name}.", parameters, x)
        return x
    if isinstance(module, nn.Linear):
        weight = parameters[f"{path}weight"].transpose(1, 2)
        if module.bias is None:
            return torch.bmm(x, weight)
        return torch.baddbmm(parameters[f"{path}bias"][:, None], x, weight)
    if isinstance(module, nn.Conv2d):
        return _convolve(module, path, parameters, x)
    if any(True for _ in module.parameters()):
        raise ModelError(
            f"'{path}' is a {type(module).__name__}, which a stack cannot hold: use "
            "Linear and Conv2d layers."
        )
    return module(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def _convolve(module: nn.Conv2d, path: str, parameters: Params, x: Tensor) -> Tensor:
    """A convolution as one product of its windows for each sample.

    One product a sample keeps the sums of the weight's gradient short, so that they
    are spread over the whole device.
    """
    if (module.groups, module.dilation, module.padding) != (1, (1, 1), (0, 0)):
        raise ModelError(f"'{path}' is padded, dilated or grouped: a stack takes none.")
    (height, width), (down, right) = module.kernel_size, module.stride
    windows = x.unfold(3, height, down).unfold(4, width, right)
    rows, columns = windows.shape[3:5]
    # [networks, batch, channel, row, column, height, width] -> position x taps
    windows = windows.permute(0, 1, 3, 4, 2, 5, 6).flatten(4).flatten(2, 3)
    weight = parameters[f"{path}weight"].flatten(2).transpose(1, 2)
    outputs = windows @ weight[:, None]
    if module.bias is not None:
        outputs = outputs + parameters[f"{path}bias"][:, None, None]
    return outputs.unflatten(2, (rows, columns)).permute(0, 1, 4, 2, 3)
