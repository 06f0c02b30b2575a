"""Bad input: one sentence, the right exit code, no traceback, no half-written file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from support.users import namespace, net

from flatgauge.cli import main
from flatgauge.results import Report

__all__ = ["net"]


class Payload:
    """Something that only pickle's full power can load."""

    def __reduce__(self):
        return (os.system, ("true",))


def files(folder: Path, net: str) -> dict[str, str]:
    """Weights that do not fit, by what is wrong with them."""
    state = namespace(net)["model"]().state_dict()
    first, *rest = state
    contents = {
        "lacks": {name: state[name] for name in rest},
        "extra": {**state, "head.weight": torch.zeros(1)},
        "shape": {**state, first: torch.zeros(1, 1)},
        "twice": {"model": state, "ema": state, "optimizer": {"exp_avg": state}},
        "list": [1, 2],
        "code": {"weights": Payload()},
    }
    paths = {name: str(folder / f"{name}.pt") for name in contents}
    for name, content in contents.items():
        torch.save(content, paths[name])
    for name in ("garbage.pt", "garbage.safetensors"):
        (folder / name).write_bytes(b"not a checkpoint")
        paths[name] = str(folder / name)
    (folder / "empty").mkdir()
    (folder / "no_report.json").write_text('{"schema": "other"}')
    (folder / "broken.json").write_text('{"schema": "flatgauge-report-1"}')
    (folder / "cut.json").write_text('{"schema": ')
    (folder / "syntax.py").write_text("def model(:\n")
    return paths


CASES = [
    ("measure missing.py:model {net}:data", "the file 'missing.py' was not found"),
    ("measure syntax.py:model {net}:data", r"could not be imported \(SyntaxError"),
    ("measure no.such.module:model {net}:data", "ModuleNotFoundError"),
    ("measure {net} {net}:data", "write file.py:function"),
    ("measure model {net}:data", "MODEL 'model' is not understood"),
    ("measure {net}:nothing {net}:data", "'nothing' in .* is no such name"),
    ("measure {net}:constant {net}:data", "'constant' in .* is int"),
    ("measure {net}:no_model {net}:data", "returned dict: it must return a torch"),
    ("measure {net}:fails {net}:data", r"failed \(ValueError: broken on purpose\)"),
    ("measure {net}:leaves {net}:data", r"failed \(SystemExit: 5\)"),
    ("measure {net}:model {net}:wrong_shape", "the model failed on batch 0"),
    ("measure {net}:model {net}:constant", "'constant' in .* is int"),
    ("measure {net}:model {net}:no_model", "data= is dict"),
    ("measure {net}:model words", "or one of digits, mnist:DIR, cifar10:DIR"),
    ("measure {net}:model mnist:", "names no folder: write mnist:DIR"),
    ("measure {net}:model mnist:nowhere", "train-images-idx3-ubyte' was not found"),
    ("measure {net}:model mnist:nowhere:test", "t10k-images-idx3-ubyte' was not"),
    ("measure {net}:model cifar10:nowhere", "data_batch_1.bin' was not found"),
    ("measure {net}:model {net}:data --weights gone.pt", "'gone.pt' were not found"),
    ("measure {net}:model {net}:data --weights {lacks}", "it lacks '0.weight'"),
    ("measure {net}:model {net}:data --weights {extra}", "has 'head.weight', which"),
    ("measure {net}:model {net}:data --weights {shape}", r"has shape \(1, 1\)"),
    (
        "measure {net}:model {net}:data --weights {twice}",
        "in several places, 'model', 'ema': say which with --key",
    ),
    (
        "measure {net}:model {net}:data --weights {twice} --key teacher",
        "no weights at 'teacher': it has 'ema', 'model'",
    ),
    ("measure {net}:model {net}:data --weights empty", "none of model.safetensors"),
    ("measure hf: {net}:data", "names no folder: write hf:DIR"),
    ("measure hf:empty {net}:data", "could not be opened as a Hugging Face folder"),
    ("measure {net}:model texts.jsonl", "need a tokenizer: give MODEL as hf:DIR"),
    ("measure {net}:model {net}:data --weights {list}", "holds list, no state dict"),
    ("measure {net}:model {net}:data --weights {code}", "loading it could run code"),
    ("measure {net}:model {net}:data --weights {garbage.pt}", "garbage.pt' "),
    (
        "measure {net}:model {net}:data --weights {garbage.safetensors}",
        "is no safetensors file",
    ),
    ("measure {net}:model {net}:data --measure sharp", "the measure 'sharp' is not"),
    (
        "measure {net}:model {net}:data --measure hessian-trace --option hessian-trace.x=1",
        "has no option 'x'; its options are",
    ),
    (
        "measure {net}:model {net}:data --measure hessian-trace "
        "--option hessian-trace.target=abc",
        "target= is 'abc': give a positive number",
    ),
    (
        "measure {net}:model {net}:data --measure hessian-spectral-norm[full=maybe]",
        "full= is 'maybe': give True or False",
    ),
    ("measure {net}:model {net}:data --option x", "write NAME.KEY=VALUE"),
    ("measure {net}:model {net}:data --loss l2", "the loss 'l2' is not known"),
    ("measure {net}:model {net}:data --dtype half", "use float32 or float64"),
    ("measure {net}:model {net}:data --device moon", "device 'moon' cannot be used"),
    ("measure {net}:model {net}:data --mode test", "mode= is 'test'"),
    ("measure {net}:model {net}:data --derivatives no", "derivatives= is 'no'"),
    ("measure {net}:model {net}:data --seed one", "Invalid value for '--seed'"),
    ("measure {net}:model {net}:data --max-samples 0", "--max-samples"),
    ("measure {net}:model {net}:data --batch-size -1", "--batch-size"),
    ("measure {net}:model {net}:batches --batch-size 2", "comes in batches already"),
    ("measure {net}:model {net}:data --json gone/a.json", "does not exist: make it"),
    ("measure {net}:model {net}:data --out .", "is a folder: name a file in it"),
    ("measure {net}:model {net}:data --out a.pdf", "known: give it one of .csv, .htm"),
    ("measure {net}:model", "Missing argument"),
    ("measure {net}:model {net}:data --colour", "No such option"),
    ("meazure {net}:model {net}:data", "No such command"),
    ("compare {net}:model {net}:data one={lacks}", "needs two checkpoints"),
    ("compare {net}:model {net}:data a={lacks} b={lacks}", "it lacks '0.weight'"),
    ("compare {net}:model {net}:data a={lacks} a={lacks}", "'a' was given twice"),
    ("compare {net}:model {net}:data {lacks} b={lacks}", "write NAME=WEIGHTS"),
    ("compare {net}:model {net}:data gone.pt", "'gone.pt' were not found"),
    ("compare {net}:model {net}:data {lacks}", "needs two checkpoints"),
    ("compare {net}:model {net}:data {lacks} {extra}", "has 'head.weight'"),
    (
        "compare {net}:model {net}:data a={lacks} b={lacks} --weights {lacks}",
        "drop --weights",
    ),
    ("landscape {net}:model {net}:data --normalize rows", "normalize= is 'rows'"),
    ("landscape {net}:model {net}:data --directions up", "directions= is 'up'"),
    ("landscape {net}:model {net}:data --to gone.pt", "'gone.pt' were not found"),
    ("spectrum {net}:model {net}:data --probes 1", "at least 2 probes"),
    ("spectrum {net}:model {net}:data --out a.csv", "there are no rows for a table"),
    ("symmetries {net}:model {net}:data --out a.tex", "there are no rows for a table"),
    ("report gone.json --out a.html", "'gone.json' could not be read as JSON"),
    ("report cut.json --out a.html", "could not be read as JSON"),
    ("report no_report.json --out a.html", "this is no flatgauge report"),
    ("report broken.json --out a.html", "report is incomplete"),
    ("papers nobody1999", "paper"),
]


