"""Which parameters are matrices: used in linear maps, convolutions and embeddings.

Node-wise measures treat such a tensor as a matrix of row and column units. The model is
watched at the level of torch's own operators while it runs once, so that functional
code, fused layers and tied weights are seen too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from flatgauge.data import tensors_in
from flatgauge.objective import Objective

CONTRACTIONS = {
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "mv",
    "addmv",
    "dot",
    "linear",
    "embedding",
    "convolution",
    "_convolution",
    "lstm",
    "gru",
    "rnn_tanh",
    "rnn_relu",
    "mkldnn_rnn_layer",
    "_thnn_fused_lstm_cell",
}
VIEWS = {
    "t",
    "transpose",
    "permute",
    "view",
    "_unsafe_view",
    "reshape",
    "_reshape_alias",
    "alias",
    "detach",
    "slice",
    "select",
    "split",
    "split_with_sizes",
    "unbind",
    "chunk",
    "unsqueeze",
    "squeeze",
    "expand",
    "as_strided",
    "numpy_T",
}
FUSED_NAMES = re.compile(r"(qkv|c_attn|in_proj|query_key_value)", re.IGNORECASE)


@dataclass(frozen=True)
class Contraction:
    """How a parameter splits into matrices: dimension 0 by dimension 1, rest summed.

    `parts` counts separate matrices along `axis`: the groups of a convolution, or
    query, key and value of a fused projection.
    """

    name: str
    parts: int = 1
    axis: int = 0

    def matrices(self, tensor: Tensor) -> list[Tensor]:
        """The separate matrices, with kernel positions summed."""
        flat = tensor.flatten(2).sum(2) if tensor.ndim > 2 else tensor
        return list(flat.chunk(self.parts, dim=self.axis))


def contractions(objective: Objective) -> dict[str, Contraction]:
    """The parameters that are used as matrices, and as nothing else."""
    with objective.isolated():
        batch = next(objective.batches())
        watcher = _Watcher(objective)
        with watcher:
            objective.evaluate(objective.parameters, batch)
    return {
        name: _describe(objective, name, watcher.groups.get(name, 1))
        for name, tensor in objective.parameters.items()
        if tensor.ndim >= 2 and name in watcher.matrices - watcher.elementwise
    }


def _describe(objective: Objective, name: str, groups: int) -> Contraction:
    tensor = objective.parameters[name]
    rows, columns = tensor.shape[:2]
    fused = FUSED_NAMES.search(name) is not None and tensor.ndim == 2
    if fused and rows == 3 * columns:
        return Contraction(name, 3, 0)
    if fused and columns == 3 * rows:
        return Contraction(name, 3, 1)
    return Contraction(name, groups, 0)


class _Watcher(TorchDispatchMode):
    """Notes for each parameter whether operators use it as a matrix or entry by entry."""

    def __init__(self, objective: Objective):
        super().__init__()
        self._owners = {
            tensor.untyped_storage().data_ptr(): name
            for name, tensor in objective.parameters.items()
            if tensor.numel()
        }
        self.matrices: set[str] = set()
        self.elementwise: set[str] = set()
        self.groups: dict[str, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        operator = func.overloadpacket.__name__
        if operator in VIEWS:
            return output
        for tensor in tensors_in([list(args), kwargs or {}]):
            name = self._owners.get(tensor.untyped_storage().data_ptr())
            if name is None:
                continue
            if operator in CONTRACTIONS:
                if tensor.ndim >= 2:
                    self.matrices.add(name)
                if operator == "convolution":
                    self.groups[name] = args[8]
            else:
                self.elementwise.add(name)
        return output
