"""The page of a study: ties, intervals, what is left out, and every network."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from support.pages import measurement, provenance

import flatgauge as fg
from flatgauge.report.page import render
from flatgauge.results import Report, Status
from flatgauge.studies import Network, Plan
from flatgauge.studies.result import judged

TRACE, RAO, PRODUCT = "hessian-trace", "fisher-rao-norm", "spectral-norm-product"
BAD = '<script>alert("x")</script>'
ABOUT = {
    name: {
        "title": name.title(),
        "flatter": "smaller",
        "logarithmic": name == PRODUCT,
        "formula": "Tr H",
    }
    for name in (TRACE, RAO, PRODUCT)
}


def network(index: int, **changes: Any) -> Network:
    values = {TRACE: 2.0**index, RAO: index + 1.0, PRODUCT: float((7 * index) % 12)}
    found = {name: measurement(name, value) for name, value in values.items()}
    if changes:
        found[TRACE] = measurement(TRACE, values[TRACE], **changes)
    report = Report(found, provenance(), {"measures": ABOUT})
    row = {
        "checkpoint": f"n{index}.pt",
        "gap": str(0.1 * index),
        "ratio": str(index // 4),
    }
    return Network(f"n{index}.pt", row, report)


def study(networks: list[Network] | None = None, **more: Any) -> fg.Study:
    plan = Plan("gap", hyperparameters=["ratio"], resamples=200, **more)
    return judged(networks or [network(index) for index in range(12)], {}, plan)


@pytest.fixture(scope="module")
def page() -> str:
    return render(study().report().to_dict())


def figures(text: str) -> list[ET.Element]:
    return [ET.fromstring(one) for one in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_ties_and_places_are_told(page):
    assert "No single measure orders the networks best by gap: hessian-trace" in page
    assert "tied with the best (behind by 0.000)" in page
    assert re.search(r"behind by 0\.\d{3}", page)
    assert "[" in re.search(r'<span class="error">(.*?)</span>', page)[1]
    assert "sign-error-worst" in page
    assert "Not applicable here" not in page


def test_why_there_is_no_number_is_told_once_for_all_measures():
    found = judged([network(i) for i in range(12)], {}, Plan("gap", resamples=5))
    text = render(found.report().to_dict())
    reason = "neither environments nor hyperparameters are given."
    assert text.count(reason) == 2
    assert "Not applicable here" in text


def test_each_measure_has_its_networks(page):
    shown = figures(page)
    assert len(shown) == 3
    for svg in shown:
        assert len(svg.findall(".//circle")) == 12
    shares = {one.get("style") for one in shown[0].iter("g") if one.get("style")}
    assert len(shares) == 3
    assert page.count("<tr>") == 3 + 12 + 2
    # Over powers of two the axis is one of logarithms: the networks are as far apart.
    across = [float(one.get("cx")) for one in shown[0].iter("circle")]
    assert across[1] - across[0] == pytest.approx(across[11] - across[10], abs=0.2)


def test_what_is_left_out_is_hollow_and_named():
    networks = [network(index) for index in range(12)]
    networks[3] = network(3, status=Status.NOT_CONVERGED)
    networks[5].row["gap"] = ""
    found = study(networks)
    assert found.statistics[TRACE].networks == 10
    text = render(found.report().to_dict())
    assert "hessian-trace without n3.pt (not converged)" in text
    assert "hessian-trace without n5.pt (no target)" in text
    first = figures(text)[found.measures.index(TRACE)]
    assert len(first.findall(".//circle[@class='spot hollow']")) == 1
    assert len(first.findall(".//circle")) == 11


def test_everything_is_escaped_and_inside():
    networks = [network(index) for index in range(12)]
    networks[0] = Network(BAD, {**networks[0].row, "ratio": BAD}, networks[0].report)
    plain = study(networks).report().to_dict()
    plain["extras"]["study"]["failures"] = {BAD: BAD}
    text = render(plain)
    assert "<script" not in text
    assert "src=" not in text
    assert len(text) < 100_000
    for svg in figures(text):
        assert svg.findall(".//circle")


def test_one_network_has_a_page():
    text = render(study([network(3)]).report().to_dict())
    assert "No measure has an order to compare with that of gap" in text
    assert "fewer than two networks" in text


def test_figures_and_tables_for_files(tmp_path):
    found = study()
    found.save(tmp_path / "a.svg")
    assert len(list(tmp_path.glob("a-*.svg"))) == 3
    found.to_latex(tmp_path / "a.tex")
    assert "tied with the best" in (tmp_path / "a.tex").read_text()
    found.save(tmp_path / "a.html")
    again = fg.Report.from_dict(found.whole())
    assert render(again.to_dict()) == (tmp_path / "a.html").read_text()
    assert {row["tied"] for row in found.rows()} == {True, False}
