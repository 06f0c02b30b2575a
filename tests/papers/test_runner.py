"""The runner: what it makes, what it leaves, what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.stored import without_times
from support.synthetic_paper import PAPER, runs

from papers.experiment import Paper, Run
from papers.runner import main


def run(paper: Paper, *words: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main(paper, [str(word) for word in words])
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    assert run(PAPER, "--quick", "--out", folder) == 0
    return folder


def test_order_and_choice_change_nothing(whole, tmp_path):
    def backwards(quick: bool) -> list[Run]:
        return runs(quick)[::-1]

    assert run(PAPER, "--quick", "--out", tmp_path, "--only", "third") == 0
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["third.json"]
    assert "not run: first, second, fourth." in (tmp_path / "README.md").read_text()
    assert run(replace(PAPER, runs=backwards), "--quick", "--out", tmp_path) == 0
    assert run(PAPER, "--page", "--quick", "--out", tmp_path) == 0
    assert without_times(tmp_path) == without_times(whole)


def test_the_global_random_state_is_left_alone(tmp_path):
    state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    assert run(PAPER, "--quick", "--out", tmp_path) == 0
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() == dtype


def test_one_line_a_run(tmp_path, capsys):
    run(PAPER, "--quick", "--out", tmp_path, "--only", "first")
    run(PAPER, "--quick", "--out", tmp_path, "--only", "first", "second")
    first, again, second = capsys.readouterr().out.splitlines()
    assert first.startswith("synthetic first: ")
    assert first.endswith(" s")
    assert again == "synthetic first: already done"
    assert second.startswith("synthetic second: ")


def test_a_stale_run_is_made_again(tmp_path, capsys):
    run(PAPER, "--quick", "--out", tmp_path, "--only", "first")
    capsys.readouterr()
    assert run(PAPER, "--out", tmp_path, "--only", "first") == 0
    said = capsys.readouterr().out.splitlines()
    path = tmp_path / "results" / "first.json"
    reason = f"'{path}' was made with other settings, so it is made again"
    assert said[0] == f"synthetic first: {reason}"
    assert len(said) == 2


def test_a_failing_run_does_not_stop_the_others(whole, tmp_path, capsys):
    def broken(quick: bool) -> list[Run]:
        first, second, *others = runs(quick)
        return [first, replace(second, compute=fail), *others]

    def fail(context, settings):
        raise RuntimeError("a wire is loose")

    code = run(replace(PAPER, runs=broken), "--quick", "--out", tmp_path)

    assert code == 1
    said = capsys.readouterr()
    assert said.err.endswith(
        "synthetic second: failed: RuntimeError: a wire is loose\n"
    )
    assert len(said.out.splitlines()) == 3
    assert not (tmp_path / "results" / "second.json").exists()
    assert "not run: second." in (tmp_path / "README.md").read_text()
    assert run(PAPER, "--quick", "--out", tmp_path) == 0
    assert without_times(tmp_path) == without_times(whole)


@pytest.mark.parametrize("part", ["figures", "page"])
def test_a_failing_page_or_figure_is_exit_code_one(part, tmp_path, capsys):
    def fail(results, where):
        raise KeyError("gone")

    paper = replace(PAPER, **{part: fail})
    assert run(paper, "--quick", "--page", "--out", tmp_path) == 1
    assert f"synthetic {part}: failed: KeyError: 'gone'" in capsys.readouterr().err


def test_missing_data_are_one_sentence_and_only_in_full(tmp_path, capsys):
    def with_data(quick: bool) -> list[Run]:
        return [replace(run, needs=("data",)) for run in runs(quick)[:1]]

    paper = replace(PAPER, runs=with_data)
    assert run(paper, "--out", tmp_path / "full") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "synthetic first: failed: it needs data: put the four idx files" in said.err
    assert run(paper, "--data", tmp_path, "--out", tmp_path / "full") == 1
    assert f"'{tmp_path}' holds no folder mnist/" in capsys.readouterr().err
    assert run(paper, "--quick", "--out", tmp_path / "quick") == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--data nowhere", "--data 'nowhere' was not found"),
        ("--device mps", "--device is 'mps': use cpu or cuda"),
        ("--only fifth", "there is no run 'fifth': use first, second, third, fourth"),
    ],
)
def test_wrong_options_are_one_sentence(words, sentence, tmp_path, capsys):
    assert run(PAPER, "--out", tmp_path, *words.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("papers: ")
    assert said.count("\n") == 1
    assert sentence in said
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_says_how_to_go_on(tmp_path, capsys):
    def interrupt(quick: bool) -> list[Run]:
        raise KeyboardInterrupt

    assert run(replace(PAPER, runs=interrupt), "--quick", "--out", tmp_path) == 130
    assert "goes on from here" in capsys.readouterr().err


def test_the_quick_page_says_that_it_is_quick(whole):
    assert "*The quick form" in (whole / "README.md").read_text()


def test_without_out_the_quick_form_leaves_the_committed_results_alone(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("papers.runner.ROOT", tmp_path)
    assert run(PAPER, "--quick", "--only", "first") == 0
    assert [path.name for path in (tmp_path / "synthetic").iterdir()] == ["quick"]
    assert run(PAPER, "--only", "first") == 0
    made = {path.name for path in (tmp_path / "synthetic").iterdir()}
    assert made == {"quick", "results", "figures", "README.md"}
