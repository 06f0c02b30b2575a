"""The page in a real browser: nothing is reported, cut off or left undrawn."""

from __future__ import annotations

import pytest
from support.pages import CHROMIUM, full, look, measurement, provenance, small

from flatgauge.checkpoint_series import Point, Series
from flatgauge.report.formatting import number
from flatgauge.report.page import render
from flatgauge.results import Report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")


@pytest.mark.parametrize("width", [400, 1280])
def test_the_full_page(width, tmp_path):
    report = full()
    found = look(render(report.to_dict()), tmp_path, width)
    assert found["problems"] == found["console"] == []
    assert found["width"] == width
    assert found["scroll"] <= width
    assert found["wide"] == []
    names = [name for name, _, _ in found["plots"]]
    assert names == ["comparison", "audit", "spectrum", "landscape-0", "landscape-1"]
    for name, drawn, wide in found["plots"]:
        assert drawn > 2, name
        assert 200 < wide <= width
    # It is drawn, and turns by the arrow keys alone.
    assert found["surfaces"] == [[True, True, True]]
    # The answer, what it means and the numbers take three screens at most.
    assert 0 < found["above"] <= 3 * 900
    for request, one in report.measurements.items():
        assert request in found["text"]
        assert number(one.value) in found["text"]


def test_dark_mode(tmp_path):
    html = render(full().to_dict())
    light, dark = (look(html, tmp_path, 1280, dark=one) for one in (False, True))
    assert light["dark"] == "rgb(253, 253, 251)"
    assert dark["dark"] == "rgb(20, 24, 27)"
    assert dark["problems"] == dark["console"] == []


def test_a_page_without_figures(tmp_path):
    found = look(render(small().to_dict()), tmp_path, 400)
    assert found["problems"] == found["console"] == []
    assert found["plots"] == []
    assert found["wide"] == []


def test_hostile_names_run_nothing_and_fit(tmp_path):
    hostile = "<script>document.title = 'owned'</script>" + "y" * 10_000
    one = measurement(hostile, 2.0, details={"layers": {hostile: 1.0}})
    report = Report({hostile: one}, provenance(model=hostile), full().extras)
    del report.extras["comparison"]
    found = look(render(report.to_dict()), tmp_path, 400)
    assert found["problems"] == found["console"] == []
    assert found["wide"] == []
    assert "<script>document.title = 'owned'</script>" in found["text"]


def test_the_probe_sees_what_is_too_wide_and_what_fails(tmp_path):
    html = render(small().to_dict()).replace(
        "</main>",
        "<p style='width:900px;max-width:none'>wide</p><script>nothing()</script></main>",
    )
    found = look(html, tmp_path, 400)
    assert found["wide"] == ["P."]
    assert "nothing is not defined" in found["problems"][0]
    assert found["console"]


@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_of_a_series(width, tmp_path):
    points = [
        Point(run, f"{run}-{step}.ckpt", step, full())
        for run in ("first run", "second run")
        for step in range(0, 1000, 50)
    ]
    found = look(render(Series(points).whole()), tmp_path, width)
    assert found["problems"] == found["console"] == []
    assert found["scroll"] <= width
    assert found["wide"] == []
    assert "40 checkpoints of 2 runs, steps 0 to 950" in found["text"]
    assert "second run-950.ckpt" in found["text"]
