"""The command line, called as its entry point calls it; see also test_cli_process."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.cases import CASES
from support.pages import full
from support.runs import save_run
from support.stored import assert_alike
from support.users import namespace, net

import flatgauge as fg
from flatgauge.cli import main
from flatgauge.cli.output import deliver
from flatgauge.cli.settings import Settings

__all__ = ["net"]


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: without_times(item)
            for key, item in value.items()
            if key not in ("time", "seconds")
        }
    return [without_times(item) for item in value] if isinstance(value, list) else value


def test_json_equals_that_of_the_python_call(net, tmp_path, capsys):
    weights = tmp_path / "weights.pt"
    torch.save(namespace(net)["model"]().state_dict(), weights)
    arguments = ["measure", f"{net}:model", f"{net}:batches", "--seed", "3"]
    arguments += ["--weights", str(weights), "--measure", "hessian-trace"]
    arguments += ["--measure", "riemannian-spectral-norm[metric=node]"]
    arguments += ["--option", "riemannian-spectral-norm.tol=1e-6"]
    assert main([*arguments, "--json", str(tmp_path / "a.json")]) == 0
    out = capsys.readouterr().out
    user = namespace(net)
    report = fg.measure(
        fg.Objective(user["model"](), user["batches"]()),
        "hessian-trace",
        "riemannian-spectral-norm[metric=node]",
        options={"riemannian-spectral-norm": {"tol": 1e-6}},
        seed=3,
    )
    report.to_json(tmp_path / "b.json")
    one, other = (without_times(load(tmp_path / f"{name}.json")) for name in "ab")
    assert_alike(one, other)
    assert str(report) in out


def test_weights_that_were_left_out_are_told(net, tmp_path, capsys):
    arguments = ["measure", f"{net}:model", f"{net}:data", "--measure", "hessian-trace"]
    files = ["--json", str(tmp_path / "a.json"), "--out", str(tmp_path / "a.html")]
    assert main([*arguments, *files]) == 0
    out = capsys.readouterr().out
    [caution] = load(tmp_path / "a.json")["extras"]["cautions"]
    assert caution.startswith("No --weights were given: the parameters are as ")
    assert caution in out
    assert f"<h1>{caution}</h1>" in (tmp_path / "a.html").read_text()
    weights = tmp_path / "weights.pt"
    torch.save(namespace(net)["model"]().state_dict(), weights)
    assert main([*arguments, "--weights", str(weights), *files]) == 0
    assert "--weights" not in capsys.readouterr().out
    assert "cautions" not in load(tmp_path / "a.json")["extras"]


def measured(arguments: list[str], tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "found.json"
    command = ["measure", *arguments, "--measure", "hessian-trace"]
    assert main([*command, "--json", str(path)]) == 0
    return load(path)


def test_data_of_every_form_give_the_same_number(net, tmp_path):
    values = {
        name: measured([f"{net}:model", f"{net}:{name}", *more], tmp_path)
        for name, more in {
            "data": [],
            "batches": [],
            "loader": [],
            "dataset": ["--batch-size", "3"],
        }.items()
    }
    traces = [v["measurements"]["hessian-trace"]["value"] for v in values.values()]
    assert traces == pytest.approx([traces[0]] * 4, rel=1e-12)


@pytest.mark.parametrize("name", ["data", "batches", "loader", "dataset"])
def test_max_samples_takes_the_first(net, tmp_path, name):
    more = ["--batch-size", "4"] if name == "dataset" else []
    arguments = [f"{net}:model", f"{net}:{name}", "--max-samples", "6", *more]
    found = measured(arguments, tmp_path)
    assert found["provenance"]["samples"] == 6
    user = namespace(net)
    inputs, targets = user["data"]()
    expected = fg.Objective(user["model"](), (inputs[:6], targets[:6])).value()
    assert found["provenance"]["loss_value"] == pytest.approx(expected, rel=1e-12)


def test_precision_mode_and_loss_are_passed_on(net, tmp_path):
    arguments = [f"{net}:model", f"{net}:data", "--dtype", "float32", "--mode", "train"]
    arguments += ["--loss", "normalized-cross-entropy", "--device", "cpu"]
    facts = measured(arguments, tmp_path)["provenance"]
    assert facts["dtype"] == "float32"
    assert facts["mode"] == "train"
    assert facts["loss"] == "normalized-cross-entropy"


def test_a_module_of_a_package_and_the_digits(net, tmp_path):
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "small.py").write_text(
        "from torch import nn\n"
        "def model():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    arguments = ["own_package.small:model", "digits", "--max-samples", "50"]
    assert measured(arguments, tmp_path)["provenance"]["samples"] == 50


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_weights_are_loaded(net, tmp_path, suffix):
    model = namespace(net)["model"]()
    state = {name: 2 * tensor for name, tensor in model.state_dict().items()}
    path = tmp_path / f"weights.{suffix}"
    if suffix == "pt":
        torch.save(state, path)
    else:
        from safetensors.torch import save_file

        save_file(state, path)
    found = measured([f"{net}:model", f"{net}:data", "--weights", str(path)], tmp_path)
    model.load_state_dict(state)
    expected = fg.Objective(model, namespace(net)["data"]()).value()
    assert found["provenance"]["loss_value"] == pytest.approx(expected, rel=1e-12)


def test_a_lightning_checkpoint_needs_no_code(net, tmp_path):
    user = namespace(net)
    module = user["Lit"](width=5)
    state = {name: 2 * tensor for name, tensor in module.state_dict().items()}
    content = {"state_dict": state, "hyper_parameters": {"width": 5, "unused": 1}}
    torch.save({**content, "global_step": 10}, tmp_path / "last.ckpt")
    arguments = [f"{net}:Lit", f"{net}:DataModule", "--weights"]
    found = measured([*arguments, str(tmp_path / "last.ckpt")], tmp_path)
    module.load_state_dict(state)
    expected = fg.Objective(module, user["data"]()).value()
    assert found["provenance"]["loss_value"] == pytest.approx(expected, rel=1e-12)


def test_saved_arguments_that_are_objects_are_not_made(net, tmp_path, capsys):
    state = namespace(net)["Lit"](width=5).state_dict()
    content = {"state_dict": state, "hyper_parameters": {"width": Path("five")}}
    torch.save(content, tmp_path / "last.ckpt")
    arguments = ["measure", f"{net}:Lit", f"{net}:data", "--weights"]
    assert main([*arguments, str(tmp_path / "last.ckpt")]) == 2
    assert "'width' in" in capsys.readouterr().err


def test_every_command_writes_results_and_a_page(net, tmp_path, capsys):
    weights = {}
    for name, factor in (("one", 1.0), ("two", 1.5)):
        state = namespace(net)["model"]().state_dict()
        weights[name] = tmp_path / f"{name}.pt"
        torch.save({key: factor * value for key, value in state.items()}, weights[name])
    model, data = f"{net}:model", f"{net}:data"
    quick = ["--measure", "hessian-trace"]
    pairs = [f"{name}={path}" for name, path in weights.items()]
    commands = {
        "audit": (["audit", model, data, "--elements", "1", *quick], "audit"),
        "compare": (["compare", model, data, *pairs, *quick], "comparison"),
        "symmetries": (["symmetries", model, data], "symmetries"),
        "spectrum": (["spectrum", model, data, "--k", "2", *quick], "spectrum"),
        "landscape": (["landscape", model, data, "--points", "5"], "landscapes"),
        "between": (
            ["landscape", model, data, "--to", str(weights["two"]), "--points", "3"],
            "landscapes",
        ),
    }
    for name, (arguments, extra) in commands.items():
        json_path, page = tmp_path / f"{name}.json", tmp_path / f"{name}.html"
        files = ["--json", str(json_path), "--out", str(page)]
        assert main([*arguments, *files]) == 0, capsys.readouterr().err
        assert extra in load(json_path)["extras"]
        assert page.stat().st_size > 10_000
        again = tmp_path / "again.html"
        assert main(["report", str(json_path), "--out", str(again)]) == 0
        assert again.read_text() == page.read_text()
    assert main([*commands["landscape"][0], "--out", str(tmp_path / "line.csv")]) == 0
    assert len((tmp_path / "line.csv").read_text().splitlines()) == 6
    between = load(tmp_path / "between.json")["extras"]["landscapes"][0]
    assert between["kind"] == "between checkpoints"
    assert between["axes"] == [[0.0, 0.5, 1.0]]
    spectrum = load(tmp_path / "spectrum.json")["extras"]["spectrum"]
    assert spectrum["smallest"]["values"][0] < min(spectrum["eigenvalues"]["values"])
    comparison = load(tmp_path / "compare.json")["extras"]["comparison"]
    assert comparison["names"] == ["one", "two"]


def test_checkpoints_are_compared_on_the_same_data(net, tmp_path):
    """Also where the data function draws anew at every call."""
    path = Path(net)
    path.write_text(
        path.read_text() + "\ndef drawn():\n"
        "    inputs = torch.randn(10, 3, dtype=torch.float64)\n"
        "    return inputs, torch.randint(0, 3, (10,))\n"
    )
    weights = str(tmp_path / "same.pt")
    torch.save(namespace(net)["model"]().state_dict(), weights)
    arguments = ["compare", f"{net}:model", f"{net}:drawn"]
    arguments += [f"a={weights}", f"b={weights}", "--measure", "hessian-trace"]
    assert main([*arguments, "--json", str(tmp_path / "a.json")]) == 0
    row = load(tmp_path / "a.json")["extras"]["comparison"]["rows"][0]
    assert row["values"]["a"] == pytest.approx(row["values"]["b"], rel=1e-12)


def test_list_names_every_measure(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    for one in fg.list_measures():
        assert one.name in out
        assert one.title in out


def test_papers_are_run_from_the_checkout(tmp_path, monkeypatch):
    asked = []

    def run(command: list[str], cwd: Path, check: bool) -> Namespace:
        asked.append((command[1:], cwd))
        return Namespace(returncode=1)

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.chdir(tmp_path)
    assert main(["papers", "tsuzuku2019", "--quick"]) == 1
    assert main(["papers", "tsuzuku2019", "--data", "here", "--device", "cuda"]) == 1
    chosen = ["--out", "new", "--only", "appendix", "--only", "descent"]
    assert main(["papers", "tsuzuku2019", *chosen]) == 1
    module = ["-m", "papers.tsuzuku2019.run", "--device"]
    assert [words for words, _ in asked] == [
        [*module, "cpu", "--quick"],
        [*module, "cuda", "--data", str(tmp_path / "here")],
        [
            *module,
            "cpu",
            "--out",
            str(tmp_path / "new"),
            "--only",
            "appendix",
            "descent",
        ],
    ]
    assert all((cwd / "papers" / "run.py").is_file() for _, cwd in asked)


COMMANDS = ["measure", "audit", "compare", "symmetries", "landscape", "spectrum"]


@pytest.mark.parametrize("command", [*COMMANDS, "report", "list", "demo", "papers"])
def test_help_teaches_with_an_example(command, capsys):
    assert main([command, "--help"]) == 0
    assert f"Example: flatgauge {command}" in capsys.readouterr().out


def test_unconverged_numbers_exit_with_one_under_strict(net, tmp_path, capsys):
    arguments = ["measure", f"{net}:model", f"{net}:data"]
    arguments += ["--measure", "hessian-spectral-norm", "--option"]
    arguments += ["hessian-spectral-norm.max_steps=1"]
    arguments += ["--json", str(tmp_path / "a.json")]
    assert main(arguments) == 0
    (tmp_path / "a.json").unlink()
    assert main([*arguments, "--strict"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("flatgauge: hessian-spectral-norm:")
    assert error.count("\n") == 1
    assert not (tmp_path / "a.json").exists()


def test_json_on_standard_output_is_alone(net, capsys):
    arguments = ["measure", f"{net}:model", f"{net}:data", "--measure", "hessian-trace"]
    for spelled in (["--json", "-"], ["--json=-"]):
        assert main([*arguments, *spelled]) == 0
        streams = capsys.readouterr()
        found = fg.Report.from_dict(json.loads(streams.out))
        assert "hessian-trace" in found
        assert "hessian-trace" in streams.err
    assert main(arguments) == 0
    assert "hessian-trace" in capsys.readouterr().out


def test_the_list_as_json(capsys):
    assert main(["list", "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert list(found) == [one.name for one in fg.list_measures()]
    assert found["normalized-sharpness"]["options"]["lam"] == 0.5
    assert "node-rescale" in found["normalized-sharpness"]["invariant_to"]


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"flatgauge {fg.__version__}\n"
    assert main(["--help"]) == 0
    assert "parametrization" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["found.csv", "found.tex", "found", "found.html"])
def test_out_goes_by_its_ending(net, tmp_path, name):
    arguments = ["measure", f"{net}:model", f"{net}:data", "--measure", "hessian-trace"]
    assert main([*arguments, "--out", str(tmp_path / name)]) == 0
    begins = {"csv": "measure,value", "tex": r"\begin{table}"}
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert text.strip().startswith(begins.get(name.partition(".")[2], "<!doctype"))


def test_the_path_of_checkpoints_is_a_landscape(net, tmp_path):
    paths = []
    for place in range(3):
        random = torch.Generator().manual_seed(place)
        state = {
            name: tensor + torch.randn(tensor.shape, generator=random).to(tensor)
            for name, tensor in namespace(net)["model"]().state_dict().items()
        }
        paths.append(tmp_path / f"{place}.pt")
        torch.save(state, paths[-1])
    each = [word for path in paths for word in ("--path", str(path))]
    for given in (each, ["--path", str(tmp_path / "*.pt")]):
        arguments = ["landscape", f"{net}:model", f"{net}:data", "--points", "3"]
        assert main([*arguments, *given, "--json", str(tmp_path / "a.json")]) == 0
        [found] = load(tmp_path / "a.json")["extras"]["landscapes"]
        assert found["names"] == [str(path) for path in paths]
        assert "cautions" not in load(tmp_path / "a.json")["extras"]
        assert found["explained"] == pytest.approx(1.0)


def test_the_checkpoints_of_a_run_become_curves(net, tmp_path, capsys):
    save_run(net, tmp_path / "ck", 4)
    command = ["compare", f"{net}:model", f"{net}:data", "--measure", "hessian-trace"]
    stored = tmp_path / "flatgauge-results"
    for places in (["ck"], ["ck/*.pt"], [f"ck/net_{i}0.pt" for i in (2, 1, 4, 3)]):
        files = ["--out", "page.html", "--json", "a.json"]
        assert main([*command, *places, *files]) == 0, capsys.readouterr().err
        series = load(tmp_path / "a.json")["extras"]["series"]
        assert [point["step"] for point in series["points"]] == [10, 20, 30, 40]
        # Only the first command measures.
        times = {one: one.stat().st_mtime_ns for one in stored.iterdir()}
        assert len(times) == 4
        assert "4 checkpoints of one run" in (tmp_path / "page.html").read_text()
        assert "No --weights were given" not in capsys.readouterr().out
        if places == ["ck"]:
            before = times
    assert times == before
    assert main([*command, "ck"]) == 0
    said = capsys.readouterr().out
    assert "4 checkpoints, steps 10 to 40: " in said
    assert "No --weights were given" not in said


def test_tables_have_every_checkpoint(net, tmp_path):
    paths = save_run(net, tmp_path / "ck", 3)
    command = ["compare", f"{net}:model", f"{net}:data", "--measure", "hessian-trace"]
    assert main([*command, "ck", "--out", "a.csv"]) == 0
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert [line.split(",")[2] for line in lines] == ["step", "10", "20", "30"]
    assert main([*command, "ck", "--out", "a.tex"]) == 0
    assert "First" in (tmp_path / "a.tex").read_text()
    named = [f"one={paths[0]}", f"two={paths[1]}"]
    assert main([*command, *named, "--out", "b.tex"]) == 0
    text = (tmp_path / "b.tex").read_text()
    assert "one" in text
    assert "two" in text


def test_several_runs_are_named(net, tmp_path):
    save_run(net, tmp_path / "a", 2)
    save_run(net, tmp_path / "b", 2, growth=0.2)
    command = ["compare", f"{net}:model", f"{net}:data", "--measure", "hessian-trace"]
    assert main([*command, "slow=a", "fast=b/*.pt", "--json", "a.json"]) == 0
    assert load(tmp_path / "a.json")["extras"]["series"]["runs"] == ["slow", "fast"]


def test_names_of_lightning_s_checkpoints_have_equals_signs(net, tmp_path):
    state = namespace(net)["model"]().state_dict()
    for step in (5, 10):
        torch.save({"state_dict": state}, tmp_path / f"epoch=0-step={step}.ckpt")
    command = ["compare", f"{net}:model", f"{net}:data", "--measure", "hessian-trace"]
    command += [f"epoch=0-step={step}.ckpt" for step in (5, 10)]
    assert main([*command, "--json", "a.json"]) == 0
    points = load(tmp_path / "a.json")["extras"]["series"]["points"]
    assert [point["step"] for point in points] == [5, 10]


def test_strict_is_for_every_checkpoint(net, tmp_path, capsys):
    save_run(net, tmp_path / "ck", 2)
    command = ["compare", f"{net}:model", f"{net}:data", "ck", "--strict"]
    command += ["--measure", "hessian-spectral-norm[max_steps=1]"]
    assert main(command) == 1
    assert "net_10.pt, hessian-spectral-norm" in capsys.readouterr().err


def test_folders_bring_their_weights(capsys):
    report = fg.measure(CASES["mlp"].objective(), "hessian-trace")
    deliver(report, Settings(model="hf:DIR", data="texts.jsonl"))
    assert capsys.readouterr().out == ""
    deliver(report, Settings(model="net.py:model", data="digits"))
    assert "net.py:model returned them" in capsys.readouterr().out


def test_every_figure_that_was_written_is_named(tmp_path, capsys):
    stored = tmp_path / "a.json"
    full().to_json(stored)
    assert main(["report", str(stored), "--out", str(tmp_path / "a.svg")]) == 0
    said = capsys.readouterr().out.partition("wrote ")[2].strip().split(", ")
    assert {Path(one) for one in said} == set(tmp_path.glob("a-*.svg"))
