from __future__ import annotations

import csv
import json
import re
import sys
from dataclasses import replace
from types import ModuleType

import pytest
import torch
from support.cases import CASES
from support.pages import REQUESTS, Text, full, small

import flatgauge as fg
from flatgauge.checkpoint_series import Point
from flatgauge.errors import FlatgaugeError, OptionError
from flatgauge.exports import Tabular, formats


@pytest.fixture(scope="module")
def results() -> dict[str, Tabular]:
    objective = CASES["mlp"].objective()
    other = objective.at({n: 1.5 * t for n, t in objective.parameters.items()})
    names = ["hessian-trace", "riemannian-spectral-norm[metric=node]"]
    return {
        "report": fg.measure(objective, names),
        "audit": fg.audit(objective, names, elements=1),
        "comparison": fg.compare([objective, other], names),
        "landscape": fg.landscape(objective, points=3),
        "series": fg.Series(
            [
                Point("", f"net_{step}", step, fg.measure(one, names))
                for step, one in enumerate((objective, other))
            ]
        ),
    }


NAMES = ["report", "audit", "comparison", "landscape", "series"]


@pytest.mark.parametrize("name", NAMES)
def test_csv_has_every_row(name, results, tmp_path):
    results[name].to_csv(tmp_path / "rows")
    with (tmp_path / "rows").open(newline="") as file:
        read = list(csv.DictReader(file))
    rows = results[name].rows()
    assert [set(row) for row in read] == [set(row) for row in rows]
    for one, row in zip(read, rows, strict=True):
        for key, value in row.items():
            if isinstance(value, float):
                assert float(one[key]) == value
            elif isinstance(value, dict):
                assert json.loads(one[key]) == value
    assert results[name].to_csv() == (tmp_path / "rows").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_data_frames_have_every_row(name, results):
    pandas = pytest.importorskip("pandas")
    frame = results[name].to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(results[name].rows()[0])
    assert len(frame) == len(results[name].rows())


def test_a_data_frame_is_made_of_the_rows(monkeypatch):
    """Whether pandas is here or not."""
    stand_in = ModuleType("pandas")
    stand_in.DataFrame = tuple
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    assert small().to_pandas() == tuple(small().rows())


def test_without_pandas_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FlatgaugeError, match="pip install pandas"):
        small().to_pandas()


@pytest.mark.parametrize("name", NAMES)
def test_latex_is_a_table_with_its_sentence(name, results, tmp_path):
    results[name].to_latex(tmp_path / "table.tex")
    text = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert results[name].to_latex() == text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    assert body.count(r"\\") == len(results[name].paper_table()[1])
    assert text.count("{") == text.count("}")
    for special in ("±", "×", "−", "≥", "_s"):
        assert special not in text.replace(r"\_", "")


def test_the_sentence_says_measure_options_data_and_version(results):
    report = results["report"]
    said = report.sentence()
    facts = report.provenance
    for part in (facts.data, facts.flatgauge, facts.loss, facts.dtype, facts.mode):
        assert part in said
    assert "hessian-trace (target=0.02, max_products=64)" in said
    assert "not of the data" in said
    both = facts.sentence().removeprefix(f"Flatness of {facts.subject}")
    assert both in results["comparison"].sentence()
    assert facts.subject in results["comparison"].sentence()


def test_formats_go_by_the_ending(results, tmp_path):
    report = results["comparison"]
    for suffix in formats():
        path = tmp_path / f"made{suffix}"
        assert report.save(path) == [path]
        assert (tmp_path / f"made{suffix}").stat().st_size > 100, suffix
    assert fg.Report.from_json(tmp_path / "made.json") == report.report()
    assert "<h1>" in (tmp_path / "made.html").read_text(encoding="utf-8")
    assert (tmp_path / "made.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(OptionError, match=r"'made\.doc' has no ending .*\.csv"):
        report.save("made.doc")


def test_a_new_format_is_one_file(results, tmp_path, monkeypatch):
    def write(result, path):
        path.write_text(result.sentence())
        return [path]

    made = ModuleType("markdown")
    made.write = write
    monkeypatch.setitem(formats(), ".md", made)
    assert results["report"].save(tmp_path / "a.md") == [tmp_path / "a.md"]
    assert (tmp_path / "a.md").read_text() == results["report"].sentence()


def test_several_figures_have_files_of_their_own(tmp_path):
    written = full().save(tmp_path / "page.svg")
    assert set(written) == set(tmp_path.iterdir())
    names = {path.name for path in written}
    drawn = ("audit", "comparison", "spectrum", "landscape-0", "landscape-1")
    assert names == {f"page-{name}.svg" for name in drawn}
    for name in names:
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "var(--" not in text
        assert "svg" in Text(text).tags


def test_without_figures_or_a_page_it_says_so(results, tmp_path):
    with pytest.raises(OptionError, match="there is no figure"):
        small().save(tmp_path / "a.svg")
    without = replace(results["landscape"], provenance=None)
    with pytest.raises(OptionError, match="a Landscape has no page of its own"):
        without.save(tmp_path / "a.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_result_has_a_page_that_can_be_drawn_again(name, results, tmp_path):
    results[name].to_html(tmp_path / "page.html")
    results[name].to_json(tmp_path / "all.json")
    fg.Report.from_json(tmp_path / "all.json").to_html(tmp_path / "again.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "again.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("suffix", [".csv", ".tex"])
def test_an_empty_table_is_not_written(suffix, tmp_path):
    nothing = fg.Report({}, small().provenance)
    with pytest.raises(OptionError, match="there are no rows for a table"):
        nothing.save(tmp_path / f"a{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_reports_are_dictionaries():
    report = small()
    assert dict(report) == report.measurements
    assert REQUESTS[0] in report
    assert "nothing" not in report
    assert list(report.items()) == list(report.measurements.items())


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_show_them(name, results):
    html = results[name]._repr_html_()
    tags = Text(html).tags
    assert "script" not in tags
    assert "table" in tags or "svg" in tags


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_shows_what_print_shows(name, results):
    shown = repr(results[name])
    assert shown == str(results[name])
    assert "Measurement(" not in shown
    assert "tensor(" not in shown


def test_notebooks_show_objectives():
    objective = CASES["mlp"].objective()
    text = repr(objective)
    assert text.startswith("Objective(Sequential, ")
    assert "cross-entropy" in text
    assert f"{objective.sample_count} samples" in text
    assert "<table>" in objective._repr_html_()
    assert torch.is_tensor(next(iter(objective.parameters.values())))


def test_a_file_may_have_the_longest_name(results, tmp_path):
    path = tmp_path / ("a" * 250 + ".csv")
    results["report"].to_csv(path)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_file_that_cannot_be_written_is_called_by_its_own_name(results, tmp_path):
    for path in (tmp_path / "gone" / "a.csv", tmp_path):
        with pytest.raises(OSError, match=rf"'{re.escape(str(path))}'$"):
            results["report"].to_csv(path)
    assert not list(tmp_path.iterdir())
