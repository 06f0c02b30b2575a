"""The callback for Lightning: it logs, and training does not notice."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import Any

import pytest
from support.training import (
    assert_equal_bits,
    dataset,
    dropout_network,
    left_behind,
    patient,
)
from torch.utils.data import DataLoader

pytest.importorskip("lightning")

import lightning.pytorch as pl
from lightning.pytorch.loggers import CSVLogger
from support.lit import Lit

from flatgauge.integrations.lightning import FlatnessCallback
from flatgauge.integrations.monitor import FlatnessWarning

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(num_workers|log_every_n_steps|GPU available).*",
    # Lightning's own, with the newest torch.
    "ignore::FutureWarning",
    "ignore::DeprecationWarning",
)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def train(callback: Any, folder: Path, **more: Any) -> tuple[list[Any], pl.Trainer]:
    model = Lit()
    trainer = pl.Trainer(
        max_steps=9,
        accelerator="cpu",
        callbacks=[] if callback is None else [callback],
        logger=CSVLogger(folder),
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        **more,
    )
    trainer.fit(model, DataLoader(dataset(), batch_size=8, shuffle=True))
    return left_behind(model, trainer.optimizers[0]), trainer


def watching(**more: Any) -> FlatnessCallback:
    return patient(FlatnessCallback(every=3, share=0.99, samples=16, **more))


def logged(trainer: pl.Trainer) -> dict[int, dict[str, str]]:
    path = Path(trainer.loggers[0].log_dir) / "metrics.csv"
    rows: dict[int, dict[str, str]] = {}
    for row in csv.DictReader(path.read_text().splitlines()):
        rows.setdefault(int(row["step"]), {}).update(
            {k: v for k, v in row.items() if v}
        )
    return rows


@pytest.mark.parametrize("accumulated", [1, 2])
def test_training_is_the_same_and_the_logger_has_numbers(accumulated, tmp_path):
    more = {"accumulate_grad_batches": accumulated}
    callback = watching()
    found, trainer = train(callback, tmp_path / "with", **more)
    expected, _ = train(None, tmp_path / "without", **more)
    assert_equal_bits(found, expected)
    rows = logged(trainer)
    trace = "flatness/hessian-trace"
    assert sorted(step for step, row in rows.items() if trace in row) == [3, 6, 9]
    report = callback.monitor.reports[6]
    assert float(rows[6][trace]) == pytest.approx(report["hessian-trace"].value)
    assert report.provenance.samples == 16


def test_a_part_of_the_module_on_data_of_one_s_own(tmp_path):
    callback = watching(data=dataset().tensors, part=lambda module: module.net)
    train(callback, tmp_path)
    assert callback.monitor.reports[3].provenance.model == "Sequential"
    assert callback.monitor.reports[3].provenance.samples == 48


def test_a_failure_is_a_warning(tmp_path):
    expected, _ = train(None, tmp_path)
    with pytest.warns(FlatnessWarning, match="the training goes on"):
        found, _ = train(watching(data="no data"), tmp_path)
    assert_equal_bits(found, expected)


def test_its_checkpoints_are_read_from_the_command_line(tmp_path):
    from flatgauge.checkpoints import load_weights, saved_arguments

    folder = tmp_path / "ck"
    callback = pl.callbacks.ModelCheckpoint(
        folder, every_n_train_steps=4, save_top_k=-1
    )
    train(callback, tmp_path, enable_checkpointing=True)
    paths = sorted(folder.glob("*.ckpt"))
    assert len(paths) == 2
    model = dropout_network()
    assert load_weights(model, paths[0]) == 4
    assert saved_arguments(paths[0]) == {"lr": 0.01}
