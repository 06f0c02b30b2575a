"""Rotations of a stream that root-mean-square norms read, found by `symmetry.streams`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.errors import SymmetryError
from flatgauge.shapes import Float
from flatgauge.symmetry.maps.head_matrices import random_orthogonal


@dataclass(frozen=True)
class Stream:
    """A stream that linear maps write to and, behind norms, others read.

    Attributes:
        axes: tensors, each with the dimensions that run over the stream's coordinates.
        gains: what gains of the norms are made of, entry by entry.
        width: the number of coordinates.
    """

    axes: Mapping[str, tuple[int, ...]]
    gains: frozenset[str]
    width: int

    @property
    def names(self) -> frozenset[str]:
        """The tensors that are rotated, and the gains, which are not."""
        return frozenset(self.axes) | self.gains


def can_rotate(tensors: Mapping[str, Tensor], stream: Stream) -> bool:
    """Whether the gains of every norm are equal, as they are before training."""
    return all(
        bool((tensors[gain] == tensors[gain].flatten()[0]).all())
        for gain in stream.gains
    )


def rotate_stream(
    tensors: Mapping[str, Tensor],
    stream: Stream,
    rotation: Float[Tensor, "width width"],
) -> dict[str, Tensor]:
    r"""Write Q x for the stream x, and read with Qᵀ: ‖Q x‖ = ‖x‖, which is all a norm sees.

    SliceGPT (Ashkboos et al. 2024), Theorem 1. Gains that differ would have to be folded
    into what reads the stream first, which is no linear map of the parameters.

    Args:
        tensors: parameters by name.
        stream: where it is written and read.
        rotation: an orthogonal Q.

    Raises:
        SymmetryError: if Q is not orthogonal, or a norm's gains are not all equal.
    """
    unit = torch.eye(stream.width, dtype=rotation.dtype, device=rotation.device)
    if rotation.shape != unit.shape or float((rotation @ rotation.mT - unit).norm()) > (
        1e-10 * stream.width
    ):
        raise SymmetryError(
            f"a stream of width {stream.width} is turned by an orthogonal matrix of that "
            "size: draw one with random_orthogonal."
        )
    if not can_rotate(tensors, stream):
        raise SymmetryError(
            "the gains of a norm differ, and a rotation of what it reads does not commute "
            "with them: fold them into the matrices that follow, and set them to 1."
        )
    moved = dict(tensors)
    for name, axes in stream.axes.items():
        tensor = moved[name]
        for axis in axes:
            turned = torch.tensordot(rotation.to(tensor), tensor.movedim(axis, 0), 1)
            tensor = turned.movedim(0, axis)
        moved[name] = tensor.contiguous()
    return moved


def rotated_at_random(
    tensors: Mapping[str, Tensor], stream: Stream, seed: int, spread: float
) -> dict[str, Tensor]:
    """`rotate_stream` by a random rotation, uniform over the orthogonal group."""
    return rotate_stream(tensors, stream, random_orthogonal(stream.width, seed))
