"""A callback for Hugging Face's Trainer."""

from __future__ import annotations

from typing import Any

from torch import nn

from flatgauge.integrations.hugging_face import loss_of
from flatgauge.integrations.monitor import FlatnessMonitor, first_samples

try:
    from transformers import (
        Trainer,
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )
except ImportError as error:
    raise ImportError(
        "the callback needs transformers: pip install 'flatgauge[transformers]'."
    ) from error


class FlatnessCallback(TrainerCallback):
    """Measures flatness while a Trainer trains, and logs it with `Trainer.log`.

        trainer.add_callback(FlatnessCallback(trainer, every=500))

    Training is not disturbed: weights, optimizer and random states are as without it. A
    measurement that fails is a warning. `monitor.series()` has all numbers, and a page.

    Args:
        trainer: whose log is written; callbacks are not told their trainer.
        data: a fixed part of the data, as for `flatgauge.Objective`; the first `samples`
            of the training data, through the trainer's own collator, if None.
        every: measure at steps that are multiples of it.
        share: of the training time, at most.
        samples: how many of the training data.
        loss: as for `Objective`; what the model's configuration says if None.
        more: what else a `FlatnessMonitor` takes: measures, options, seed, and what an
            `Objective` takes.
    """

    def __init__(
        self,
        trainer: Trainer,
        data: Any = None,
        *,
        every: int = 100,
        share: float = 0.05,
        samples: int = 256,
        loss: Any = None,
        **more: Any,
    ):
        model: Any = trainer.model
        self._trainer, self._samples = trainer, samples
        self._loader: Any = None
        self.monitor = FlatnessMonitor(
            self._training_data if data is None else data,
            loss=loss_of(type(model).__name__, model.config) if loss is None else loss,
            every=every,
            share=share,
            **more,
        )

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: Any = None,
        **_: Any,
    ) -> None:
        """The time begins."""
        self._loader = train_dataloader
        self.monitor.start()

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **_: Any,
    ) -> None:
        """Measure on the first process, if it is time to."""
        if model is None or not state.is_world_process_zero:
            return
        found = self.monitor(model, state.global_step)
        if found:
            # Writing a log takes the wish for the next one away.
            wished = control.should_log
            self._trainer.log(found)
            control.should_log = wished

    def _training_data(self) -> Any:
        return first_samples(self._loader, self._samples)()
