"""The verdict: the sentences at the top of the page."""

from __future__ import annotations

from collections import Counter

from flatgauge.report.audit_table import movements
from flatgauge.report.formatting import factor, finite, listed, number, shorten
from flatgauge.report.sections import catalogue, measured
from flatgauge.results import Plain
from flatgauge.vocabulary import Kind, Verdict

UNMOVED = 1e-3


def verdict(report: Plain) -> tuple[str, list[str]]:
    """The headline, and the sentences below it."""
    found = [_audit(report), _comparison(report), _trust(report)]
    sentences = [one for group in found for one in group] or _extras(report)
    if not sentences:
        return "Nothing was measured.", []
    return sentences[0], sentences[1:]


def _title(report: Plain, request: str) -> str:
    """A measure as it is called in a sentence."""
    entry = catalogue(report).get(request, {})
    return shorten(entry.get("title", request))


def _audit(report: Plain) -> list[str]:
    audit = report["extras"].get("audit")
    if not audit:
        return []
    violated = [row for row in audit["rows"] if row["verdict"] == Verdict.VIOLATED]
    if violated:
        names = listed(list(dict.fromkeys(row["measure"] for row in violated)))
        return [
            f"A claim did not hold: {names} moved where it must not. This is a mistake "
            "of ours; please report it."
        ]
    moved = movements(report)
    still = [
        request for request, one in moved.items() if one["claimed"] and not one["moved"]
    ]
    movers = [request for request, one in moved.items() if one["moved"]]
    sentences = []
    if movers:
        top = max(movers, key=lambda request: moved[request]["size"])
        size = moved[top]["size"]
        much = (
            f"by a factor of {number(size, 3)}"
            if finite(size)
            else "so far that its sign changed"
        )
        sentence = f"Same outputs, other parameters: {_title(report, top)} moved {much}"
        if still:
            others = f" and {len(still) - 1} more" if len(still) > 1 else ""
            sentence += f". {_title(report, still[0])}{others} did not move"
        sentences.append(sentence + ".")
    sharpened = audit.get("sharpened")
    if moved and not movers and not sharpened:
        sentences.append(
            "No measure was seen to move when the parameters were changed and the "
            "function was not."
        )
    return [*sentences, *_sharpened(report, sharpened)]


def _sharpened(report: Plain, sharpened: Plain | None) -> list[str]:
    """The adversarial twin: what it did to the Hessian, and what it could not do."""
    if not sharpened:
        return []
    sentence = (
        "A twin built on purpose computes the same function and is "
        f"{factor(sharpened['ratio'])} sharper by the largest eigenvalue of the "
        f"Hessian; its outputs differ by {number(sharpened['output_change'], 2)}, "
        "relatively"
    )
    still = [
        _title(report, request)
        for request, ratio in sharpened.get("ratios", {}).items()
        if finite(ratio) and abs(ratio - 1) < UNMOVED
    ]
    if still:
        sentence += f". Unmoved on that twin: {listed(list(dict.fromkeys(still)))}"
    return [sentence + "."]


def _comparison(report: Plain) -> list[str]:
    comparison = report["extras"].get("comparison")
    if not comparison:
        return []
    rows = [row for row in comparison["rows"] if row["flatter"] and row["significant"]]
    if not rows:
        return ["No difference between the checkpoints is larger than its error bars."]
    solid = [row for row in rows if Kind.NODE_RESCALE in row["invariant_to"]]
    sentences = [_flatter(rows, "measures whose difference exceeds its error bars")]
    if solid and len(solid) < len(rows):
        sentences.append(
            _flatter(solid, "of them that rescaling neurons cannot change")
        )
    return sentences


def _flatter(rows: list[Plain], what: str) -> str:
    [(winner, votes)] = Counter(row["flatter"] for row in rows).most_common(1)
    count = f"all {len(rows)}" if votes == len(rows) else f"{votes} of {len(rows)}"
    return f"“{shorten(winner)}” is flatter by {count} {what}."


def _trust(report: Plain) -> list[str]:
    every = measured(report)
    doubtful = [item for item in every if not item[2].status.trusted]
    if not every:
        return []
    if not doubtful:
        count = "The number" if len(every) == 1 else f"All {len(every)} numbers"
        return [f"{count} can be quoted, each with its uncertainty."]
    sentences = [
        f"{len(every) - len(doubtful)} of {len(every)} numbers can be quoted, each with "
        "its uncertainty."
    ]
    for name, request, found in doubtful[:3]:
        of = f" of “{shorten(name)}”" if name else ""
        sentences.append(
            f"{_title(report, request)}{of}: {shorten(found.message, 240)}"
        )
    if len(doubtful) > 3:
        sentences.append(f"{len(doubtful) - 3} more are listed under Convergence.")
    return sentences


def _extras(report: Plain) -> list[str]:
    extras = report["extras"]
    sentences = []
    if extras.get("symmetries"):
        found = extras["symmetries"]
        sentences.append(
            f"{number(found['dimension'])} independent rescalings of the parameters leave "
            "the function unchanged."
        )
    values = (extras.get("spectrum") or {}).get("eigenvalues", {}).get("values")
    if values:
        sentences.append(
            f"The largest eigenvalue of the Hessian is {number(values[0])}."
        )
    if extras.get("landscapes"):
        loss = report["provenance"]["loss_value"]
        sentences.append(f"The loss is {number(loss)}, and rises as the slices show.")
    return sentences
