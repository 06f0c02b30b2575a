"""The callback for Hugging Face's Trainer: it logs, and training does not notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.folders import save_folder, small_trainer
from support.training import assert_equal_bits, left_behind, patient

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from flatgauge.integrations.monitor import FlatnessWarning  # noqa: E402
from flatgauge.integrations.transformers import FlatnessCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*")


def train(folder: Path, given: dict[str, Any] | None) -> tuple[list[Any], Any, Any]:
    trainer = small_trainer(folder, max_steps=6, logging_steps=2, report_to=[])
    callback = None
    if given is not None:
        made = FlatnessCallback(every=2, share=0.99, samples=8, **given)
        callback = patient(made)
        trainer.add_callback(callback)
    trainer.train()
    return left_behind(trainer.model, trainer.optimizer), trainer, callback


MEASURES = {"measures": ["hessian-spectral-norm", "spectral-norm-product"]}


def test_training_is_the_same_and_the_log_has_numbers(tmp_path):
    found, trainer, callback = train(tmp_path / "with", MEASURES)
    expected, plain, _ = train(tmp_path / "without", None)
    assert_equal_bits(found, expected)
    name = "flatness/spectral-norm-product"
    history = trainer.state.log_history
    rows = {row["step"]: row[name] for row in history if name in row}
    assert list(rows) == [2, 4, 6]
    report = callback.monitor.reports[4]
    assert rows[4] == pytest.approx(report["spectral-norm-product"].value)
    assert report.provenance.samples == 8
    # The trainer's own logs are all there.
    losses = [
        [row["loss"] for row in one.state.log_history if "loss" in row]
        for one in (trainer, plain)
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 3


def test_a_failure_is_a_warning(tmp_path):
    expected, _, _ = train(tmp_path / "without", None)
    with pytest.warns(FlatnessWarning, match="the training goes on"):
        found, _, _ = train(tmp_path / "with", {**MEASURES, "data": torch.zeros(2)})
    assert_equal_bits(found, expected)


def begun(model: torch.nn.Module, folder: Path) -> FlatnessCallback:
    """A callback that heard of a training's begin, but from nobody's Trainer."""
    arguments = transformers.TrainingArguments(output_dir=str(folder), use_cpu=True)
    callback = FlatnessCallback()
    state, control = transformers.TrainerState(), transformers.TrainerControl()
    state.is_world_process_zero = True
    with pytest.warns(FlatnessWarning, match=r"give it as trainer=\."):
        callback.on_train_begin(arguments, state, control, model=model)
    return callback


@pytest.mark.parametrize(("labels", "loss"), [(1, "mse"), (2, "cross-entropy")])
def test_the_loss_is_the_model_s_own(labels, loss, tmp_path):
    model = save_folder(tmp_path, "BertForSequenceClassification", num_labels=labels)
    assert begun(model, tmp_path).monitor.loss == loss


def test_a_model_without_a_configuration_has_the_usual_loss(tmp_path):
    assert begun(torch.nn.Linear(2, 3), tmp_path).monitor.loss == "cross-entropy"


def test_of_two_trainers_the_one_that_trains_has_the_numbers(tmp_path):
    callback = patient(FlatnessCallback(every=1, share=0.99, samples=8, **MEASURES))
    inner = small_trainer(tmp_path, max_steps=1, report_to=[])
    inner.add_callback(callback)

    class Nested(transformers.TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            inner.train()

    outer = small_trainer(tmp_path, max_steps=1, report_to=[])
    outer.add_callback(Nested())
    outer.train()
    name = "flatness/spectral-norm-product"
    assert [name in row for row in inner.state.log_history].count(True) == 1
    assert not any(name in row for row in outer.state.log_history)
