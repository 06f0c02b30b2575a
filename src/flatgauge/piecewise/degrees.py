"""In which parameters a computation is piecewise affine, read off its operations.

While a model runs, every tensor carries its degree in each parameter: 0 (it does not
depend on it), 1 (piecewise affine) or 2 (anything else). Linear and piecewise-linear
operations pass on the larger degree of their inputs, products add degrees, and every other
operation makes what it touches 2. That is a proof for the path that the data took,
whatever their values: a saturated tanh is no straight line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from flatgauge.nested import tensors_in
from flatgauge.vectors import Params

Degrees = dict[str, int]
OTHER = 2

# Affine, or affine on pieces, in all floating arguments together.
# fmt: off
LINEAR = {
    # views and layouts
    "alias", "as_strided", "clone", "detach", "diagonal", "diag_embed", "expand",
    "lift_fresh", "permute", "_reshape_alias", "select", "slice", "split",
    "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze",
    "_unsafe_view", "view", "_to_copy", "contiguous",
    # pieces put together
    "cat", "col2im", "constant_pad_nd", "copy", "copy_", "fill", "fill_", "flip",
    "gather", "im2col", "index", "index_add", "index_copy", "index_fill", "index_put",
    "index_select", "_unsafe_index", "_unsafe_index_put", "masked_fill",
    "masked_scatter", "masked_select", "native_channel_shuffle", "pixel_shuffle",
    "pixel_unshuffle", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
    "repeat", "replication_pad1d", "replication_pad2d", "replication_pad3d", "roll",
    "scatter", "scatter_add", "select_scatter", "slice_scatter", "stack", "take",
    "tril", "triu", "where", "zero", "zero_", "embedding",
    # sums
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "add", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "cumsum", "mean", "neg", "rsub", "sub", "sum", "trace",
    "upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "upsample_trilinear3d",
    # kinks and steps
    "abs", "adaptive_max_pool2d", "adaptive_max_pool3d", "amax", "amin", "ceil",
    "clamp", "clamp_max", "clamp_min", "cummax", "cummin", "floor", "hardshrink",
    "hardtanh", "kthvalue", "leaky_relu", "max", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "maximum", "median", "min", "minimum", "relu", "relu6",
    "round", "rrelu_with_noise", "sign", "softshrink", "sort", "threshold", "topk",
    "trunc",
}
# What they return does not depend on the numbers that they are given.
CONSTANT = {
    "empty_like", "full_like", "new_empty", "new_full", "new_ones", "new_zeros",
    "ones_like", "zeros_like",
}
# fmt: on
# Affine in each of these arguments, by position, and in no two of them together.
PRODUCTS = {
    **dict.fromkeys(["mul", "mm", "bmm", "mv", "dot", "matmul", "linear"], (0, 1)),
    **dict.fromkeys(["prelu", "_prelu_kernel", "outer"], (0, 1)),
    **dict.fromkeys(["convolution", "_convolution", "conv2d", "conv1d"], (0, 1)),
    **dict.fromkeys(["addmm", "baddbmm", "addmv", "addbmm", "addcmul"], (1, 2)),
    **dict.fromkeys(["_embedding_bag", "_embedding_bag_forward_only"], (0, 6)),
}
# Affine in the first argument, where the others depend on no parameter.
QUOTIENTS = {"div", "true_divide"}
# A product of input and gain with running statistics, anything else with those of the
# batch. The place of the argument that says so, if there is one.
BATCH_NORMS = {
    "native_batch_norm": 5,
    "cudnn_batch_norm": 5,
    "_batch_norm_no_update": None,
    "_native_batch_norm_legit_no_training": None,
}
STATISTICS = slice(3, 5)
# Affine in gain and bias, which come after these arguments, and in nothing before.
NORMS = {"native_layer_norm": 2, "native_group_norm": 1}


class DegreeWatcher(TorchDispatchMode):
    """A context in which a model runs at the tensors of `point`.

    Degrees are kept by storage, so that views and in-place operations are followed; where
    several tensors share one, they share the largest degree. Inside of torch.func some have
    none that could be told apart: from then on nothing is known of any parameter.
    """

    def __init__(self, point: Params):
        super().__init__()
        self._degrees: dict[int, Degrees] = {}
        self._lost: Degrees = {}
        self._names = list(point)
        # Storages that are freed would lend their addresses to others.
        self._held: list[Tensor] = list(point.values())
        for name, tensor in point.items():
            self._raise(tensor, {name: 1})

    def degrees(self, tensors: Iterable[Tensor]) -> Degrees:
        """The largest degree of some tensors in each parameter that they depend on."""
        found: Degrees = {}
        for tensor in tensors:
            _raise_to(found, self._degrees.get(self._place(tensor), {}))
        return {**found, **self._lost}

    def _place(self, tensor: Tensor) -> int:
        try:
            return _storage(tensor)
        except RuntimeError:
            self._lost = dict.fromkeys(self._names, OTHER)
            return id(tensor)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run the operation, and give its outputs their degrees."""
        kwargs = kwargs or {}
        degrees = self._result(func, args, kwargs)
        output = func(*args, **kwargs)
        if degrees:
            for tensor in tensors_in([output]):
                if tensor.is_floating_point() or tensor.is_complex():
                    self._raise(tensor, degrees)
            # Operations in place need not return what they changed.
            for index, argument in enumerate(func._schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    given = (
                        args[index] if index < len(args) else kwargs.get(argument.name)
                    )
                    for tensor in tensors_in([given]):
                        self._raise(tensor, degrees)
        return output

    def _result(self, func: Any, args: Any, kwargs: Any) -> Degrees:
        given = tensors_in([list(args), kwargs])
        everything = self.degrees(given)
        if not everything:
            return {}
        # |z| has no straight pieces, and its parts come from operations of other names.
        if any(tensor.is_complex() for tensor in given):
            return dict.fromkeys(everything, OTHER)
        name = func.overloadpacket.__name__
        plain = name[:-1] if name.endswith("_") and name not in LINEAR else name
        if plain in CONSTANT:
            return {}
        # scatter can multiply, too.
        if plain in LINEAR and "reduce" not in func._overloadname:
            return everything
        if plain in PRODUCTS:
            return self._product(args, kwargs, PRODUCTS[plain])
        if plain in QUOTIENTS and not self.degrees(tensors_in([args[1:], kwargs])):
            return everything
        if plain in BATCH_NORMS and not self.degrees(tensors_in([args[STATISTICS]])):
            flag = BATCH_NORMS[plain]
            if flag is None or not args[flag]:
                return self._product(args, kwargs, (0, 1))
        if plain in NORMS:
            before, after = args[: NORMS[plain]], args[NORMS[plain] :]
            own = self.degrees(tensors_in([after]))
            return own | dict.fromkeys(self.degrees(tensors_in([before])), OTHER)
        return dict.fromkeys(everything, OTHER)

    def _product(self, args: Any, kwargs: Any, factors: tuple[int, int]) -> Degrees:
        """The degrees of two factors add up; those of what is added to them do not."""
        one, other = (
            self.degrees(tensors_in(list(args[place : place + 1]))) for place in factors
        )
        found = {
            name: min(one.get(name, 0) + other.get(name, 0), OTHER)
            for name in {**one, **other}
        }
        rest = [arg for place, arg in enumerate(args) if place not in factors]
        _raise_to(found, self.degrees(tensors_in(rest)))
        named = self.degrees(tensors_in(kwargs))
        return {**found, **dict.fromkeys(named, OTHER)}

    def _raise(self, tensor: Tensor, degrees: Degrees) -> None:
        if not tensor.numel():
            return
        self._held.append(tensor)
        _raise_to(self._degrees.setdefault(self._place(tensor), {}), degrees)


def _raise_to(found: Degrees, others: Degrees) -> None:
    for name, degree in others.items():
        found[name] = max(found.get(name, 0), degree)


def _storage(tensor: Tensor) -> int:
    if tensor.layout is not torch.strided:
        return id(tensor)
    return tensor.untyped_storage().data_ptr()
