"""Rescalings around a batch norm: its gain and shift, and the rows in front of it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from flatgauge.errors import SymmetryError
from flatgauge.shapes import Float
from flatgauge.symmetry.maps.chain import (
    LAYERS,
    Layer,
    check_between,
    check_connection,
    check_positive,
    divide_inputs,
    layer_at,
    modules_in_order,
    scale_outputs,
)
from flatgauge.vectors import Params

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass(frozen=True)
class NormalizedLayer:
    """A layer, the batch norm right behind it, and the layer that reads its outputs.

    Attributes:
        layer: the layer in front.
        norm: the batch norm's gain and shift.
        following: the next layer, or None if the norm's outputs are the model's.
        batch_statistics: whether the norm divides by the batch's own statistics.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1))
    >>> NormalizedLayer.of(net, "1").norm
    Layer(weight='1.weight', bias='1.bias', groups=1)
    """

    layer: Layer
    norm: Layer
    following: Layer | None
    batch_statistics: bool

    @staticmethod
    def of(model: nn.Module, norm: str) -> NormalizedLayer:
        """The batch norm at path `norm` of a (nested) `nn.Sequential`.

        Raises:
            SymmetryError: if no affine batch norm stands there right behind a linear or
                convolutional layer.
        """
        modules = list(modules_in_order(model, ""))
        paths = [path for path, _ in modules]
        place = paths.index(norm) if norm in paths else -1
        path, module = modules[place]
        if place < 1 or not isinstance(module, _BATCH_NORMS) or not module.affine:
            raise SymmetryError(
                f"'{norm}' is not a batch norm with gain and shift behind a layer: "
                f"name one of {paths}."
            )
        before, layer = modules[place - 1]
        if type(layer) not in LAYERS:
            raise SymmetryError(
                f"'{before}' stands in front of the batch norm '{norm}', where a linear "
                "or convolutional layer must stand."
            )
        return NormalizedLayer(
            layer_at(before, layer),
            Layer(f"{path}.weight", f"{path}.bias"),
            _following(modules[place + 1 :], layer),
            module.training or not module.track_running_stats,
        )


def rescale_gain(
    params: Params, block: NormalizedLayer, scales: Float[Tensor, " channels"]
) -> Params:
    """Scale a batch norm's gain and shift by c, the columns that read them by 1/c.

    Exact in training and evaluation mode, with any eps.

    Args:
        params: the parameters.
        block: where the batch norm stands.
        scales: one positive factor per channel.

    Raises:
        SymmetryError: if no layer follows, or the scales do not fit.
    """
    if block.following is None:
        raise SymmetryError(
            "no layer follows the batch norm, so nothing can undo a change of its gain."
        )
    _check(params, block, scales)
    return divide_inputs(
        scale_outputs(params, block.norm, scales), block.following, scales
    )


def rescale_normalized_rows(
    params: Params, block: NormalizedLayer, scales: Float[Tensor, " channels"]
) -> Params:
    """Scale the rows in front of a batch norm that uses the batch's own statistics.

    Exact where eps vanishes beside the variances; else outputs move by about their ratio.
    The running statistics, which are no parameters, differ after the next training step.

    Args:
        params: the parameters.
        block: where the batch norm stands.
        scales: one positive factor per row.

    Raises:
        SymmetryError: in evaluation mode, or if the scales do not fit.
    """
    if not block.batch_statistics:
        raise SymmetryError(
            "the batch norm divides by stored statistics, which do not follow the rows: "
            "put the model in training mode, or use symmetries(), which moves buffers."
        )
    _check(params, block, scales)
    return scale_outputs(params, block.layer, scales)


def _check(
    params: Params, block: NormalizedLayer, scales: Float[Tensor, " channels"]
) -> None:
    check_positive(scales, f"'{block.norm.weight}'")
    channels = params[block.norm.weight].numel()
    if scales.numel() != channels:
        raise SymmetryError(
            f"the batch norm has {channels} channels, but {scales.numel()} scales were "
            "given: give one for each."
        )


def _following(rest: list[tuple[str, nn.Module]], layer: nn.Module) -> Layer | None:
    between: list[nn.Module] = []
    for path, module in rest:
        if type(module) in LAYERS:
            check_connection(path, layer, between, module)
            return layer_at(path, module)
        check_between(path, module, layer)
        between.append(module)
    return None
