"""The page of a series: curves without scripts, colours that never repeat, plain words."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
import torch

import flatgauge as fg
from flatgauge.checkpoint_series import Point
from flatgauge.report.page import render

NORM = "riemannian-spectral-norm[metric=node]"
TRACE = "hessian-trace"


@pytest.fixture(scope="module")
def report() -> fg.Report:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 3)).double()
    data = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    return fg.measure(fg.Objective(model, data), TRACE, NORM)


def changed(report: fg.Report, **values: Any) -> fg.Report:
    """The same report with other facts about the invariant measure."""
    plain = report.to_dict()
    plain["measurements"][NORM] |= values
    return fg.Report.from_dict(plain)


def page(points: list[Point], failures: dict[str, str] | None = None) -> str:
    return render(fg.Series(points, failures or {}).report().to_dict())


def figures(text: str) -> list[ET.Element]:
    return [ET.fromstring(one) for one in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def run(report: fg.Report, name: str, count: int) -> list[Point]:
    return [
        Point(name, f"net_{i}", i, changed(report, value=2.0 + i, uncertainty=0.5))
        for i in range(count)
    ]


@pytest.mark.parametrize("count", [2, 10, 100])
def test_one_run_has_a_shade_for_each_step(report, count):
    text = page(run(report, "", count))
    _, svg = figures(text)
    shades = [
        one.get("style") for one in svg.iter("g") if one.find("circle") is not None
    ]
    assert len(set(shades)) == len(shades) == count
    assert len(svg.findall(".//line[@class='bar']")) == count
    assert text.count("<tr>") == count + 1
    assert f"{count} checkpoints of one run, steps 0 to {count - 1}" in text


def test_thirty_runs_have_thirty_colours(report):
    text = page([point for i in range(30) for point in run(report, f"run {i}", 2)])
    hues = re.findall(r'class="run" style="([^"]*)"', text)
    assert len(set(hues)) == len(hues) == 30


def test_error_bars_reach_as_far_as_the_errors(report):
    text = page(run(report, "", 3))
    _, svg = figures(text)
    marks = [one for one in svg.iter("g") if one.find("circle") is not None]
    ys = [float(mark.find("circle").get("cy")) for mark in marks]
    unit = (ys[0] - ys[2]) / 2
    for mark, y in zip(marks, ys, strict=True):
        bar = mark.find("line")
        assert float(bar.get("y1")) == pytest.approx(y - 0.5 * unit, abs=0.2)
        assert float(bar.get("y2")) == pytest.approx(y + 0.5 * unit, abs=0.2)


def ends(report: fg.Report, first: dict[str, Any], last: dict[str, Any]) -> str:
    facts = {"a": first, "b": last}
    return page(
        [
            Point("", name, step + 1, changed(report, **facts[name]))
            for step, name in enumerate(facts)
        ]
    )


def test_the_first_sentence_says_whether_it_became_flatter(report):
    sure = {"uncertainty": 0.01}
    flatter = ends(report, {"value": 3.0, **sure}, {"value": 2.0, **sure})
    assert "From step 1 to step 2 the network became flatter, by riemannian" in flatter
    sharper = ends(report, {"value": 2.0, **sure}, {"value": 3.0, **sure})
    assert "the network became sharper" in sharper
    unsure = {"uncertainty": 1.0}
    alike = ends(report, {"value": 2.0, **unsure}, {"value": 3.0, **unsure})
    assert "changed by more than its error" in alike
    rounding = ends(
        report,
        {"value": 2.0, "uncertainty": None},
        {"value": 2.0 + 1e-10, "uncertainty": None},
    )
    assert "changed by more than its error" in rounding


def test_numbers_that_cannot_be_trusted_are_hollow_and_decide_nothing(report):
    broken = {"value": 3.0, "status": "NOT_CONVERGED"}
    text = ends(report, {"value": 2.0}, broken)
    _, svg = figures(text)
    assert len(svg.findall(".//circle[@class='spot hollow']")) == 1
    assert "became" not in text
    assert "doubt" in text


def test_names_are_escaped_and_missing_numbers_are_gaps(report):
    bad = '<script>alert("x")</script>'
    none = changed(report, value=None, status="NOT_APPLICABLE")
    points = [Point("", bad, 1, report), Point("", "b", None, none)]
    text = page(points, {bad: bad})
    assert bad not in text
    assert "Each measure over checkpoints" in text
    for svg in figures(text):
        assert len(svg.findall(".//circle")) in (1, 2)


def test_the_page_is_small_and_complete(report):
    text = page(run(report, "", 100))
    assert len(text) < 300_000
    assert "<script" not in text
    assert "src=" not in text


def test_formulas_are_typeset(report):
    assert "<math>" in page(run(report, "", 2))


def test_figures_for_files(report, tmp_path):
    points = [point for i in range(7) for point in run(report, f"run {i}", 3)]
    fg.Series(points).save(tmp_path / "a.svg")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "a-hessian-trace.svg",
        "a-riemannian-spectral-norm-metric-node.svg",
    ]
    text = (tmp_path / names[1]).read_text()
    curves = set(re.findall(r"stroke: (#\w{6}); stroke-width: 1\.5", text))
    assert len(curves) == 7
