"""Flatness while a network is trained: every so many steps, within a share of the time.

It knows no trainer: the callbacks for Lightning and for Hugging Face's Trainer give it
their model and their step, and log what it returns; a loop of one's own does the same.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.data import IterableDataset

from flatgauge import deadline
from flatgauge.checkpoint_series import Point, Series
from flatgauge.errors import DataError, OptionError
from flatgauge.isolation import isolated
from flatgauge.objective import LossLike, Objective
from flatgauge.requests import asked_for, check_names, planned
from flatgauge.results import Report
from flatgauge.run import measure
from flatgauge.soundness import AS_GIVEN, CHECKED

MEASURES = (
    "fisher-rao-norm",
    "hessian-spectral-norm",
    "riemannian-spectral-norm[metric=node]",
    "hessian-trace",
)
"""What is measured if nothing else is said."""
OPTIONS = {"hessian-trace": {"target": 0.1}}
"""Where nothing else is said: a curve needs fewer digits than a table."""
LEAST = 0.05
"""Seconds below which it is not worth to begin."""
ROOM, MORE = 1.1, 1.5
"""How many times as long the next measurement may take at least, as the last one did: after
one that was whole, and after one that was cut short."""
CUT_SHORT = "Stopped by the budget"


class FlatnessWarning(UserWarning):
    """A measurement during training failed; the training goes on."""


class FlatnessMonitor:
    """Measures a model in training, and stays within a share of the time.

    The model is copied; the weights, the optimizer and all random states stay as they are.
    At most `share` of the time since the start goes into measurements: where they would
    take more than there is, they are left out until there is enough; the first ones, whose
    time is not known yet, are cut short, the dearest measure first. So the share is met to
    within a measurement or two. Numbers that cannot be trusted are not returned; all are
    in `series()`.

    Args:
        data: a fixed part of the data, as for `Objective`, or a function that returns it.
        measures: what to measure, as for `measure`.
        loss: as for `Objective`.
        every: measure at steps that are multiples of it.
        share: of the time from the first call on, or from `start`, at most.
        options: options by measure; a trace that is estimated is so to 10 % (`target`) if
            nothing is said.
        seed: for every random draw.
        part: of the model to measure, such as `lambda model: model.net`.
        settings: what else an `Objective` takes, such as `batch_size` or `forward`. In a
            training by several processes, one that calls measures by itself.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> monitor = FlatnessMonitor(data, "hessian-trace", loss="mse", every=5, share=0.5)
    >>> monitor(model, 4)
    {}
    """

    def __init__(
        self,
        data: Any,
        measures: str | Sequence[str] = MEASURES,
        *,
        loss: LossLike = "cross-entropy",
        every: int = 100,
        share: float = 0.05,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        seed: int = 0,
        part: Callable[[Any], nn.Module] | None = None,
        **settings: Any,
    ):
        if every < 1:
            raise OptionError(f"every= is {every}: give a positive number of steps.")
        if not 0 < share < 1:
            raise OptionError(f"share= is {share}: give a number between 0 and 1.")
        self.requests = asked_for((measures,))
        own = {name: one for name, one in OPTIONS.items() if name in self.requests}
        self._options, self._seed = {**own, **(options or {})}, seed
        plans = {one: planned(one, self._options) for one in self.requests}
        check_names(self._options, plans)
        self._names = {request: plan[0].name for request, plan in plans.items()}
        self._seconds = dict.fromkeys(self.requests, 0.0)
        self.every, self.share = every, share
        self.reports: dict[int, Report] = {}
        self.spent = 0.0
        self.loss = loss
        self._data, self._part = data, part
        self._settings = {"process_group": False, **settings}
        self._derivatives = self._settings.pop("derivatives", CHECKED)
        self._started: float | None = None
        self._needed = LEAST
        self._last: int | None = None

    def start(self) -> None:
        """The time begins now, if it has not begun."""
        if self._started is None:
            self._started = deadline.clock()

    def __call__(self, model: nn.Module, step: int) -> dict[str, float]:
        """Measure, if it is time to and there is time for it.

        Returns:
            Numbers by the names to log them under, with their errors; often none.
        """
        self.start()
        if step % self.every or step == self._last:
            return {}
        self._last = step
        left = self._left()
        if left < self._needed:
            return {}
        begun = deadline.clock()
        try:
            report = self._measured(model, left)
        # Whatever is wrong with the measurement, the training is worth more.
        except Exception as error:
            self._needed = self._spend(begun)
            line = next(iter(str(error).strip().splitlines()), "")
            warnings.warn(
                f"flatness was not measured at step {step} ({type(error).__name__}: "
                f"{line}); the training goes on.",
                FlatnessWarning,
                stacklevel=2,
            )
            return {}
        took = self._spend(begun)
        messages = [one.message for one in report.measurements.values()]
        cut = any(message.startswith(CUT_SHORT) for message in messages)
        self._needed = max(LEAST, (MORE if cut else ROOM) * took)
        self.reports[step] = report
        return logged(report)

    def series(self) -> Series:
        """What was measured so far, over steps: it has a page."""
        every = self.reports.items()
        return Series([Point("", f"step {step}", step, one) for step, one in every])

    def _left(self) -> float:
        """Seconds b with (spent + b) = share · (time since the start + b)."""
        assert self._started is not None
        since = deadline.clock() - self._started
        return (self.share * since - self.spent) / (1 - self.share)

    def _spend(self, begun: float) -> float:
        took = deadline.clock() - begun
        self.spent += took
        return took

    def _measured(self, model: nn.Module, left: float) -> Report:
        begun = deadline.clock()
        if callable(self._data):
            self._data = self._data()
        whole = bare(model)
        objective = Objective(
            whole if self._part is None else self._part(whole),
            self._data,
            self.loss,
            derivatives=self._derivatives,
            **self._settings,
        )
        # Once is enough: training changes the weights, not the code.
        self._derivatives = AS_GIVEN
        found: dict[str, Report] = {}
        # The dearest one last, with all that the others leave, so that these are whole.
        for request in sorted(self.requests, key=self._seconds.__getitem__):
            before = deadline.clock()
            name = self._names[request]
            found[request] = measure(
                objective,
                request,
                options={name: self._options[name]} if name in self._options else None,
                seed=self._seed,
                budget=max(LEAST, left - (before - begun)),
            )
            self._seconds[request] = deadline.clock() - before
            if found[request].extras.get("budget", {}).get("interrupted"):
                # It was meant for the training.
                raise KeyboardInterrupt
        first = found[self.requests[0]]
        return Report(
            {request: found[request][request] for request in self.requests},
            first.provenance,
            {
                "measures": {
                    request: one.extras["measures"][request]
                    for request, one in found.items()
                }
            },
        )


def logged(report: Report) -> dict[str, float]:
    """The numbers of a report that can be trusted, by names that every logger takes."""
    found: dict[str, float] = {}
    for request, one in report.measurements.items():
        if one.value is None or not one.status.trusted:
            continue
        name = "flatness/" + re.sub(r"[^\w/-]+", ".", request).strip(".")
        found[name] = one.value
        if one.two_sided is not None:
            found[f"{name}.error"] = one.two_sided
    return found


def bare(model: nn.Module) -> nn.Module:
    """The module inside of what distributes or compiles it."""
    while True:
        if isinstance(model, DataParallel | DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def first_samples(loader: Any, count: int) -> Callable[[], list[Any]]:
    """A function that takes the first samples of a loader's dataset, in batches.

    The loader itself is not asked: its order and its workers stay as they are.

    Args:
        loader: a DataLoader over a dataset with indices.
        count: how many.
    """

    def take() -> list[Any]:
        dataset: Any = getattr(loader, "dataset", None)
        if not hasattr(dataset, "__getitem__") or isinstance(dataset, IterableDataset):
            raise DataError(
                "the training data have no indices, so that no fixed part of them can "
                "be taken: give the callback data= of its own."
            )
        size = loader.batch_size or count
        chosen = range(min(count, len(dataset)))
        with isolated(torch.device("cpu")):
            return [
                loader.collate_fn([dataset[i] for i in chosen[start : start + size]])
                for start in range(0, len(chosen), size)
            ]

    return take
