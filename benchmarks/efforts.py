"""How many gradients the measures of the default set take: `python -m benchmarks.efforts`.

`flatgauge.measures.effort` has its numbers from here, in seconds of the processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import flatgauge as fg
from flatgauge.measures.workbench import Workbench
from flatgauge.requests import DEFAULT, planned
from flatgauge.vectors import generator, rademacher


class Recurrent(nn.Module):
    """An LSTM that reads a sequence, and a linear layer on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 64, batch_first=True)
        self.out = nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The scores of five classes."""
        return self.out(self.lstm(x)[0][:, -1])


def perceptron(activation: type[nn.Module]) -> fg.Objective:
    """Three layers on 1024 samples."""
    layers = [nn.Linear(784, 256), activation(), nn.Linear(256, 128), activation()]
    model = nn.Sequential(*layers, nn.Linear(128, 10))
    data = torch.randn(1024, 784), torch.randint(0, 10, (1024,))
    return fg.Objective(model, data, batch_size=256, derivatives="as given")


def convolutional() -> fg.Objective:
    """Four convolutions with batch normalization on 128 images."""

    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

    body = [*block(3, 16, 1), *block(16, 32, 2), *block(32, 32, 1), *block(32, 64, 2)]
    model = nn.Sequential(
        *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )
    data = torch.randn(128, 3, 32, 32), torch.randint(0, 10, (128,))
    return fg.Objective(model, data, batch_size=64, derivatives="as given")


def transformer() -> fg.Objective:
    """A GPT-2 with four layers, on 8 sequences of 64 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=4, n_embd=128, n_head=4, vocab_size=1000, n_positions=64,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    tokens = torch.randint(0, 1000, (8, 64))
    batches = [{"input_ids": some, "labels": some} for some in tokens.split(4)]
    return fg.Objective(GPT2LMHeadModel(config), batches, derivatives="as given")


def recurrent() -> fg.Objective:
    """An LSTM on 64 sequences."""
    data = torch.randn(64, 20, 16), torch.randint(0, 5, (64,))
    return fg.Objective(Recurrent(), data, batch_size=32, derivatives="as given")


CASES: dict[str, Callable[[], fg.Objective]] = {
    "perceptron, ReLU": lambda: perceptron(nn.ReLU),
    "perceptron, GELU": lambda: perceptron(nn.GELU),
    "convolutional": convolutional,
    "transformer": transformer,
    "recurrent": recurrent,
}


def seconds(function: Callable[[], Any], repeats: int = 1) -> float:
    """Seconds of the processor that one call takes."""
    started = time.process_time()
    for _ in range(repeats):
        function()
    return (time.process_time() - started) / repeats


def main() -> None:
    """Print a table for each network."""
    torch.set_num_threads(1)
    for name, build in CASES.items():
        torch.manual_seed(0)
        objective = build()
        objective.gradient()
        gradient = seconds(objective.gradient, 3)
        hessian = fg.Hessian(objective)
        vector = rademacher(objective.parameters, generator(0))
        hessian @ vector
        product = seconds(lambda h=hessian, v=vector: h @ v, 3)
        print(
            f"{name}: a gradient is {gradient:.4f} s, a product {product / gradient:.1f}"
        )
        for request in DEFAULT:
            info, options = planned(request, {})
            work = Workbench(objective)
            assert info.effort is not None
            effort = info.effort(work, options)
            taken = seconds(lambda i=info, w=work, o=options: i.function(w, **o))
            print(
                f"  {request:<40}{taken / gradient:8.1f} gradients, expected "
                f"{effort.whole:.1f}; {work.products} products"
            )


if __name__ == "__main__":
    main()
