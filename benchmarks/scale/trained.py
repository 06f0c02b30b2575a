"""A wide ResNet with 11 million parameters, trained on CIFAR-10 in about two minutes."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import peers
from benchmarks.networks import Batch, wide_resnet
from benchmarks.scale.case import Found
from flatgauge.datasets import CIFAR_FILES, CIFAR_FOLDER, CIFAR_SHAPE

NAME = "WRN-16-8, trained"
FACTOR = 8
STEPS, BATCH = 2400, 512
LEARNING_RATE, WARM_UP, WEIGHT_DECAY = 0.4, 0.2, 5e-4
# The learning rate has come down by then, however slow the steps are.
MOST_SECONDS = 180.0
PADDING = 4


def cifar10(folder: Path, part: str) -> tuple[Tensor, Tensor] | None:
    """Images and labels, from those of the standard files that are there."""
    place = folder / CIFAR_FOLDER if (folder / CIFAR_FOLDER).is_dir() else folder
    paths = [place / name for name in CIFAR_FILES[part] if (place / name).exists()]
    if not paths:
        return None
    size = 1 + int(np.prod(CIFAR_SHAPE))
    content = b"".join(path.read_bytes() for path in paths)
    records = torch.from_numpy(
        np.frombuffer(content, np.uint8).reshape(-1, size).copy()
    )
    pixels = records[:, 1:].reshape(-1, *CIFAR_SHAPE).float() / 255
    return pixels, records[:, 0].long()


def trained(folder: Path | None, device: str) -> tuple[nn.Module, list[Batch], Found]:
    """The network in eval mode, four batches of its training images, and how it fares."""
    data = None if folder is None else cifar10(folder, "train")
    if folder is None or data is None:
        raise SystemExit(
            "benchmarks: the trained network needs CIFAR-10: name the folder of its "
            "binary files with --data."
        )
    shift, spread = _moments(data[0])
    images, labels = ((data[0] - shift) / spread).to(device), data[1].to(device)
    with peers.seeded(0):
        model = wide_resnet(FACTOR).to(device)
    started = time.perf_counter()
    steps = train(model, images, labels, STEPS, BATCH)
    found: Found = {
        "train seconds": time.perf_counter() - started,
        "steps": steps,
        "images": len(images),
        "train accuracy": accuracy(model, images[:10_000], labels[:10_000]),
    }
    test = cifar10(folder, "test")
    if test is not None:
        inputs = ((test[0] - shift) / spread).to(device)
        found["test accuracy"] = accuracy(model, inputs, test[1].to(device))
    parts = zip(images[:1024].split(256), labels[:1024].split(256), strict=True)
    return model, [(x.clone(), y.clone()) for x, y in parts], found


def train(
    model: nn.Module, images: Tensor, labels: Tensor, steps: int, size: int
) -> int:
    """SGD on random crops and flips in bfloat16; the number of steps it took."""
    model.train().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), momentum=0.9, weight_decay=WEIGHT_DECAY, nesterov=True
    )
    random = torch.Generator(images.device).manual_seed(0)
    padded = F.pad(images, [PADDING] * 4)
    started = time.perf_counter()
    taken = 0
    while True:
        elapsed = (time.perf_counter() - started) / MOST_SECONDS
        progress = max(taken / steps, elapsed)
        if progress >= 1:
            break
        rows = torch.randint(
            0, len(images), (size,), generator=random, device=images.device
        )
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * _height(progress)
        inputs = _cropped(padded, rows, random).to(memory_format=torch.channels_last)
        with torch.autocast(images.device.type, torch.bfloat16):
            outputs = model(inputs)
        loss = F.cross_entropy(outputs.float(), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        taken += 1
    model.eval().to(memory_format=torch.contiguous_format).zero_grad()
    return taken


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    pairs = zip(images.split(1000), labels.split(1000), strict=True)
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in pairs)
    return right / len(images)


def _height(progress: float) -> float:
    """Up to 1 in a straight line, then down to 0."""
    return min(progress / WARM_UP, (1 - progress) / (1 - WARM_UP))


def _cropped(padded: Tensor, rows: Tensor, random: torch.Generator) -> Tensor:
    """Each image at a place of its own within its padding, every other one mirrored."""
    device, side = padded.device, padded.shape[-1] - 2 * PADDING
    places = torch.randint(
        0, 2 * PADDING + 1, (2, len(rows), 1), generator=random, device=device
    )
    steps = torch.arange(side, device=device)
    down, right = places[0] + steps, places[1] + steps
    mirrored = torch.rand(len(rows), 1, generator=random, device=device) < 0.5
    right = torch.where(mirrored, right.flip(1), right)
    # With the channels last in between, since indices that lie apart come first.
    chosen = padded[rows[:, None, None], :, down[:, :, None], right[:, None, :]]
    return chosen.permute(0, 3, 1, 2)


def _moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel."""
    shape = (1, -1, 1, 1)
    spread = images.std(dim=(0, 2, 3)).view(shape)
    return images.mean(dim=(0, 2, 3)).view(shape), spread
