"""The page: what the paper prints, what comes out, and why they differ."""

from __future__ import annotations

from typing import Any

from papers.completeness import completeness
from papers.experiment import Results
from papers.page import NOT_RUN, agrees, number, table
from papers.tsuzuku2019 import (
    bound_sections,
    findings,
    noise_sections,
    probe_sections,
    random_label_findings,
    random_label_sections,
    sections,
    solution_findings,
    theory_sections,
    twin_sections,
)
from papers.tsuzuku2019.comparison import found_values
from papers.tsuzuku2019.generalization import pairs

TOLERANCE = 5e-4
CLAIMS = """\
The paper derives two measures of sharpness from a PAC-Bayes bound: matrix-normalized
sharpness (13), which whole layers may be rescaled without changing, and normalized
sharpness (17), which single nodes may be rescaled without changing. It gives a worked
example of node rescaling (Appendix A.1), an example that is to tell it from the Fisher-Rao
norm (26)-(30), and Algorithm 1, which estimates the diagonal of the Hessian with random
probes, clips it at 0 and solves (17) by gradient descent.
"""
CHECKS = {
    **findings.CHECKS,
    **solution_findings.CHECKS,
    **random_label_findings.CHECKS,
}
OPEN = """\
The paper's experiments 6.1 and 6.2 (random labels, correlations with the generalization gap)
have not been run yet; they need a GPU, and nothing else here does.
"""


def page(results: Results, expected: dict[str, Any]) -> str:
    """The body of the page."""
    parts = [
        CLAIMS,
        "" if any(pairs(results)) else OPEN,
        "## Verdict\n",
        sections.verdict(results)
        + probe_sections.verdict(results)
        + bound_sections.verdict(results)
        + random_label_sections.verdict(results),
        "## Everything the paper states\n",
        completeness(expected["completeness"], CHECKS, results),
        "## Side by side\n",
        _side_by_side(results, expected),
        "## Appendix A.1\n",
        sections.appendix(results),
        "## Norms without bound\n",
        theory_sections.unbounded(results),
        "## The branch example\n",
        sections.branches(results),
        "## Algorithm 1 against the exact diagonal\n",
        probe_sections.algorithm1(results),
        "## The inner loop of Algorithm 1\n",
        probe_sections.descent(results),
        "## Appendix B: convexity\n",
        theory_sections.convexity(results),
        "## Convolutions\n",
        theory_sections.convolution(results),
        "## The loss (20)\n",
        theory_sections.surrogate(results),
        "## The bounds (1), (2) and (4)\n",
        bound_sections.bounds(results),
        "## (24) in bits\n",
        bound_sections.bits(results),
        "## (62), without approximation\n",
        noise_sections.noise(results),
        "## Random labels (6.1 and 6.2)\n",
        random_label_sections.random_labels(results),
        "### Twins\n",
        twin_sections.twins(results),
        "## Constants\n",
        sections.constants(results),
    ]
    return "\n".join(parts)


def _side_by_side(results: Results, expected: dict[str, Any]) -> str:
    found = found_values(results)
    rows = []
    for entry in expected["side_by_side"]:
        printed = entry.get("shown", entry.get("printed"))
        ours = found.get(entry["key"])
        verdict = NOT_RUN if ours is None else _verdict(entry, ours)
        correct = entry.get("correct")
        shown = NOT_RUN if ours is None else _shown(ours)
        rows.append([entry["what"], _shown(printed), _shown(correct), shown, verdict])
    head = ["", "the paper prints", "corrected", "flatgauge", "verdict"]
    return table(head, rows)


def _shown(value: Any) -> str:
    """A value; a matrix row by row."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "; ".join(" ".join(number(cell, 6) for cell in row) for row in value)
    return number(value, 6)


def _verdict(entry: dict[str, Any], ours: Any) -> str:
    tolerance = entry.get("tolerance", TOLERANCE)
    if entry.get("bound"):
        return entry["verdict"] if ours <= entry["correct"] else "differs"
    if "printed" in entry and agrees(entry["printed"], ours, tolerance):
        return "agrees"
    if "correct" in entry and agrees(entry["correct"], ours, tolerance):
        return entry.get("verdict", "as derived; the paper does not say")
    return "differs"
