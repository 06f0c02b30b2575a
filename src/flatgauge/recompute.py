"""Activations that are computed again instead of kept, also under second derivatives.

torch.utils.checkpoint saves memory in a gradient alone: the graph of that gradient, which
a Hessian needs, keeps what was recomputed. Here the pull-back of a block is an operation
of its own, which keeps its inputs and computes the block again when it is differentiated.
A gradient runs each block one more time, a product with the Hessian two more times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call

from flatgauge.errors import ModelError, OptionError
from flatgauge.isolation import ComposedWeightNorm
from flatgauge.kernels.convolution import OwnConvolutions
from flatgauge.kernels.layer_norm import OwnLayerNorms
from flatgauge.nested import leaves, map_leaves
from flatgauge.vectors import graph_nodes

PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, type(None))
"""What a block may be given beside tensors: it does not change between two calls."""
EMPTY = torch.empty(0)
# A block as a function of floating tensors.
Call = Callable[..., tuple[Tensor, ...]]


def blocks_of(model: nn.Module) -> dict[str, nn.Module]:
    """What is computed again.

    Raises:
        OptionError: if there is nothing with parameters.
    """
    found = outermost_elements(model)
    if not found:
        raise OptionError(
            "checkpoint=True recomputes the elements of nn.ModuleList or nn.Sequential, of "
            "which the model has none with parameters: leave it out."
        )
    return found


def outermost_elements(model: nn.Module) -> dict[str, nn.Module]:
    """Those of the outermost nn.ModuleList and nn.Sequential, if they have parameters."""
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{one}.") for one in found)
        if isinstance(module, nn.ModuleList | nn.Sequential) and not inside:
            for key, block in module.named_children():
                if any(True for _ in block.parameters()):
                    found[f"{name}.{key}" if name else key] = block
    return found


@contextmanager
def recomputed(blocks: dict[str, nn.Module]) -> Iterator[None]:
    """Calls of these blocks inside keep their inputs alone."""
    with forwards_replaced(blocks, _Forward):
        yield


@contextmanager
def forwards_replaced(
    modules: dict[str, nn.Module], made: Callable[[str, Bare], Callable[..., Any]]
) -> Iterator[None]:
    """Inside, other functions stand for the forwards of some modules.

    Args:
        modules: by name.
        made: of a name, and of the module with its own forward.
    """
    with ExitStack() as stack:
        for name, module in modules.items():
            own = module.__dict__.get("forward")
            module.forward = made(name, Bare(module, module.forward))
            stack.callback(_restore, module, own)
        yield


def _restore(module: nn.Module, own: Any) -> None:
    if own is None:
        del module.forward
    else:
        module.forward = own


@final
class _Forward:
    """What stands for the forward of a block."""

    def __init__(self, name: str, bare: Bare):
        self.name, self.block, self.bare = name, bare.block, bare

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.bare(*args, **kwargs)
        given = (args, kwargs)
        self._check(leaves(given), "gets")
        names, weights = zip(*self.block.named_parameters(), strict=True)
        buffers = dict(self.block.named_buffers())
        activations = [one for one in leaves(given) if _floating(one)]
        layout: list[Any] = []

        def call(*tensors: Tensor) -> tuple[Tensor, ...]:
            state = dict(zip(names, tensors[: len(names)], strict=True))
            state |= {name: buffer.clone() for name, buffer in buffers.items()}
            moved = iter(tensors[len(names) :])
            arguments, keywords = map_leaves(
                lambda leaf: next(moved) if _floating(leaf) else leaf, given
            )
            prefixed = {f"block.{name}": tensor for name, tensor in state.items()}
            # Modes of the first call are not in force in a backward.
            with OwnConvolutions(), OwnLayerNorms(), ComposedWeightNorm():
                outputs = functional_call(self.bare, prefixed, arguments, keywords)
            # Without tensors, which would keep their graph.
            layout[:] = [
                map_leaves(
                    lambda leaf: EMPTY if isinstance(leaf, Tensor) else leaf, outputs
                )
            ]
            found = tuple(one for one in leaves(outputs) if isinstance(one, Tensor))
            sizes = [float(one.detach().double().norm()) for one in map(_real, found)]
            if not first:
                first.extend(sizes)
            if not all(map(_close, sizes, first)):
                raise self._refusal("does not compute the same again")
            return found

        first: list[float] = []

        def checked(*tensors: Tensor) -> tuple[Tensor, ...]:
            """The first call, in which all that the block reads is in its place."""
            try:
                outputs = call(*tensors)
            except RuntimeError as error:
                if "in-place" in str(error):
                    raise self._refusal("changes its inputs in place") from error
                raise
            known = {id(one) for one in tensors}
            for node in graph_nodes(list(outputs)):
                leaf = getattr(node, "variable", None)
                if leaf is not None and id(leaf) not in known:
                    raise self._refusal("reads tensors that it is not given")
            return outputs

        results = iter(_Recomputed.apply(checked, call, *weights, *activations))
        self._check(leaves(layout[0]), "returns")
        return map_leaves(
            lambda leaf: next(results) if isinstance(leaf, Tensor) else leaf, layout[0]
        )

    def _check(self, found: Iterator[Any], does: str) -> None:
        for leaf in found:
            if not isinstance(leaf, (Tensor, *PLAIN)):
                raise self._refusal(f"{does} a {type(leaf).__name__}")

    def _refusal(self, what: str) -> ModelError:
        return ModelError(
            f"the block '{self.name}' {what}, so that it cannot be computed again: leave "
            "checkpoint=True out."
        )


@final
class Bare(nn.Module):
    """A module, `block`, without its hooks, which run around it."""

    def __init__(self, block: nn.Module, forward: Callable[..., Any]):
        super().__init__()
        self.block = block
        self.function = forward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the wrapped function returns."""
        return self.function(*args, **kwargs)


