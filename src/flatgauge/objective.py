"""The objective: a model, data and a loss, at one point of parameter space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from flatgauge.data import Batch, Batches
from flatgauge.errors import DataError, NonFiniteError, NotDeterministicError
from flatgauge.isolation import isolated
from flatgauge.losses import Loss, resolve_loss
from flatgauge.network import Forward, Network
from flatgauge.vectors import (
    Params,
    add,
    check_finite,
    check_like,
    gradient_of,
    scale,
    zeros_like,
)

LossLike = str | Loss | Callable[[Any, Any], Tensor]
# Relative differences that rounding alone can make between two passes.
AGREEMENT = {torch.float64: 1e-9, torch.float32: 1e-4}


class Objective:
    """L(θ): the mean loss of a model over data, as a function of its parameters.

    The model is copied, so yours is never touched and may go on training. A batch
    counts by its samples, a token-level batch by its valid targets (-100 is ignored),
    so that other batch sizes give the same number. Outputs of a causal language model
    (a Hugging Face model that can generate and is no encoder-decoder, with one label
    a token) are shifted by one, unless `forward` is given.

    Args:
        model: any module; its parameters are float32 or float64.
        data: a DataLoader, a list of batches, a Dataset (with `batch_size`), or a pair
            of tensors. A batch is (inputs, targets) or a mapping with "labels"; inputs
            that are a tuple or a mapping become several arguments of the model.
        loss: "cross-entropy", "mse", "normalized-cross-entropy", or a callable
            (outputs, targets) that returns the mean over the batch or a value a sample.
        batch_size: for tensors and Datasets.
        device: where to compute; the model's own device if None.
        dtype: torch.float32 or torch.float64; the model's own if None.
        mode: "eval", or "train" for batch statistics (running ones stay untouched).
        params: a predicate on names that chooses the parameters, frozen ones included;
            by default those that require gradients.
        forward: callable(model, batch) -> outputs, instead of our own call.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> _ = model.weight.data.fill_(1.0)
    >>> X, y = torch.eye(2), torch.zeros(2, 1)
    >>> Objective(model, (X, y), loss="mse").value()
    1.0
    """

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        loss: LossLike = "cross-entropy",
        *,
        batch_size: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        mode: str = "eval",
        params: Callable[[str], bool] | None = None,
        forward: Forward | None = None,
    ):
        self.loss = resolve_loss(loss)
        self.network = Network(
            model, device=device, dtype=dtype, mode=mode, params=params, forward=forward
        )
        self._batches = Batches(
            data,
            batch_size=batch_size,
            device=self.device,
            dtype=self.dtype,
            any_batch=forward is not None and not isinstance(loss, str),
        )
        self.parameters: Params = self.network.parameters
        _check_finite_parameters(self.parameters)
        self._check_two_passes()
        self._check_reach()

    @property
    def device(self) -> torch.device:
        """Where parameters and batches live."""
        return self.network.device

    @property
    def dtype(self) -> torch.dtype:
        """The floating type of parameters and inputs."""
        return self.network.dtype

    def value(self) -> float:
        """L(θ), accumulated in float64."""
        if self._value is None:
            self._value = self._pass(seed=0)[0]
        return self._value

    def gradient(self) -> Params:
        """∇L(θ)."""
        total = zeros_like(self.parameters)
        with self.isolated():
            for batch in self.batches():
                point = self.leaves()
                total = add(total, gradient_of(self.batch_total(point, batch), point))
        gradient = scale(total, 1 / self.sample_count)
        check_finite(gradient, "gradient")
        return gradient

    def at(self, params: Params) -> Objective:
        """The same objective at another point."""
        moved = self._clone()
        checked = check_like(params, self.parameters)
        moved.parameters = {name: tensor.detach() for name, tensor in checked.items()}
        _check_finite_parameters(moved.parameters)
        return moved

    def with_loss(self, loss: LossLike) -> Objective:
        """The same model, data and point under another loss."""
        changed = self._clone()
        changed.loss = resolve_loss(loss)
        changed._check_two_passes()
        return changed

    def isolated(self, seed: int = 0) -> AbstractContextManager[None]:
        """The context that every pass runs in: see `flatgauge.isolation.isolated`."""
        return isolated(self.device, self._batches.source, self.network.recurrent, seed)

    def batches(self) -> Iterator[Batch]:
        """The batches, on the device; to be read inside `isolated()`."""
        return iter(self._batches)

    def leaves(self) -> Params:
        """The parameters as fresh leaves that require gradients."""
        return {
            name: tensor.detach().requires_grad_()
            for name, tensor in self.parameters.items()
        }

    def evaluate(self, params: Params, batch: Batch) -> tuple[Any, Any]:
        """The outputs at `params`, and the targets that belong to them."""
        return self.network.evaluate(params, batch)

    def batch_total(self, params: Params, batch: Batch) -> Tensor:
        """The sum of the losses of one batch, differentiable in `params`."""
        return self.loss.total(*self.evaluate(params, batch))[0]

    def _clone(self) -> Objective:
        twin = object.__new__(Objective)
        twin.__dict__.update(self.__dict__)
        twin._value = None
        return twin

    def _pass(self, seed: int) -> tuple[float, int, int]:
        """The mean loss, the number of rows and the number of batches."""
        total, rows, batches = 0.0, 0, 0
        with self.isolated(seed), torch.no_grad():
            for batch in self.batches():
                outputs, targets = self.evaluate(self.parameters, batch)
                batch_total, batch_rows = self.loss.total(outputs, targets)
                batch_value = float(batch_total)
                if not math.isfinite(batch_value):
                    raise NonFiniteError(
                        f"the loss of batch {batch.index} is {batch_value}: check that "
                        "batch and the model's outputs on it."
                    )
                total += batch_value
                rows += batch_rows
                batches += 1
        if rows == 0:
            raise DataError(
                "the data have no sample with a valid target: give at least one batch."
            )
        return total / rows, rows, batches

    def _check_two_passes(self) -> None:
        """Two passes under different random states must give the same loss."""
        first, again = self._pass(seed=0), self._pass(seed=1)
        self._value: float | None = first[0]
        self.sample_count, self.batch_count = first[1:]
        if first[1:] != again[1:]:
            raise NotDeterministicError(
                f"two passes over the data gave {first[1]} and {again[1]} samples in "
                f"{first[2]} and {again[2]} batches: give data that stay the same."
            )
        tolerance = AGREEMENT[self.dtype]
        if not math.isclose(first[0], again[0], rel_tol=tolerance, abs_tol=1e-12):
            advice = (
                "set dropout to 0 (or use mode='eval') and stop shuffling, which changes "
                "the batch statistics"
                if self.network.mode == "train"
                else "turn off random augmentation and random layers"
            )
            raise NotDeterministicError(
                f"two passes over the same data gave the losses {first[0]:.9g} and "
                f"{again[0]:.9g}: {advice}."
            )

    def _check_reach(self) -> None:
        """Every parameter that the loss depends on must be one that we can replace."""
        with self.isolated():
            batch = next(self.batches())
            point = self.leaves()
            total = self.batch_total(point, batch)
            if not total.requires_grad:
                unused = list(point)
            else:
                slopes = torch.autograd.grad(
                    total, list(point.values()), allow_unused=True
                )
                pairs = zip(point, slopes, strict=True)
                unused = [name for name, slope in pairs if slope is None]
            if unused:
                self.network.check_reach(
                    unused, lambda params: self.batch_total(params, batch)
                )


def _check_finite_parameters(parameters: Params) -> None:
    for name, tensor in parameters.items():
        if not bool(torch.isfinite(tensor).all()):
            raise NonFiniteError(
                f"the parameter '{name}' has NaN or infinite entries: load a checkpoint "
                "that trained to the end."
            )
