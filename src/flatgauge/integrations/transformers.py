"""A callback for Hugging Face's Trainer."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from torch import nn

from flatgauge.integrations.hugging_face import loss_of
from flatgauge.integrations.monitor import (
    FlatnessMonitor,
    FlatnessWarning,
    bare,
    first_samples,
)

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

        Trainer(..., callbacks=[FlatnessCallback(every=500)])

    Training is not disturbed: weights, optimizer and random states are as without it. A
    measurement that fails is a warning. `monitor.series()` has all numbers, and a page.

    Args:
        data: a fixed part of the data, as for `flatgauge.Objective`; the first `samples`
            of the training data, through the trainer's own collator, if None.
        trainer: whose log is written; the one that trains if None.
        every: measure at steps that are multiples of it.
        share: of the training time, at most.
        samples: how many of the training data.
        loss: as for `Objective`; what the model's configuration says if None.
        more: what else a `FlatnessMonitor` takes: measures, options, seed, and what an
            `Objective` takes.
    """

    def __init__(
        self,
        data: Any = None,
        *,
        trainer: Trainer | None = None,
        every: int = 100,
        share: float = 0.05,
        samples: int = 256,
        loss: Any = None,
        **more: Any,
    ):
        self._trainer, self._samples, self._told = trainer, samples, loss is not None
        self._loader: Any = None
        self.monitor = FlatnessMonitor(
            self._training_data if data is None else data,
            loss="cross-entropy" if loss is None else loss,
            every=every,
            share=share,
            **more,
        )

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        train_dataloader: Any = None,
        **_: Any,
    ) -> None:
        """The time begins."""
        self._loader = train_dataloader
        self._trainer = self._trainer or _training(state)
        if self._trainer is None and state.is_world_process_zero:
            warnings.warn(
                "the trainer that trains was not found, and flatness is not logged, only "
                "kept in monitor.series(): give it as trainer=.",
                FlatnessWarning,
                stacklevel=2,
            )
        if not self._told and model is not None:
            whole = bare(model)
            config = getattr(whole, "config", None)
            self.monitor.loss = loss_of(type(whole).__name__, config)
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
        if found and self._trainer is not None:
            # Writing a log takes the wish for the next one away.
            wished = control.should_log
            self._trainer.log(found)
            control.should_log = wished

    def _training_data(self) -> Any:
        return first_samples(self._loader, self._samples)()


def _training(state: TrainerState) -> Trainer | None:
    """The Trainer that is calling: it tells its callbacks its state, but not itself."""
    frame = inspect.currentframe()
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, Trainer) and found.state is state:
            return found
        frame = frame.f_back
    return None