@final
class _Recomputed(torch.autograd.Function):
    """y = f(x), of which x is kept."""

    @staticmethod
    def forward(ctx: Any, checked: Call, call: Call, *inputs: Tensor) -> Any:
        ctx.call = call
        ctx.save_for_backward(*inputs)
        with torch.enable_grad():
            outputs = checked(*map(_leaf, inputs))
        # Not detach(), whose result keeps the graph for forward derivatives.
        own = {one.untyped_storage()._cdata for one in inputs}
        return tuple(
            one.data.clone() if one.untyped_storage()._cdata in own else one.data
            for one in outputs
        )

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        wanted = ctx.needs_input_grad[2:]
        found = iter(
            _PulledBack.apply(
                ctx.call, wanted, len(slopes), *slopes, *ctx.saved_tensors
            )
        )
        return None, None, *(next(found) if one else None for one in wanted)


@final
class _PulledBack(torch.autograd.Function):
    """(s, x) ↦ sᵀ ∂f/∂x, of which s and x are kept."""

    @staticmethod
    def forward(
        ctx: Any, call: Call, wanted: Sequence[bool], count: int, *tensors: Tensor
    ) -> Any:
        ctx.call, ctx.wanted, ctx.count = call, wanted, count
        ctx.save_for_backward(*tensors)
        with torch.enable_grad():
            inputs = [_leaf(one) for one in tensors[count:]]
            return _pulled(call, wanted, tensors[:count], inputs, False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *directions: Tensor) -> Any:  # type: ignore[override]
        with torch.enable_grad():
            points = [_leaf(one) for one in ctx.saved_tensors]
            count = ctx.count
            found = _pulled(ctx.call, ctx.wanted, points[:count], points[count:], True)
            curved = [
                (slope, along)
                for slope, along in zip(found, directions, strict=True)
                if slope.requires_grad
            ]
            asked = [
                one
                for one, needed in zip(points, ctx.needs_input_grad[3:], strict=True)
                if needed
            ]
            if not curved or not asked:
                second = iter([None] * len(asked))
            else:
                slopes, along = zip(*curved, strict=True)
                second = iter(
                    torch.autograd.grad(slopes, asked, along, allow_unused=True)
                )
        own = (next(second) if needed else None for needed in ctx.needs_input_grad[3:])
        return None, None, None, *own


def _pulled(
    call: Call,
    wanted: Sequence[bool],
    slopes: Sequence[Tensor],
    inputs: Sequence[Tensor],
    create_graph: bool,
) -> tuple[Tensor, ...]:
    """sᵀ ∂f/∂x for the wanted x."""
    outputs = call(*inputs)
    kept = [(o, s) for o, s in zip(outputs, slopes, strict=True) if o.requires_grad]
    asked = [one for one, needed in zip(inputs, wanted, strict=True) if needed]
    if not kept:
        return tuple(map(torch.zeros_like, asked))
    values, along = zip(*kept, strict=True)
    return torch.autograd.grad(
        values,
        asked,
        along,
        create_graph=create_graph,
        allow_unused=True,
        materialize_grads=True,
    )


def _leaf(tensor: Tensor) -> Tensor:
    found = tensor.detach()
    return found.requires_grad_() if _floating(tensor) else found


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _close(one: float, other: float) -> bool:
    """Equal up to rounding; sums on a GPU come in any order."""
    return one == other or math.isclose(one, other, rel_tol=1e-5) or one != one


def _floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
