"""All papers in turn."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.synthetic_paper import PAPER

from papers.run import main


@pytest.fixture(autouse=True)
def two_papers(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.py").touch()
    monkeypatch.setattr("papers.run.ROOT", tmp_path)
    found = SimpleNamespace(import_module=lambda name: SimpleNamespace(PAPER=PAPER))
    monkeypatch.setattr("papers.run.importlib", found)


def test_every_paper_is_run_below_a_folder_of_its_own(tmp_path):
    out = tmp_path / "out"
    assert main(["--quick", "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {"one", "two"}
    assert (out / "one" / "README.md").read_text().startswith("# A synthetic paper")


def test_named_ones_only(tmp_path):
    out = tmp_path / "out"
    assert main(["two", "--quick", "--out", str(out)]) == 0
    assert [path.name for path in out.iterdir()] == ["two"]


def test_an_unknown_paper_is_one_sentence(capsys):
    assert main(["three"]) == 2
    assert capsys.readouterr().err == (
        "papers: there is no paper 'three' here: use one, two.\n"
    )


def test_one_failure_is_exit_code_one_and_the_other_paper_is_run(
    tmp_path, capsys, monkeypatch
):
    out = tmp_path / "out"
    (out / "one").mkdir(parents=True)
    (out / "one" / "results").write_text("in the way")
    assert main(["--quick", "--out", str(out)]) == 1
    assert (out / "two" / "README.md").is_file()
