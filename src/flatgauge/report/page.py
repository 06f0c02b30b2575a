"""The page, and the table that a notebook shows, from a report's plain data."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from flatgauge.errors import FlatgaugeError
from flatgauge.report.answer import paper_sentence
from flatgauge.report.audit_table import audit_matrix
from flatgauge.report.drawing import NARROW, svg
from flatgauge.report.figures import figures
from flatgauge.report.formatting import factor, number, shorten
from flatgauge.report.layers import layer_bars
from flatgauge.report.sections import catalogue, convergence, provenance, verdict_table
from flatgauge.report.series import series_content
from flatgauge.report.slices import landscape_groups, surfaces
from flatgauge.report.study import study_content
from flatgauge.report.verdict import verdict
from flatgauge.results import Plain
from flatgauge.vocabulary import Kind

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = files("flatgauge.report")


def render(report: Plain) -> str:
    """One self-contained HTML page.

    Args:
        report: what `Report.to_dict` gives.

    Raises:
        FlatgaugeError: if jinja2 or matplotlib is not installed.
    """
    for name, content in {"series": series_content, "study": study_content}.items():
        if name in report["extras"]:
            style = _read("style.css") + _read("multiples.css")
            page = _environment().get_template(f"{name}.html")
            return page.render(**content(report), style=style)
    return (
        _environment()
        .get_template("template.html")
        .render(
            **_content(report),
            figures=_drawn(report),
            surfaces=surfaces(report["extras"].get("landscapes") or []),
            style=_read("style.css"),
            script=_read("script.js"),
        )
    )


def fragment(report: Plain) -> str:
    """The verdict and its table alone, for a notebook: no script, no page around it."""
    return _environment().get_template("fragment.html").render(**_content(report))


def _drawn(report: Plain) -> dict[str, dict[str, str]]:
    """Every figure, for a screen and for a phone."""
    return {
        name: {"wide": svg(figure, name), "narrow": svg(figure, name, NARROW)}
        for name, figure in figures(report).items()
    }


def _content(report: Plain) -> dict[str, Any]:
    """Everything that the templates print."""
    extras = report["extras"]
    headline, sentences = verdict(report)
    matrix, known = audit_matrix(report), catalogue(report)
    seen = {kind for entry in known.values() for kind in entry["invariant_to"] or []}
    seen |= {column["kind"] for column in matrix["columns"]} if matrix else set()
    return {
        "facts": report["provenance"],
        "headline": headline,
        "sentences": sentences,
        "paper": paper_sentence(report),
        "made": extras.get("made", ""),
        "table": verdict_table(report),
        "audit": matrix,
        "comparison": extras.get("comparison"),
        "layers": layer_bars(report),
        "spectrum": extras.get("spectrum"),
        "landscapes": landscape_groups(extras.get("landscapes") or []),
        "symmetries": extras.get("symmetries"),
        "convergence": convergence(report),
        "provenance": provenance(report),
        "catalogue": list(known.values()),
        "kinds": {kind: kind.text for kind in Kind if kind in seen},
    }


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise FlatgaugeError(
            "the page needs jinja2 and matplotlib: pip install jinja2 matplotlib."
        ) from error
    environment = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, factor=factor, shorten=shorten)
    return environment


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
