"""Is the share of a training's time kept that a callback was asked to keep?

`python -m benchmarks.training lightning --minutes 10 --share 0.05` trains a small
convolutional network on random images for so long, and takes the time of the callback from
outside, whatever the callback itself believes; `transformers` and `plain` are the other two.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from flatgauge.integrations.monitor import FlatnessMonitor, first_samples

SAMPLES, BATCH, CLASSES = 2048, 32, 10
WITHIN = 0.1
"""How far from the share that was asked for the one that was used may be, as a part of it."""


@dataclass
class Stopwatch:
    """The seconds inside a function."""

    seconds: float = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, with its time taken."""

        def timed(*args: Any, **more: Any) -> Any:
            begun = time.perf_counter()
            try:
                return function(*args, **more)
            finally:
                self.seconds += time.perf_counter() - begun

        return timed


class Images(Dataset[dict[str, Tensor]]):
    """Random images around ten random centers, as the trainers want them."""

    def __init__(self) -> None:
        draws = torch.Generator().manual_seed(0)
        centers = torch.randn(CLASSES, 3, 16, 16, generator=draws)
        self.labels = torch.randint(0, CLASSES, (SAMPLES,), generator=draws)
        noise = torch.randn(SAMPLES, 3, 16, 16, generator=draws)
        self.pixels = 0.3 * centers[self.labels] + noise

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": self.pixels[index], "labels": self.labels[index]}


class Classifier(nn.Module):
    """A small network whose forward a Trainer can call, too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 16), (16, 32)):
            convolution = nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False)
            layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
        end = [nn.Flatten(), nn.Dropout(0.1), nn.Linear(32 * 16, CLASSES)]
        self.net = nn.Sequential(*layers, *end)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """The scores, and the loss if there are labels."""
        scores = self.net(x)
        loss = {} if labels is None else {"loss": F.cross_entropy(scores, labels)}
        return {**loss, "logits": scores}


def lightning(seconds: float, settings: dict[str, Any]) -> tuple[Any, float, float]:
    """Lightning's Trainer: the monitor, the seconds of all and those of the callback."""
    import lightning.pytorch as pl

    from flatgauge.integrations.lightning import FlatnessCallback

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.whole = Classifier()

        def forward(self, *args: Any, **more: Any) -> Any:
            return self.whole(*args, **more)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.whole(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    callback, watch = FlatnessCallback(**settings), Stopwatch()
    callback.on_train_batch_end = watch.around(callback.on_train_batch_end)
    trainer = pl.Trainer(
        max_epochs=-1,
        max_time={"seconds": seconds},
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    begun = time.perf_counter()
    trainer.fit(Module(), DataLoader(Images(), BATCH, shuffle=True))
    return callback.monitor, time.perf_counter() - begun, watch.seconds


def transformers(seconds: float, settings: dict[str, Any]) -> tuple[Any, float, float]:
    """Hugging Face's Trainer."""
    import transformers as hf

    from flatgauge.integrations.transformers import FlatnessCallback

    class Until(hf.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = time.perf_counter() - begun > seconds

    callback, watch = FlatnessCallback(**settings), Stopwatch()
    callback.on_step_end = watch.around(callback.on_step_end)
    trainer = hf.Trainer(
        model=Classifier(),
        args=hf.TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=BATCH,
            max_steps=10**9,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            logging_strategy="no",
        ),
        train_dataset=Images(),
        callbacks=[callback, Until()],
    )
    begun = time.perf_counter()
    trainer.train()
    return callback.monitor, time.perf_counter() - begun, watch.seconds


def plain(seconds: float, settings: dict[str, Any]) -> tuple[Any, float, float]:
    """A loop of one's own."""
    model, loader = Classifier(), DataLoader(Images(), BATCH, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor, watch = (
        FlatnessMonitor(first_samples(loader, 256), **settings),
        Stopwatch(),
    )
    measured = watch.around(monitor)
    begun, step = time.perf_counter(), 0
    monitor.start()
    while time.perf_counter() - begun < seconds:
        for batch in loader:
            step += 1
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()
            measured(model, step)
    return monitor, time.perf_counter() - begun, watch.seconds


TRAINERS = {"lightning": lightning, "transformers": transformers, "plain": plain}


def main() -> None:
    """Train, and print what was asked for and what was used."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trainer", choices=TRAINERS)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--every", type=int, default=20)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="lightning|transformers|torch.utils.data")
    settings = {"every": asked.every, "share": asked.share}
    monitor, whole, inside = TRAINERS[asked.trainer](60 * asked.minutes, settings)
    used = inside / whole
    kept = abs(used / asked.share - 1) <= WITHIN
    print(
        f"{asked.trainer}: {whole:.1f} s, of which the callback took {inside:.2f} s in "
        f"{len(monitor.reports)} measurements.\n"
        f"Asked for {asked.share:.2%}, used {used:.2%}: "
        f"{'within' if kept else 'not within'} {WITHIN:.0%} of it."
    )


if __name__ == "__main__":
    main()
