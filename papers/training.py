"""Many networks of one shape, trained together.

Their parameters are stacked along a leading axis, so that one batched product serves all
of them, and Adam, which works entry by entry, treats each as if it were alone. Every
network has its own seed, from which come its initialization and its own order of the
data. On a GPU a training step is recorded once as a CUDA graph and replayed. Products
are in full float32 (or float64), never TF32: torch's default for matrix products, and no
cuDNN convolution is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flatgauge.errors import ModelError, OptionError
from flatgauge.vectors import Params, generator
from papers.points import with_parameters
from papers.stacked import forward

Values = list[float]
WARM_UP = 3
EVALUATED = 5000  # samples in one batch of an evaluation


@dataclass(frozen=True)
class Goal:
    """When a network counts as trained: at an epoch's end, on all training data.

    Attributes:
        accuracy: at least this share of the samples is classified correctly.
        loss: the mean cross-entropy is below this.
    """

    accuracy: float
    loss: float

    def met(self, loss: float, accuracy: float) -> bool:
        """Whether a network with this loss and accuracy is trained."""
        return accuracy >= self.accuracy and loss < self.loss


@dataclass(frozen=True)
class Stack:
    """Trained networks.

    Attributes:
        model: a network of their shape; its own values mean nothing.
        parameters: name -> the values of all networks, stacked.
        epochs: after which epoch each network's values were taken.
        reached: whether each network met the goal; None where none was set.
        history: at each evaluated epoch, the loss and the accuracy of every network.
    """

    model: nn.Module
    parameters: Params
    epochs: list[int]
    reached: list[bool] | None
    history: list[dict[str, Any]]

    def __len__(self) -> int:
        return len(self.epochs)

    def unstack(self, index: int) -> nn.Module:
        """One of the networks, as a module of its own; nothing is shared."""
        own = {name: values[index] for name, values in self.parameters.items()}
        return with_parameters(self.model, own)

    def evaluate(self, inputs: Tensor, targets: Tensor) -> tuple[Values, Values]:
        """The mean cross-entropy and the accuracy of every network."""
        return evaluate(self.model, self.parameters, inputs, targets)


def train(
    build: Callable[[], nn.Module],
    inputs: Tensor,
    targets: Tensor,
    *,
    seeds: Sequence[int],
    epochs: int,
    batch_size: int,
    learning_rate: float,
    goal: Goal | None = None,
    every: int = 1,
    graph: bool = True,
) -> Stack:
    """Train one network for each seed with Adam on the mean cross-entropy.

    An epoch is one pass over the data in the network's own random order; the last batch
    is smaller where the batch size does not divide the data, as with a DataLoader.

    Args:
        build: makes a network (an `nn.Sequential`) with torch's own random state.
        inputs: all inputs; they are computed on where they lie, in their dtype.
        targets: the classes, [n], or those of each network, [networks, n].
        seeds: one for each network.
        epochs: the most epochs.
        batch_size: samples in a batch.
        learning_rate: of Adam; its other settings are torch's defaults.
        goal: if given, each network's values are taken at the first epoch's end that
            meets it, and training stops when all have met it. A network that never
            meets it is taken after the last epoch.
        every: evaluate after every so many epochs, and after the last; with a goal,
            only then can it be met.
        graph: on a GPU, whether to replay the step as a CUDA graph.
    """
    if not seeds or min(epochs, batch_size, every) < 1:
        raise OptionError("there must be a seed, an epoch, and a sample in a batch.")
    targets = targets.expand(len(seeds), -1)
    model, parameters, orders = _initialize(build, seeds, inputs)
    on_gpu = inputs.is_cuda
    optimizer = torch.optim.Adam(
        list(parameters.values()), learning_rate, fused=on_gpu, capturable=on_gpu
    )
    step = _Step(model, parameters, inputs, targets, optimizer)
    runs = _Recorded(step) if graph and on_gpu else step
    taken = {name: tensor.detach().clone() for name, tensor in parameters.items()}
    taken_after = [0] * len(seeds)
    history: list[dict[str, Any]] = []
    for epoch in range(1, epochs + 1):
        order = torch.stack([torch.randperm(len(inputs), generator=g) for g in orders])
        for rows in order.to(inputs.device).split(batch_size, dim=1):
            runs(rows)
        if epoch % every and epoch != epochs:
            continue
        losses, accuracies = evaluate(model, parameters, inputs, targets)
        history.append({"epoch": epoch, "loss": losses, "accuracy": accuracies})
        for index, (loss, accuracy) in enumerate(zip(losses, accuracies, strict=True)):
            met = goal is not None and goal.met(loss, accuracy)
            if not taken_after[index] and met:
                _take(taken, parameters, index)
                taken_after[index] = epoch
        if all(taken_after):
            break
    reached = [after > 0 for after in taken_after]
    for index in range(len(seeds)):
        if not reached[index]:
            _take(taken, parameters, index)
            taken_after[index] = epochs
    return Stack(model, taken, taken_after, reached if goal else None, history)


@torch.no_grad()
def evaluate(
    model: nn.Module, parameters: Params, inputs: Tensor, targets: Tensor
) -> tuple[Values, Values]:
    """The mean cross-entropy and the accuracy of every network of a stack.

    Args:
        model: a network of their shape.
        parameters: of all networks, stacked.
        inputs: those of all networks.
        targets: the classes, [n], or those of each network, [networks, n].
    """
    count = len(next(iter(parameters.values())))
    loss = torch.zeros(count, dtype=torch.float64, device=inputs.device)
    right = torch.zeros_like(loss)
    targets = targets.expand(count, -1)
    pairs = zip(inputs.split(EVALUATED), targets.split(EVALUATED, 1), strict=True)
    for some, labels in pairs:
        outputs = forward(model, parameters, some.expand(count, *some.shape))
        loss += _losses(outputs, labels).double().sum(1)
        right += (outputs.argmax(2) == labels).sum(1)
    return (loss / len(inputs)).tolist(), (right / len(inputs)).tolist()


def _initialize(
    build: Callable[[], nn.Module], seeds: Sequence[int], inputs: Tensor
) -> tuple[nn.Module, Params, list[torch.Generator]]:
    """A network for the shape, the stacked parameters, and a generator for each order."""
    models, orders = [], []
    for seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            models.append(build())
            orders.append(generator(int(torch.randint(2**62, ()))))
    model = models[0].to(inputs)
    if any(True for _ in model.buffers()):
        raise ModelError("the network has buffers, which a stack cannot hold.")
    named = [dict(one.named_parameters()) for one in models]
    parameters = {
        name: torch.stack([one[name].detach().to(inputs) for one in named])
        .contiguous()
        .requires_grad_()
        for name in named[0]
    }
    return model, parameters, orders


def _take(taken: Params, parameters: Params, index: int) -> None:
    for name, tensor in parameters.items():
        taken[name][index] = tensor.detach()[index]


def _losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of every sample of every network."""
    flat = F.cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none")
    return flat.view(labels.shape)