@pytest.mark.parametrize(("line", "sentence"), CASES, ids=lambda text: text[:60])
def test_bad_input_is_one_sentence_and_exit_code_two(
    line, sentence, net, tmp_path, capsys
):
    paths = files(tmp_path, net)
    words = line.replace("{net}", net).split()
    for name, path in paths.items():
        words = [word.replace("{" + name + "}", path) for word in words]
    before = sorted(tmp_path.iterdir())
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("flatgauge: ")
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err
    assert re.search(sentence, printed.err), printed.err
    left = [path for path in tmp_path.iterdir() if path.name != "__pycache__"]
    assert sorted(left) == before


def test_debug_shows_the_traceback(net, capsys):
    assert main(["measure", f"{net}:fails", "digits", "--debug"]) == 2
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert "broken on purpose" in error


def test_an_error_of_our_own_has_a_code_of_its_own(net, capsys, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("flatgauge.run.measure", broken)
    assert main(["measure", f"{net}:model", f"{net}:data"]) == 3
    error = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in error
    assert error.count("\n") == 1


def test_a_folder_that_cannot_be_written(net, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda *_: False)
    arguments = ["measure", f"{net}:model", f"{net}:data"]
    assert main([*arguments, "--json", str(tmp_path / "a.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_disk_that_is_full(net, capsys, monkeypatch, tmp_path):
    def full(self: Report, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Report, "to_json", full)
    arguments = ["measure", f"{net}:model", f"{net}:data", "--measure", "hessian-trace"]
    assert main([*arguments, "--json", str(tmp_path / "a.json")]) == 2
    printed = capsys.readouterr()
    assert "No space left on device" in printed.err
    # The numbers are not lost.
    assert "hessian-trace" in printed.out


def test_warnings_become_notes(net, capsys, tmp_path):
    from flatgauge.cli.app import _show_warning
    from flatgauge.symmetry import SymmetryWarning

    _show_warning(SymmetryWarning("held\nfixed"), SymmetryWarning, "file.py", 1)
    _show_warning(UserWarning("not ours"), UserWarning, "file.py", 1)
    assert capsys.readouterr().err == "note: held fixed\n"
