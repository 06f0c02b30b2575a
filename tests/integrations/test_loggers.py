"""The callbacks' numbers arrive in the loggers that people use, as these store them.

None of the loggers is needed for development: what is not installed is skipped.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.folders import small_trainer
from support.training import dataset, patient
from torch.utils.data import DataLoader

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

MEASURES = ["hessian-spectral-norm", "spectral-norm-product"]
NAME = "flatness/spectral-norm-product"
STEPS = [2, 4]
Read = Callable[[Path, str], list[tuple[int, float]]]


def read_csv(folder: Path, name: str) -> list[tuple[int, float]]:
    (path,) = folder.rglob("metrics.csv")
    rows = csv.DictReader(path.read_text().splitlines())
    return [(int(row["step"]), float(row[name])) for row in rows if row[name]]


def read_tensorboard(folder: Path, name: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing import event_accumulator

    (path,) = folder.rglob("events.out.tfevents.*")
    events = event_accumulator.EventAccumulator(str(path)).Reload()
    return [(one.step, one.value) for one in events.Scalars(name)]


def read_mlflow(folder: Path, name: str) -> list[tuple[int, float]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(database(folder))
    (run,) = [
        run
        for one in client.search_experiments()
        for run in client.search_runs([one.experiment_id])
    ]
    history = client.get_metric_history(run.info.run_id, name)
    return [(one.step, one.value) for one in history]


def count_in_wandb(folder: Path, name: str) -> int:
    """How often a name stands in the records of an offline run."""
    (path,) = folder.rglob("run-*.wandb")
    return path.read_bytes().count(name.encode())


def database(folder: Path) -> str:
    return f"sqlite:///{folder / 'runs.db'}"


def fit(logger: Any, folder: Path) -> Any:
    import lightning.pytorch as pl
    from support.lit import Lit

    from flatgauge.integrations.lightning import FlatnessCallback

    made = FlatnessCallback(every=2, share=0.99, samples=16, measures=MEASURES)
    callback = patient(made)
    trainer = pl.Trainer(
        max_steps=4,
        accelerator="cpu",
        callbacks=[callback],
        logger=logger,
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(Lit(), DataLoader(dataset(), batch_size=8))
    return callback.monitor.reports


def train(report_to: str, folder: Path) -> Any:
    from flatgauge.integrations.transformers import FlatnessCallback

    trainer = small_trainer(folder, max_steps=4, report_to=[report_to])
    made = FlatnessCallback(every=2, share=0.99, samples=8, measures=MEASURES)
    callback = patient(made)
    trainer.add_callback(callback)
    trainer.train()
    return callback.monitor.reports


def assert_arrived(read: Read, folder: Path, name: str, reports: Any) -> None:
    expected = [reports[step]["spectral-norm-product"].value for step in STEPS]
    steps, values = zip(*read(folder, name), strict=True)
    assert list(steps) == STEPS
    assert list(values) == pytest.approx(expected)


@pytest.fixture
def lightning_loggers():
    pytest.importorskip("lightning")
    from lightning.pytorch import loggers

    return loggers


def test_csv_of_lightning(lightning_loggers, tmp_path):
    reports = fit(lightning_loggers.CSVLogger(tmp_path), tmp_path)
    assert_arrived(read_csv, tmp_path, NAME, reports)


def test_tensorboard_of_lightning(lightning_loggers, tmp_path):
    pytest.importorskip("tensorboard")
    reports = fit(lightning_loggers.TensorBoardLogger(tmp_path), tmp_path)
    assert_arrived(read_tensorboard, tmp_path, NAME, reports)


def test_mlflow_of_lightning(lightning_loggers, tmp_path):
    pytest.importorskip("mlflow")
    logger = lightning_loggers.MLFlowLogger(tracking_uri=database(tmp_path))
    assert_arrived(read_mlflow, tmp_path, NAME, fit(logger, tmp_path))


def test_wandb_of_lightning(lightning_loggers, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    fit(lightning_loggers.WandbLogger(save_dir=tmp_path, offline=True), tmp_path)
    wandb.teardown()  # until its service has written all
    assert count_in_wandb(tmp_path, NAME) >= len(STEPS)


def test_tensorboard_of_a_trainer(tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    pytest.importorskip("tensorboard")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))
    reports = train("tensorboard", tmp_path)
    assert_arrived(read_tensorboard, tmp_path / "logs", f"train/{NAME}", reports)


def test_mlflow_of_a_trainer(tmp_path):
    pytest.importorskip("accelerate")
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(database(tmp_path))
    reports = train("mlflow", tmp_path)
    mlflow.end_run()
    assert_arrived(read_mlflow, tmp_path, NAME, reports)


def test_wandb_of_a_trainer(tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb.init(mode="offline", dir=tmp_path)
    train("wandb", tmp_path)
    wandb.teardown()  # until its service has written all
    assert count_in_wandb(tmp_path, f"train/{NAME}") >= len(STEPS)
