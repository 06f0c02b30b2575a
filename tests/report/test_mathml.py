from __future__ import annotations

from xml.etree import ElementTree

import pytest

import flatgauge as fg
from flatgauge.report.mathml import mathml


@pytest.mark.parametrize("info", fg.list_measures(), ids=lambda info: info.name)
def test_every_formula_is_typeset(info):
    found = mathml(info.formula)
    assert found is not None
    ElementTree.fromstring(found)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("λmax(H)", "<msub><mi>λ</mi><mi>max</mi></msub>"),
        ("W_ij²", "<msubsup><mi>W</mi><mi>ij</mi><mn>2</mn></msubsup>"),
        ("σ'_j", "<msubsup><mi>σ</mi><mi>j</mi><mo>′</mo></msubsup>"),
        ("√max(a, 0)", "<msqrt><mi>max</mi><mrow><mo>(</mo><mi>a</mi>"),
        ("inf_{σ,σ'} x", "<msub><mi>inf</mi><mrow><mi>σ</mi><mo>,</mo>"),
        ("L < 1", "<mo>&lt;</mo>"),
        ("over tensors l", "<mtext>over</mtext>"),
    ],
)
def test_the_notation(formula, expected):
    assert expected in str(mathml(formula))


@pytest.mark.parametrize(
    "formula",
    ["", "<script>", "a)", "(a", "a_", "{{ x }", "x" * 400, "\"'", "a_)", "√"],
)
def test_what_is_not_in_the_notation_is_not_typeset(formula):
    assert mathml(formula) is None
