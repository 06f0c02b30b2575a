"""Where checkpoints are, and in which order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flatgauge.checkpoints import find_checkpoints
from flatgauge.checkpoints.places import step_of
from flatgauge.errors import ModelError


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def found(*places: str | Path) -> list[str]:
    return [one.name for one in find_checkpoints(places)]


def test_a_glob_and_a_folder_and_files_are_in_the_order_of_steps(tmp_path):
    names = ["net_9.pt", "net_10.pt", "net_100.pt"]
    touch(tmp_path, *names, "notes.txt")
    assert found(tmp_path) == names
    assert found(str(tmp_path / "*.pt")) == names
    assert found(tmp_path / names[2], tmp_path / names[0]) == [names[0], names[2]]
    # Named twice, it is there once.
    assert found(tmp_path, tmp_path / names[0]) == names


def test_folders_of_a_trainer(tmp_path):
    for step in (1000, 500):
        touch(tmp_path, f"checkpoint-{step}/model.safetensors")
        touch(tmp_path, f"checkpoint-{step}/optimizer.pt")
    touch(tmp_path, "best/model.safetensors")
    state = json.dumps({"global_step": 700})
    (tmp_path / "best" / "trainer_state.json").write_text(state)
    assert found(tmp_path) == ["checkpoint-500", "best", "checkpoint-1000"]
    assert find_checkpoints(tmp_path / "best")[0].step == 700


def test_names_without_steps_are_in_their_own_order(tmp_path):
    touch(tmp_path, "b.pt", "a10.pt", "a9.pt")
    assert found(tmp_path) == ["a9.pt", "a10.pt", "b.pt"]


def test_the_same_name_in_two_folders(tmp_path):
    touch(tmp_path, "one/last.pt", "two/last.pt")
    assert found(tmp_path / "one", tmp_path / "two") == ["one/last.pt", "two/last.pt"]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("epoch=3-step=1200.ckpt", 1200),
        ("step_50_epoch_2.pt", 50),
        ("epoch=3-val_loss=0.25.ckpt", 3),
        ("checkpoint-500", 500),
        ("iter0000700.pth", 700),
        ("v1.2-100.pt", 100),
        ("lr0.1.pt", None),
        ("last.ckpt", None),
    ],
)
def test_steps_in_names(name, step):
    assert step_of(Path(name)) == step


@pytest.mark.parametrize("place", ["gone.pt", "*.nothing", "empty"])
def test_nothing_there_is_said(place, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"were not found|has no checkpoints"):
        find_checkpoints(tmp_path / place)
