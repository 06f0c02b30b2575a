"""Which parameters of a model are measured, on which device and in which precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from flatgauge.errors import ModelError

PRECISIONS = (torch.float32, torch.float64)


def chosen_parameters(
    model: nn.Module, predicate: Callable[[str], bool] | None
) -> Mapping[str, Tensor]:
    """The parameters to measure, by name."""
    floating = {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.is_floating_point()
    }
    for name, parameter in model.named_parameters():
        wanted = parameter.requires_grad if predicate is None else predicate(name)
        if parameter.is_complex() and wanted:
            raise ModelError(
                f"the parameter '{name}' is complex: store torch.view_as_real of it, or "
                "leave it out with params=."
            )
    if not floating:
        raise ModelError(
            "the model has no floating-point parameters to measure: give one that has."
        )
    if predicate is not None:
        chosen = {name: value for name, value in floating.items() if predicate(name)}
        if not chosen:
            raise ModelError(
                f"params= chose none of the {len(floating)} parameters (such as "
                f"'{next(iter(floating))}'): let it accept at least one name."
            )
    else:
        chosen = {
            name: value for name, value in floating.items() if value.requires_grad
        }
        if not chosen:
            raise ModelError(
                "all parameters are frozen: pass params=lambda name: True to measure "
                "them all the same."
            )
    for name, value in chosen.items():
        if value.is_meta or isinstance(value, nn.parameter.UninitializedParameter):
            raise ModelError(f"the parameter '{name}' has no data yet: load it first.")
    return chosen


def placement(
    chosen: Mapping[str, Tensor],
    device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> tuple[torch.device, torch.dtype]:
    """One device and one precision for everything."""
    if dtype is None:
        found = {value.dtype: name for name, value in chosen.items()}
        dtype = next(iter(found))
        if len(found) > 1:
            raise ModelError(
                f"the parameters have several types ({sorted(map(str, found))}): pass "
                "dtype=torch.float32 or torch.float64 to measure a copy in one."
            )
    if dtype not in PRECISIONS:
        raise ModelError(
            f"{dtype} is too coarse for second derivatives: pass dtype=torch.float32 (or "
            "torch.float64) to measure a copy in that precision."
        )
    if device is None:
        places = sorted({str(value.device) for value in chosen.values()})
        if len(places) > 1:
            raise ModelError(
                f"the parameters lie on several devices ({', '.join(places)}): pass "
                "device= to measure a copy on one."
            )
        device = places[0]
    try:
        # Norms and error bounds are computed in float64, which not every device has.
        torch.zeros((), dtype=torch.float64, device=device)
    except (AssertionError, RuntimeError, TypeError) as error:
        reason = str(error).split("\n")[0]
        raise ModelError(
            f"the device '{device}' cannot be used, or not in float64 ({reason}): pass "
            "device='cpu' to measure a copy there."
        ) from error
    return torch.device(device), dtype
