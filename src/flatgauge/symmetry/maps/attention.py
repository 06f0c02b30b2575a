"""Per-head invertible matrices on attention: query against key, value against output.

Scores depend on q and k through q·k only, and the outputs on v through W_O v only, so
in each head q ↦ A q, k ↦ A⁻ᵀ k and v ↦ B v, W_O ↦ W_O B⁻¹ change nothing. Rotary
embeddings come between q and k, and leave only the matrices that commute with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from flatgauge.errors import SymmetryError
from flatgauge.shapes import Float
from flatgauge.symmetry.maps.head_matrices import Rotary, check_rotary
from flatgauge.vectors import Params

Rows = tuple[int, int]


@dataclass(frozen=True)
class Projection:
    """One linear map of an attention layer, addressed by parameter names.

    Args:
        weight: name of the weight, laid out (outputs, inputs).
        bias: name of the bias, or None.
        rows: first and last + 1 output of this projection in a fused weight.
        bias_rows: the same for a fused bias.
        transposed: the weight is laid out (inputs, outputs), as in GPT-2's Conv1D.
        appended: name of a vector put behind the projected tokens (`bias_k`, `bias_v`).
    """

    weight: str
    bias: str | None = None
    rows: Rows | None = None
    bias_rows: Rows | None = None
    transposed: bool = False
    appended: str | None = None


@dataclass(frozen=True)
class AttentionLayout:
    """Where the projections of one attention layer are, and how its heads share them.

    Args:
        query: the query projection.
        key: the key projection.
        value: the value projection.
        output: the output projection (its bias plays no part).
        heads: the number of query heads.
        kv_heads: the number of key-value heads, each serving heads/kv_heads query heads
            (grouped-query attention); None where every head has its own.
        rotary: how rotary embeddings pair the coordinates of a head: "half" for (i,
            i + h/2) as in Llama, "interleaved" for (2i, 2i + 1); None without them.
    """

    query: Projection
    key: Projection
    value: Projection
    output: Projection
    heads: int
    kv_heads: int | None = None
    rotary: Rotary | None = None

    def __post_init__(self) -> None:
        if self.heads < 1 or self.groups < 1 or self.heads % self.groups:
            raise SymmetryError(
                f"{self.heads} query heads cannot share {self.groups} key-value heads "
                "evenly: check heads and kv_heads."
            )
        for left, right in ((self.query, self.key), (self.value, self.output)):
            if (left.weight, left.rows) == (right.weight, right.rows):
                raise SymmetryError(
                    f"'{left.weight}' serves both sides of the map, which then cannot "
                    "be moved against each other: these projections are tied."
                )

    @property
    def groups(self) -> int:
        """The number of key-value heads, one matrix each."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @staticmethod
    def of(attention: nn.MultiheadAttention, prefix: str = "") -> AttentionLayout:
        """The layout of torch's multi-head attention, fused or separate, biased or not.

        Args:
            attention: the module.
            prefix: its name in the model, such as "encoder.attention".
        """
        dot = f"{prefix}." if prefix else ""
        width = attention.embed_dim
        bias = None if attention.in_proj_bias is None else f"{dot}in_proj_bias"
        fused = attention.in_proj_weight is not None

        def projection(part: int, letter: str, appended: str | None) -> Projection:
            rows = (part * width, (part + 1) * width)
            name = "in_proj_weight" if fused else f"{letter}_proj_weight"
            return Projection(
                f"{dot}{name}",
                bias,
                rows if fused else None,
                rows if bias else None,
                appended=appended,
            )

        extra = attention.bias_k is not None
        return AttentionLayout(
            projection(0, "q", None),
            projection(1, "k", f"{dot}bias_k" if extra else None),
            projection(2, "v", f"{dot}bias_v" if extra else None),
            Projection(f"{dot}out_proj.weight"),
            attention.num_heads,
        )


