"""The verdict: the sentences at the top of the page."""

from __future__ import annotations

from flatgauge.report.answer import compared
from flatgauge.report.audit_table import movements
from flatgauge.report.formatting import factor, finite, listed, number, shorten
from flatgauge.report.sections import catalogue, measured
from flatgauge.results import Measurement, Plain
from flatgauge.vocabulary import Verdict


def verdict(report: Plain) -> tuple[str, list[str]]:
    """The headline, and the sentences below it."""
    found = [compared(report), _audit(report), _trust(report)]
    sentences = [one for group in found for one in group] or _extras(report)
    sentences = [*_cautions(report), *sentences]
    if not sentences:
        return "Nothing was measured.", []
    return sentences[0], sentences[1:]


def _cautions(report: Plain) -> list[str]:
    """What must be known before anything else is read."""
    unlike = (report["extras"].get("comparison") or {}).get("unlike", [])
    return [*report["extras"].get("cautions", []), *(one["text"] for one in unlike)]


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
    still = [request for request, one in moved.items() if one["held"]]
    movers = [
        request for request, one in moved.items() if one["moved"] and not one["held"]
    ]
    sentences = []
    if movers:
        top = max(movers, key=lambda request: moved[request]["size"])
        much = _much(report, top, moved[top])
        sentence = f"Same outputs, other parameters: {_title(report, top)} moved {much}"
        if still:
            others = f" and {len(still) - 1} more" if len(still) > 1 else ""
            sentence += f". Rescaling did not move {_title(report, still[0])}{others}"
        sentences.append(sentence + ".")
    if moved and not movers:
        sentences.append(
            "No measure was seen to move when the parameters were changed and the "
            "function was not."
        )
    if audit.get("untried"):
        sentences.append(f"Random elements alone were tried: {audit['untried']}.")
    if report["extras"].get("comparison"):
        # The answer stands above; the audit's own section tells of the twin.
        return sentences
    return [*sentences, *_sharpened(audit.get("sharpened"))]


def _much(report: Plain, request: str, found: Plain) -> str:
    """How far the farthest move was, in a sentence."""
    if catalogue(report).get(request, {}).get("logarithmic"):
        return f"by {found['text']}, which is a difference of logarithms"
    if finite(found["size"]):
        return f"by a factor of {number(found['size'], 3)}"
    return "so far that its sign changed"


def _sharpened(sharpened: Plain | None) -> list[str]:
    """The adversarial twin: what it did to the Hessian."""
    if not sharpened:
        return []
    return [
        "A twin built on purpose computes the same function and is "
        f"{factor(sharpened['ratio'])} sharper by the largest eigenvalue of the "
        f"Hessian; its outputs differ by {number(sharpened['output_change'], 2)}, "
        "relatively."
    ]


def _trust(report: Plain) -> list[str]:
    every = measured(report)
    doubtful = [item for item in every if not item[2].status.trusted]
    if not every:
        return []
    sentences = [_quotable([found for _, _, found in every])]
    for name, request, found in doubtful[:3]:
        of = f" of “{shorten(name)}”" if name else ""
        sentences.append(
            f"{_title(report, request)}{of}: {shorten(found.message, 240)}"
        )
    for name, request, found in every:
        if found.status.trusted and found.caution:
            of = f" of “{shorten(name)}”" if name else ""
            sentences.append(f"{_title(report, request)}{of}: {found.caution}")
    if len(doubtful) > 3:
        sentences.append(f"{len(doubtful) - 3} more are listed under Convergence.")
    return sentences


def _quotable(every: list[Measurement]) -> str:
    """How many numbers can be quoted, and which of them have an uncertainty."""
    good = [one for one in every if one.status.trusted]
    count = f"{len(good)} of {len(every)} numbers"
    if len(good) == len(every):
        count = "The number" if len(every) == 1 else f"All {len(every)} numbers"
    bare = sum(one.uncertainty is None for one in good)
    if not good:
        return f"None of the {len(every)} numbers can be quoted."
    if bare == len(good):
        how = "exact up to rounding"
    elif bare:
        how = f"{bare} exact up to rounding, {len(good) - bare} with their uncertainty"
    else:
        how = "with its uncertainty" if len(good) == 1 else "each with its uncertainty"
    return f"{count} can be quoted: {how}."


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
