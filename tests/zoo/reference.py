"""Dense float64 references of a trial by torch's double backward, and nothing of ours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fuzz.losses import entropies, normalized_entropies, squares
from zoo.plain_functions import twice_differentiable
from zoo.registry import Trial

# Rows of a loss that get gradients of their own.
MOST_ROWS = 512
# Rows of the Hessian that are computed at a time, and how near one by itself must be.
AT_ONCE, ALIKE = 128, 1e-9
# Parameters of a network from which on fewer rows are, for want of memory.
SMALL = 1e5


def in_double(value: Any) -> Any:
    """Floating tensors in float64, wherever they are."""
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {name: in_double(one) for name, one in value.items()}
    return tuple(map(in_double, value)) if isinstance(value, tuple) else value


def precise(trial: Trial) -> nn.Module:
    """The model in float64, in the mode that it is measured in, as it was written."""
    model: Any = getattr(trial.model, "_orig_mod", trial.model)
    model = model.module if isinstance(model, nn.DataParallel) else model
    model = model.double().train(trial.mode == "train")
    if hasattr(model, "set_experts_implementation"):
        # The grouped products of experts refuse float64.
        model.set_experts_implementation("eager")
    if hasattr(model, "gradient_checkpointing_disable"):
        model.gradient_checkpointing_disable()
    for module in model.modules():
        if hasattr(module, "recomputes"):
            module.recomputes = False
    return model


def outputs_of(trial: Trial, model: nn.Module) -> Tensor:
    """What the loss sees, of this model on the trial's batch in float64."""
    inputs = in_double(trial.inputs)
    # Some networks draw numbers that they do not use.
    with (
        torch.random.fork_rng(devices=[]),
        sdpa_kernel(SDPBackend.MATH),
        twice_differentiable(),
    ):
        if trial.forward is not None:
            return trial.forward(model, (inputs, in_double(trial.targets)))
        if isinstance(inputs, dict):
            found = model(**inputs)
        else:
            found = model(*inputs) if isinstance(inputs, tuple) else model(inputs)
    return found["logits"] if isinstance(found, Mapping) else found


class Reference:
    """The loss of a trial as a function of some of its parameters."""

    def __init__(self, trial: Trial, names: Iterable[str]):
        self.trial, self.model = trial, precise(trial)
        known = dict(self.model.named_parameters())
        self.model.requires_grad_(False)
        self.params = {name: known[name].requires_grad_() for name in names}
        self.theta = torch.cat([p.detach().flatten() for p in self.params.values()])

    @property
    def rows_are_few(self) -> bool:
        """Whether the loss is a mean over rows, each of which can have its gradient."""
        rows = self.trial.targets.numel()
        return isinstance(self.trial.loss, str) and rows <= MOST_ROWS

    def row_losses(self, loss: str = "own") -> Tensor:
        outputs = outputs_of(self.trial, self.model)
        targets = in_double(self.trial.targets)
        if not isinstance(self.trial.loss, str):
            return self.trial.loss(outputs, targets)
        if self.trial.loss == "mse":
            return squares(outputs.flatten(1), targets.flatten(1))
        if self.trial.shifted:
            outputs, targets = outputs[:, :-1], targets[:, 1:]
        rows = normalized_entropies if loss != "own" else entropies
        return rows(outputs.flatten(0, -2), targets.flatten())

    def value(self, loss: str = "own") -> Tensor:
        return self.row_losses(loss).mean()

    def hessian(self, loss: str = "own") -> Tensor:
        g = self._slope(self.value(loss), create_graph=True)
        if not g.requires_grad:
            return torch.zeros(len(g), len(g), dtype=g.dtype)
        rows = self._rows(g)
        return (rows + rows.T) / 2

    def row_gradients(self) -> tuple[Tensor, Tensor]:
        losses = self.row_losses()
        return self._rows(losses), torch.ones(len(losses), dtype=torch.float64)

    def by_name(self, vector: Tensor) -> dict[str, Tensor]:
        parts = vector.split([p.numel() for p in self.params.values()])
        return {
            name: part.view_as(p)
            for part, (name, p) in zip(parts, self.params.items(), strict=True)
        }

    def _rows(self, values: Tensor) -> Tensor:
        """The gradient of every entry: many at a time, where torch can, and as alone."""
        unit = torch.eye(len(values), dtype=values.dtype)
        size = sum(p.numel() for p in self.model.parameters())
        at_once = max(1, int(AT_ONCE / max(1.0, size / SMALL)))
        try:
            found = torch.cat(
                [
                    self._slope(values, grad_outputs=some, is_grads_batched=True)
                    for some in unit.split(at_once)
                ]
            )
            middle = len(values) // 2
            alone = self._slope(values[middle], retain_graph=True)
            off = (found[middle] - alone).norm()
            if bool(off <= ALIKE * (alone.norm() + 1e-30)):
                return found
        except (RuntimeError, ValueError, TypeError):
            pass
        return torch.stack([self._slope(one, retain_graph=True) for one in values])

    def _slope(self, values: Tensor, **how: Any) -> Tensor:
        batch = how["grad_outputs"].shape[:1] if "is_grads_batched" in how else ()
        leaves = list(self.params.values())
        found = torch.autograd.grad(
            values, leaves, allow_unused=True, **{"retain_graph": True, **how}
        )
        parts = [
            leaf.new_zeros(*batch, leaf.numel())
            if one is None
            else one.reshape(*batch, -1)
            for one, leaf in zip(found, leaves, strict=True)
        ]
        return torch.cat(parts, -1)


def chosen(model: nn.Module, names: Iterable[str], most: int) -> list[str]:
    """Whole tensors of every kind: the smallest of each first, then more while they fit.

    A kind is the class of the module, the tensor's own name there, and its dimensions.
    """
    kinds: dict[Any, list[tuple[int, str]]] = defaultdict(list)
    tensors = dict(model.named_parameters())
    for name in names:
        owner, _, own = name.rpartition(".")
        module = _at(model, owner)
        kind = type(module).__name__, own, tensors[name].ndim
        kinds[kind].append((tensors[name].numel(), name))
    first = sorted(min(group) for group in kinds.values())
    rest = sorted(one for group in kinds.values() for one in group)
    found: list[str] = []
    for size, name in [*first, *rest]:
        if name not in found and size <= most:
            found.append(name)
            most -= size
    order = list(tensors)
    return sorted(found, key=order.index)


def _at(model: nn.Module, path: str) -> Any:
    try:
        return model.get_submodule(path)
    except AttributeError:
        return None
