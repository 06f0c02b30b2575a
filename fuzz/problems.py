"""One fuzz problem: a network, its data in batches, a loss, a mode and a precision."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fuzz.draw import Draw
from fuzz.losses import Loss, by_token, class_targets, losses
from fuzz.networks import Generated, generate

ORDERS = ("random", "by first input", "by first input, reversed", "large first",
          "small first")  # fmt: skip


@dataclass
class Problem:
    """Everything that an objective is made of.

    `coupled` says that the samples of a batch belong together: by the loss, or by batch
    statistics in training mode.
    """

    network: Generated
    batches: list[tuple[Tensor, Tensor]]
    loss: Loss
    mode: str
    dtype: torch.dtype
    coupled: bool
    words: str

    @property
    def samples(self) -> int:
        return sum(len(y) for _, y in self.batches)


def problem(seed: int, index: int) -> Problem:
    """The problem of this number: always the same one."""
    draw = Draw(seed, index)
    outputs = draw.between(2, 4)
    network = generate(draw, outputs)
    stem = network.model.stem
    loss = by_token(draw) if stem.by_token else draw.weighted(losses(outputs))()
    # A loss by token reads targets by token; others would be ambiguous in shape.
    mode = "train" if draw.chance(0.2) else "eval"
    coupled = loss.coupled is not None or (network.coupled and mode == "train")
    # What rounds inside, and what is unsound, is judged in float64 only.
    single = draw.chance(0.15) and not network.rounded and network.sound
    dtype = torch.float32 if single else torch.float64
    count = draw.between(3, 10)
    sizes = _sizes(draw, count, coupled)
    inputs, how = _ordered(draw, stem.inputs(draw, sum(sizes)))
    shape = inputs.shape[:2] if stem.by_token else inputs.shape[:1]
    targets = loss.targets(draw, tuple(shape), outputs)
    network.model.to(dtype)
    inputs, targets = _cast(inputs, dtype), _cast(targets, dtype)
    if loss.entropy and loss.targets is class_targets and draw.chance(0.1):
        targets, how = _certain(network, inputs), f"{how}, certain"
    batches = list(zip(inputs.split(sizes), targets.split(sizes), strict=True))
    words = (
        f"{network.words} | {loss.name}, {outputs} outputs, batches {sizes}, {how}, "
        f"{mode}, {str(dtype).removeprefix('torch.')}"
    )
    return Problem(network, batches, loss, mode, dtype, coupled, words)


def _certain(network: Generated, inputs: Tensor) -> Tensor:
    """The classes that the network finds, and scores so far apart that it is sure."""
    model = network.model
    training = model.training
    with torch.no_grad():
        model.head.weight.mul_(20)
        found = model.eval()(inputs).argmax(-1)
    model.train(training)
    return found


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _sizes(draw: Draw, count: int, coupled: bool) -> list[int]:
    """One batch, many, uneven ones, or one sample each; equal ones where coupled."""
    if coupled:
        return [max(count // 2, 3)] * draw.between(1, 2)
    how = draw.one_of(("one", "even", "uneven", "single"))
    if how == "one":
        return [count]
    if how == "single":
        return [1] * count
    if how == "even":
        size = draw.between(2, 4)
        rest = [count % size] if count % size else []
        return [size] * (count // size) + rest
    sizes: list[int] = []
    while sum(sizes) < count:
        sizes.append(draw.between(1, count - sum(sizes)))
    return sizes


def _ordered(draw: Draw, inputs: Tensor) -> tuple[Tensor, str]:
    """Data whose first samples may be special: of one kind, large, or small."""
    how = draw.one_of(ORDERS)
    if how == "random":
        return inputs, how
    if how.startswith("by first input"):
        keys = inputs.flatten(1)[:, 0]
        return inputs[keys.argsort(descending=how.endswith("reversed"))], how
    if not inputs.is_floating_point():
        return inputs, "random"
    sizes = torch.ones(len(inputs), dtype=inputs.dtype)
    far = max(1, 2 * len(inputs) // 3)
    sizes[:far] = 30.0 if how == "large first" else 0.01
    return inputs * sizes.view(-1, *([1] * (inputs.ndim - 1))), how
