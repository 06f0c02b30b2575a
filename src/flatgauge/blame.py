"""Which module's backward is not the derivative of its forward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from flatgauge.differences import examine
from flatgauge.nested import map_nested, tensors_in
from flatgauge.quotients import Verdict
from flatgauge.vectors import Params, generator


class Calls:
    """The first call of every module in a pass, innermost first; use as a context.

    Args:
        model: a model of ours; hooks are put on it and taken off again.
    """

    def __init__(self, model: nn.Module):
        self.model = model
        self.inputs: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self.finished: list[str] = []

    def __enter__(self) -> Calls:
        self._hooks = [
            hook
            for name, module in self.model.named_modules()
            for hook in self._follow(name, module)
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _follow(self, name: str, module: nn.Module) -> list[Any]:
        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            # Clones: a module may change its inputs in place.
            self.inputs.setdefault(
                name, map_nested(lambda t: t.detach().clone(), (args, kwargs))
            )

        def leave(*_: object) -> None:
            if name not in self.finished:
                self.finished.append(name)

        return [
            module.register_forward_pre_hook(enter, with_kwargs=True),
            module.register_forward_hook(leave),
        ]

    def culprit(self) -> str | None:
        """The innermost module that differs on its own inputs, in words."""
        for name in self.finished:
            module = self.model.get_submodule(name)
            if _differs(module, *self.inputs[name]):
                where = f"'{name}'" if name else "the model's own forward"
                return f"{where} ({type(module).__name__})"
        return None


def _differs(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether ⟨c, module(inputs)⟩ is unsound, c random, in its inputs and parameters."""
    inputs = [t for t in tensors_in((args, kwargs)) if t.is_floating_point()]
    point = {f"inputs.{index}": tensor for index, tensor in enumerate(inputs)}
    named = {n: p for n, p in module.named_parameters() if p.is_floating_point()}
    point |= {f"own.{name}": tensor.detach() for name, tensor in named.items()}
    if not point:
        return False

    def function(variables: Params) -> tuple[Tensor, float]:
        waiting = iter([variables[f"inputs.{index}"] for index in range(len(inputs))])
        given = map_nested(
            # Not the leaves themselves, which nothing may change in place.
            lambda t: next(waiting).clone() if t.is_floating_point() else t,
            (args, kwargs),
        )
        own = {name: variables[f"own.{name}"] for name in named}
        outputs = tensors_in(functional_call(module, own, *given))
        random = generator(3)
        total = torch.zeros((), dtype=torch.float64)
        size = 0.0
        for output in outputs:
            if output.requires_grad and output.is_floating_point():
                c = torch.randn(output.shape, generator=random, dtype=output.dtype)
                products = output * c.to(output.device)
                total = total.to(output.device) + products.sum()
                size += float(products.detach().norm())
        return total, size

    try:
        return examine(function, point).verdict is Verdict.DIFFERS
    # Whatever a user's module raises when it is called alone, it is not blamed then.
    except Exception:
        return False