@dataclass(frozen=True)
class _Step:
    """One step of Adam on the rows that each network is given: [networks, batch]."""

    model: nn.Module
    parameters: Params
    inputs: Tensor
    targets: Tensor
    optimizer: torch.optim.Adam

    def __call__(self, rows: Tensor) -> None:
        outputs = forward(self.model, self.parameters, self.inputs[rows])
        # The sum over networks of the mean over the batch: no network sees another.
        total = _losses(outputs, self.targets.gather(1, rows)).sum() / rows.shape[1]
        tensors = list(self.parameters.values())
        gradients = torch.autograd.grad(total, tensors)
        for tensor, gradient in zip(tensors, gradients, strict=True):
            tensor.grad = gradient.contiguous()
        self.optimizer.step()


@dataclass(frozen=True)
class _Recorded:
    """The same step, recorded as a CUDA graph for each size of a batch."""

    step: _Step
    graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = field(default_factory=dict)

    def __call__(self, rows: Tensor) -> None:
        size = rows.shape[1]
        if size not in self.graphs:
            self.graphs[size] = self._record(rows)
        graph, own = self.graphs[size]
        own.copy_(rows)
        graph.replay()

    def _record(self, rows: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        own = rows.clone()
        # Warming up takes real steps, which are taken back. Where Adam has no state yet
        # it makes one of zeros, and zeros are put back.
        state = self.step.optimizer.state
        parameters = list(self.step.parameters.values())
        before = [p.detach().clone() for p in parameters]
        moments = [{k: v.clone() for k, v in state[p].items()} for p in parameters]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self.step(own)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(own)
        with torch.no_grad():
            for p, value, old in zip(parameters, before, moments, strict=True):
                p.copy_(value)
                for key, tensor in state[p].items():
                    tensor.copy_(old[key]) if old else tensor.zero_()
        return graph, own
