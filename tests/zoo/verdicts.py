"""What a row of findings amounts to, in one word."""

from __future__ import annotations

from zoo.checks import FACTOR, Row, same_outputs

RIGHT, REFUSED, MISSED = "right", "refused by name", "missed"
WRONG, CRASH, FALSE, SLOW = "WRONG", "CRASH", "FALSE VIOLATION", "too slow"
# Bad news first: the first that applies is the verdict.
ORDER = (CRASH, WRONG, FALSE, SLOW, REFUSED, MISSED, RIGHT)
# By how much less than asked for a twin may be sharper: the tolerance of two eigenvalues.
NEARLY = 0.99


def mistakes(row: Row) -> list[str]:
    """Numbers and functions that are not what they should be."""
    found = []
    if row.get("preserved", 0.0) > same_outputs(row):
        found.append(f"a rescaling changes the outputs by {row['preserved']:.1e}")
    for request, (verdict, got, want, *layer) in row.get("dense", {}).items():
        if verdict == "WRONG":
            where = f" of {layer[0]}" if layer else ""
            found.append(f"{request}{where} is {got:.6g}, not {want:.6g}")
    if row.get("touched"):
        found.append(f"changed: {', '.join(row['touched'][:4])}")
    if row.get("sharpened_outputs", 0.0) > same_outputs(row):
        found.append(f"sharpen changes the outputs by {row['sharpened_outputs']:.1e}")
    if row.get("sharpened_by", FACTOR) < NEARLY * FACTOR:
        found.append(f"sharpened {row['sharpened_by']:.4g} times only")
    return found


def verdict(row: Row) -> str:
    """The worst that was found."""
    if row["crashed"]:
        return CRASH
    if mistakes(row):
        return WRONG
    if row.get("violations"):
        return FALSE
    if row["step"] != "done":
        return SLOW
    if row["refused"]:
        return REFUSED
    return f"{MISSED} {row['missed']}" if row.get("missed") else RIGHT


def notes(row: Row) -> list[str]:
    """Why, in words."""
    said = [f"{step}: {text}" for step, text in row["crashed"].items()]
    said += mistakes(row) + list(row.get("violations", ()))
    if row["step"] != "done":
        said.append(f"stopped during: {row['step']}")
    return said + [f"{step}: {text}" for step, text in row["refused"].items()]
