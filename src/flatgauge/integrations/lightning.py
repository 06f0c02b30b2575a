"""A callback for Lightning's Trainer."""

from __future__ import annotations

from typing import Any

from flatgauge.integrations.monitor import FlatnessMonitor, first_samples

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    try:
        from pytorch_lightning import Callback, LightningModule, Trainer
    except ImportError as error:
        raise ImportError(
            "the callback needs Lightning: pip install 'flatgauge[lightning]'."
        ) from error


# It is a class of either package, which looks to the type checker like a variable.
class FlatnessCallback(Callback):  # pyright: ignore[reportGeneralTypeIssues]
    """Measures flatness while Lightning trains, and logs it with the trainer's loggers.

    Training is not disturbed: weights, optimizer and random states are as without it. A
    measurement that fails is a warning. `monitor.series()` has all numbers, and a page.

    Args:
        data: a fixed part of the data, as for `flatgauge.Objective`; the first `samples`
            of the training data if None, as pairs (inputs, targets) or mappings with
            "labels".
        every: measure at optimizer steps that are multiples of it.
        share: of the training time, at most.
        samples: how many of the training data.
        more: what else a `FlatnessMonitor` takes: measures, loss, options, seed, `part`
            for a part of the module, and what an `Objective` takes.
    """

    def __init__(
        self,
        data: Any = None,
        *,
        every: int = 100,
        share: float = 0.05,
        samples: int = 256,
        **more: Any,
    ):
        self.monitor = FlatnessMonitor(
            self._training_data if data is None else data,
            every=every,
            share=share,
            **more,
        )
        self._samples = samples
        self._trainer: Trainer | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The time begins."""
        self._trainer = trainer
        self.monitor.start()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Measure on the first process, if it is time to."""
        if not trainer.is_global_zero or not trainer.global_step:
            return
        found = self.monitor(pl_module, trainer.global_step)
        if found:
            for logger in trainer.loggers:
                logger.log_metrics(found, step=trainer.global_step)

    def _training_data(self) -> Any:
        assert self._trainer is not None
        return first_samples(self._trainer.train_dataloader, self._samples)()
