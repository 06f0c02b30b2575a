from __future__ import annotations

import pytest
from support.cases import CASES

import flatgauge as fg
from flatgauge.tables import html_table


def test_everything_is_escaped():
    assert "<script>" not in html_table(["<script>"], [["<script>"]], "<script>")


@pytest.mark.parametrize("kind", ["audit", "comparison", "group", "report"])
def test_notebooks_show_tables(kind: str):
    objective = CASES["mlp"].objective()
    found = {
        "audit": lambda: fg.audit(objective, "hessian-trace", elements=1),
        "comparison": lambda: fg.compare(
            {"<a>": objective, "b": objective}, "hessian-trace"
        ),
        "group": lambda: fg.symmetries(objective),
        "report": lambda: fg.measure(objective, "hessian-trace"),
    }[kind]()
    shown = found._repr_html_()
    assert "<table" in shown
    assert "<a>" not in shown
    assert str(found)
