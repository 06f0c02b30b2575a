from __future__ import annotations

from dataclasses import replace

from support.pages import REQUESTS, full, small

from flatgauge.results import Status


def test_a_report_with_extras_is_another_report():
    report = small()
    more = report.with_extras(accuracies={"a": 0.5}, measures={})
    assert report == small()
    assert more.extras == {"accuracies": {"a": 0.5}, "measures": {}}
    assert more.measurements == report.measurements
    assert more.with_extras() == more


def test_the_table_names_statuses_by_their_words():
    text = str(full())
    for line in text.splitlines()[3:]:
        assert line.endswith((Status.EXACT.word, "converged", "not applicable"))


def test_the_table_says_whose_error_it_shows():
    assert "value ± error of the solver" in str(small())
    exact = replace(small(), measurements={"a": small()[REQUESTS[0]]})
    assert "±" not in str(exact)
