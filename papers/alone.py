"""One network trained by itself, with any layers: for those that no stack can hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flatgauge.errors import OptionError
from flatgauge.vectors import generator
from papers.training import EVALUATED, Goal

# Times the accuracy of a guess, up to which nothing was learnt.
GUESSED = 1.2


@dataclass(frozen=True)
class Descent:
    """How a network is trained.

    Attributes:
        kind: "sgd" or "adam".
        rate: the learning rate.
        momentum: of SGD.
        halved_every: after every so many epochs the rate is halved; None for never.
        epochs: the most epochs.
        batch_size: samples in a batch; the last one of an epoch is smaller.
        half: whether a GPU computes forward and backward in bfloat16, by autocast.
        given_up_after: so many epochs in a row of nothing but guesses; None for never.
    """

    kind: str
    rate: float
    epochs: int
    batch_size: int
    momentum: float = 0.0
    halved_every: int | None = None
    half: bool = False
    given_up_after: int | None = None


@dataclass(frozen=True)
class Trained:
    """A trained network.

    Attributes:
        model: in eval mode.
        epochs: after which epoch it was taken.
        reached: whether it met the goal; None where none was set.
        history: at each evaluated epoch, the mean loss and the accuracy in eval mode, on
            the first EVALUATED samples.
    """

    model: nn.Module
    epochs: int
    reached: bool | None
    history: list[dict[str, Any]]


def train_alone(
    build: Callable[[], nn.Module],
    inputs: Tensor,
    targets: Tensor,
    descent: Descent,
    *,
    seed: int,
    goal: Goal | None = None,
    every: int = 1,
) -> Trained:
    """Minimize the mean cross-entropy until the goal is met, or to the last epoch.

    It also ends where the loss is no number any more, or nothing was learnt for long.
    Nothing inside of an epoch waits for
    a GPU, and the goal is looked at on the first EVALUATED samples, then on all of them
    where those meet it.

    Args:
        build: makes the network with torch's own random state, which the seed sets here
            and which dropout goes on from: call it where that state is put back.
        inputs: all inputs; they are computed on where they lie, in their dtype.
        targets: the classes.
        descent: how.
        seed: of the weights, the order of the data and dropout.
        goal: looked at in eval mode; it is met where the first samples and all meet it.
        every: evaluate after every so many epochs, and after the last.
    """
    torch.manual_seed(seed)
    model = build().to(inputs)
    if inputs.ndim == 4 and inputs.is_cuda:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = _optimizer(model, descent)
    order = generator(seed)
    history: list[dict[str, Any]] = []
    first = inputs[:EVALUATED], targets[:EVALUATED]
    for epoch in itertools.count(1):
        rate = descent.rate
        if descent.halved_every:
            rate *= 0.5 ** ((epoch - 1) // descent.halved_every)
        for group in optimizer.param_groups:
            group["lr"] = rate
        model.train()
        rows = torch.randperm(len(inputs), generator=order).to(inputs.device)
        for some in rows.split(descent.batch_size):
            optimizer.zero_grad(set_to_none=True)
            with _precision(inputs, descent):
                outputs = model(inputs[some])
            F.cross_entropy(outputs.to(inputs.dtype), targets[some]).backward()
            optimizer.step()
        last = epoch >= descent.epochs
        if epoch % every and not last:
            continue
        loss, accuracy = evaluate_alone(model, *first)
        history.append({"epoch": epoch, "loss": loss, "accuracy": accuracy})
        met = (
            goal is not None
            and goal.met(loss, accuracy)
            and goal.met(*evaluate_alone(model, inputs, targets))
        )
        if met or last or math.isnan(loss) or _guesses(history, targets, descent):
            reached = None if goal is None else met
            return Trained(model.eval(), epoch, reached, history)
    raise AssertionError("there is no end to counting")


def _guesses(history: list[dict[str, Any]], targets: Tensor, descent: Descent) -> bool:
    """Whether the network has only guessed for as long as it is given."""
    patience = descent.given_up_after
    if patience is None or history[-1]["epoch"] < patience:
        return False
    since = history[-1]["epoch"] - patience
    most = GUESSED / (int(targets.max()) + 1)
    return all(one["accuracy"] <= most for one in history if one["epoch"] > since)


@torch.no_grad()
def evaluate_alone(
    model: nn.Module, inputs: Tensor, targets: Tensor
) -> tuple[float, float]:
    """The mean cross-entropy and the accuracy, in eval mode."""
    model.eval()
    loss = torch.zeros((), dtype=torch.float64, device=inputs.device)
    right = torch.zeros_like(loss)
    pairs = zip(inputs.split(EVALUATED), targets.split(EVALUATED), strict=True)
    for some, labels in pairs:
        outputs = model(some)
        loss += F.cross_entropy(outputs, labels, reduction="none").double().sum()
        right += (outputs.argmax(1) == labels).sum()
    return float(loss) / len(inputs), float(right) / len(inputs)


def _optimizer(model: nn.Module, descent: Descent) -> torch.optim.Optimizer:
    parameters = list(model.parameters())
    fused = parameters[0].is_cuda
    if descent.kind == "sgd":
        return torch.optim.SGD(
            parameters, descent.rate, momentum=descent.momentum, fused=fused
        )
    if descent.kind == "adam":
        return torch.optim.Adam(parameters, descent.rate, fused=fused)
    raise OptionError(f"the descent '{descent.kind}' is not known: use sgd or adam.")


def _precision(inputs: Tensor, descent: Descent) -> torch.autocast:
    on_gpu = inputs.is_cuda and descent.half
    return torch.autocast(inputs.device.type, torch.bfloat16, enabled=on_gpu)
