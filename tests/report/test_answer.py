from __future__ import annotations

from dataclasses import replace

import pytest
from support.pages import Text, measurement, provenance

from flatgauge.comparison import compared as side_by_side
from flatgauge.report.answer import compared, paper_sentence
from flatgauge.report.page import render
from flatgauge.results import Report

SOLID = ("normalized-sharpness", "fisher-rao-norm")
LOOSE = ("hessian-trace", "hessian-spectral-norm")


def checkpoint(uncertainty: float | None = None, **values: float) -> Report:
    names = {name.replace("_", "-"): value for name, value in values.items()}
    found = {
        name: measurement(name, value, options={}, details={}, uncertainty=uncertainty)
        for name, value in names.items()
    }
    return Report(found, provenance(data="00ff"), {})


def plain(**reports: Report):
    return side_by_side(reports).report().to_dict()


def test_the_trustworthy_measures_decide():
    a = checkpoint(normalized_sharpness=1.0, fisher_rao_norm=2.0, hessian_trace=9.0)
    b = checkpoint(normalized_sharpness=1.5, fisher_rao_norm=2.2, hessian_trace=3.0)
    report = plain(a=a, b=b)
    headline, trusted, confidence, otherwise = compared(report)
    assert headline == "“a” is flatter, by all 2 trustworthy measures."
    assert trusted.endswith("Here: normalized-sharpness and fisher-rao-norm.")
    assert "The closest of these differences is 9.1 %, far more than" in confidence
    assert "other samples would change them was not measured" in confidence
    assert otherwise.startswith("Otherwise by hessian-trace, which can be made")
    assert f"<h1>{headline}</h1>" in render(report)
    assert paper_sentence(report) == (
        "“a” is flatter than “b” by normalized-sharpness 1.000 against 1.500 and "
        "fisher-rao-norm 2.000 against 2.200 on 1,200 samples (cross-entropy, eval mode, "
        "float64; flatgauge 0.1.0)."
    )


def test_errors_and_samples_are_told():
    a = checkpoint(0.01, normalized_sharpness=1.0)
    b = checkpoint(0.01, normalized_sharpness=1.5)
    assert "33 %, 35 times the error of the computation" in compared(plain(a=a, b=b))[2]
    known = [
        replace(
            one,
            measurements={
                name: replace(found, data_uncertainty=0.1)
                for name, found in one.items()
            },
        )
        for one in (a, b)
    ]
    sentence = compared(plain(a=known[0], b=known[1]))[2]
    assert sentence.endswith(
        "1 of 1 are larger than two standard errors over the samples."
    )


@pytest.mark.parametrize(
    ("values", "headline", "paper"),
    [
        (
            {"normalized_sharpness": (1, 2), "fisher_rao_norm": (2, 1)},
            "Trustworthy measures do not agree: 1 name “a”, 1 name “b”.",
            "do not agree on the order of “a” and “b”",
        ),
        (
            {"normalized_sharpness": (1, 1), "hessian_trace": (2, 1)},
            "No trustworthy measure tells the checkpoints apart.",
            "do not tell apart “a” and “b”",
        ),
        (
            {"hessian_trace": (1, 1)},
            "No difference between the checkpoints is larger than its error bars.",
            "do not tell apart “a” and “b”",
        ),
        (
            {"normalized_sharpness": (1, 1), "fisher_rao_norm": (2, 1)},
            "“b” is flatter, by 1 of 2 trustworthy measures; the others cannot tell.",
            "“b” is flatter than “a” by fisher-rao-norm 1.000 against 2.000",
        ),
    ],
)
def test_what_is_not_settled_is_not_answered(values, headline, paper):
    a, b = (
        checkpoint(**{name: float(pair[place]) for name, pair in values.items()})
        for place in (0, 1)
    )
    report = plain(a=a, b=b)
    assert compared(report)[0] == headline
    assert paper in paper_sentence(report)
    assert headline in Text(render(report)).text


def test_three_checkpoints_have_a_flattest():
    found = {
        name: checkpoint(normalized_sharpness=value)
        for name, value in (("a", 3.0), ("b", 1.0), ("c", 2.0))
    }
    said = paper_sentence(plain(**found))
    assert said.startswith("“b” is the flattest of “a” and “b” and “c” by")


def test_one_network_quotes_what_can_be_trusted():
    report = checkpoint(0.25, hessian_trace=11.0, normalized_sharpness=101.75)
    assert "hessian-trace 11.00 ± 0.25 and normalized-sharpness 101.75 ± 0.25 on" in (
        paper_sentence(report.to_dict())
    )
    known = {name: {"invariant_to": ["node-rescale"]} for name in SOLID}
    known |= {name: {"invariant_to": []} for name in LOOSE}
    report = report.with_extras(measures=known)
    assert paper_sentence(report.to_dict()).startswith(
        "Sequential: normalized-sharpness 101.75 ± 0.25 on 1,200 samples"
    )