def transform_query_key(
    params: Params, layout: AttentionLayout, matrices: Float[Tensor, "groups h h"]
) -> Params:
    """Move queries by A and keys by A⁻ᵀ in each key-value head, biases along.

    Args:
        params: the parameters.
        layout: where the projections are.
        matrices: one invertible A for each key-value head.

    Raises:
        SymmetryError: if the matrices do not fit or are singular, or do not commute
            with the layout's rotary embeddings.
    """
    _check_matrices(
        matrices, layout.groups, _width(params, layout.query) / layout.heads
    )
    _check_matrices(matrices, layout.groups, _width(params, layout.key) / layout.groups)
    if layout.rotary is not None:
        check_rotary(matrices, layout.rotary)
    queries = matrices.repeat_interleave(layout.heads // layout.groups, dim=0)
    moved = _multiply(params, layout.query, queries)
    return _multiply(moved, layout.key, torch.linalg.inv(matrices).mT)


def transform_value_output(
    params: Params, layout: AttentionLayout, matrices: Float[Tensor, "groups h h"]
) -> Params:
    """Move values by B in each key-value head, and undo it in the output projection.

    Args:
        params: the parameters.
        layout: where the projections are.
        matrices: one invertible B for each key-value head.

    Raises:
        SymmetryError: if the matrices do not fit or are singular.
    """
    _check_matrices(
        matrices, layout.groups, _width(params, layout.value) / layout.groups
    )
    per_head = torch.linalg.inv(matrices).repeat_interleave(
        layout.heads // layout.groups, dim=0
    )
    output = layout.output
    weight = params[output.weight]
    columns = weight.T if output.transposed else weight
    if columns.shape[1] != layout.heads * matrices.shape[-1]:
        raise SymmetryError(
            f"'{output.weight}' reads {columns.shape[1]} coordinates, but the heads give "
            f"{layout.heads * matrices.shape[-1]}: check heads and kv_heads."
        )
    heads = columns.reshape(columns.shape[0], layout.heads, -1)
    undone = torch.einsum("ohi,hij->ohj", heads, per_head.to(weight))
    undone = undone.reshape(columns.shape)
    moved = _multiply(params, layout.value, matrices)
    return {**moved, output.weight: undone.T if output.transposed else undone}


def _width(params: Params, projection: Projection) -> int:
    if projection.rows is not None:
        return projection.rows[1] - projection.rows[0]
    return params[projection.weight].shape[1 if projection.transposed else 0]


def _multiply(
    params: Params, projection: Projection, matrices: Float[Tensor, "heads h h"]
) -> Params:
    """Multiply the outputs of a projection, head by head."""

    def rotate(tensor: Tensor, rows: Rows | None) -> Tensor:
        start, stop = rows or (0, tensor.shape[0])
        heads = tensor[start:stop].reshape(*matrices.shape[:2], -1)
        image = (matrices.to(tensor) @ heads).reshape(tensor[start:stop].shape)
        return torch.cat([tensor[:start], image, tensor[stop:]])

    weight = params[projection.weight]
    if projection.transposed:
        moved = {**params, projection.weight: rotate(weight.T, projection.rows).T}
    else:
        moved = {**params, projection.weight: rotate(weight, projection.rows)}
    if projection.bias is not None:
        bias = params[projection.bias]
        moved[projection.bias] = rotate(bias, projection.bias_rows)
    if projection.appended is not None:
        vector = params[projection.appended]
        moved[projection.appended] = rotate(vector.flatten(), None).view_as(vector)
    return moved


def _check_matrices(
    matrices: Float[Tensor, "groups h h"], groups: int, size: float
) -> None:
    if matrices.shape[0] != groups or matrices.shape[-1] != size:
        raise SymmetryError(
            f"{matrices.shape[0]} matrices of {matrices.shape[-1]} rows were given for "
            f"{groups} key-value heads of {size:g} coordinates: give one for each, of "
            "that size."
        )
    finite = bool(torch.isfinite(matrices).all())
    if not (finite and bool((torch.linalg.cond(matrices) < 1e12).all())):
        raise SymmetryError(
            "a matrix is singular, nearly so, or not finite, so it has no usable inverse: "
            "draw the matrices with random_gl."
        )
