"""Measure what is invariant to what, and write the table: python docs/generate_invariance.py

Every row is a map of the parameters, every column a measure. A cell is the ratio of the
measure after the map to the measure before it, on a small float64 network, and it must
agree with the table that theory predicts: ✓ within 1e-9 of 1, ✗ more than 1 % away.
"""

from __future__ import annotations

from pathlib import Path

import torch
from invariance_moves import Move, moves, output_moves, problem
from networks import normalized, seeded

import flatgauge as fg
from flatgauge.symmetry.maps.batchnorm import NormalizedLayer, rescale_normalized_rows

PAGE = Path(__file__).parent / "invariance_table.md"
COLUMNS = {
    "Tr H": "hessian-trace",
    "λmax": "hessian-spectral-norm[tol=1e-12]",
    "ε-sharp": "epsilon-sharpness[tol=1e-12]",
    "(13) weights": "matrix-normalized-sharpness[surrogate=objective]",
    "(13)": "matrix-normalized-sharpness[surrogate=objective]",
    "(17)": "normalized-sharpness[surrogate=objective]",
    "FR diagonal": "fisher-rao-norm[diagonal=True]",
    "FR": "fisher-rao-norm",
    "R layer": "riemannian-spectral-norm[metric=layer,tol=1e-12]",
    "R node": "riemannian-spectral-norm[metric=node,tol=1e-12]",
}
# Columns whose number is a by-product of the measure.
DETAILS = {"(13) weights": "weights_only", "ε-sharp": "quadratic"}
UNMOVED, MOVED = 1e-9, 1e-2

# In the order of COLUMNS: y invariant, n not, a invariant (measured in evaluation mode),
# - nothing to measure.
EXPECTED = {
    "layers scaled, no biases": "nnn yyy yy yy",
    "layers scaled, with biases": "nnn yyy yy yy",
    "nodes scaled": "nnn nny yy ny",
    "channels scaled": "nnn nny yy ny",
    "rows before a train-mode batch norm, one factor": "nnn yyy a- yy",
    "rows before a train-mode batch norm, separately": "nnn nny a- ny",
    "batch norm's (γ, β)·c, next W/c": "nnn yyy yy yy",
    "outputs ×c, normalized cross-entropy": "nnn yyy yy yy",
    "outputs ×c, cross-entropy": "nnn nnn nn nn",
    "outputs shifted by the last bias": "yyy yny ny nn",
    "outputs shifted by the last weight": "yyy nnn ny nn",
    "a layer norm's inputs shifted": "yyy nnn ny nn",
    "signs flipped (tanh)": "yyy yyy yy yy",
    "units permuted": "yyy yyy yy yy",
    "the factors of a product, any matrix": "nnn nnn ny nn",
    "branches merged (27) → (30)": "nnn yyy ny nn",
    "query and key, scalar": "nnn y-y yy yy",
    "query and key, diagonal": "nnn n-y yy ny",
    "query and key, orthogonal": "yyy y-n ny yn",
    "query and key, any matrix": "nnn n-n ny nn",
}


def values(objective: fg.Objective) -> dict[str, float | None]:
    """Every column's number; None where the measure does not apply."""
    report = fg.measure(objective, *dict.fromkeys(COLUMNS.values()))
    found = {}
    for column, request in COLUMNS.items():
        one = report[request]
        # The climb of ε-sharpness need not end: its column is the quadratic form.
        value = one.details[DETAILS[column]] if column in DETAILS else one.value
        assert value is None or one.status.trusted or column in DETAILS, one.message
        found[column] = value
        # A sum that is clipped to 0 would be invariant for no good reason.
        assert not one.details.get("clipped_tensors"), one.details
    return found


def cells(move: Move) -> list[str]:
    """The measured ratios with their marks; fails where theory says otherwise."""
    expected = EXPECTED[move.row].replace(" ", "")
    pair = values(move.before), values(move.after)
    evaluation = tuple(map(values, move.evaluation or ()))
    shown = []
    for column, mark in zip(COLUMNS, expected, strict=True):
        before, after = (one[column] for one in (evaluation if mark == "a" else pair))
        shown.append(
            "–" if mark == "-" else cell(move.row, column, mark, before, after)
        )
    return shown


def cell(
    row: str, column: str, mark: str, before: float | None, after: float | None
) -> str:
    assert before, (row, column)
    assert after is not None, (row, column)
    ratio = after / before
    moved = abs(ratio - 1)
    if mark == "n":
        assert moved > MOVED, (row, column, ratio)
        return f"✗\u00a0{ratio:.3g}"
    assert moved < UNMOVED, (row, column, ratio)
    return "✓\u00a01" + ("\\*" if mark == "a" else "")


def batch_norm_eps() -> str:
    """What the eps of a batch norm leaves of the invariance."""
    model = seeded(lambda: normalized(eps=1e-5)).train()
    start = problem(model, mode="train")
    scales = torch.full((5,), 3.0, dtype=torch.float64)
    block = NormalizedLayer.of(model, "1")
    twin = start.at(rescale_normalized_rows(start.parameters, block, scales))
    loss = abs(twin.value() / start.value() - 1)
    request = COLUMNS["(17)"]
    before, after = (fg.measure(one, request)[request].value for one in (start, twin))
    assert before is not None
    assert after is not None
    moved = abs(after / before - 1)
    assert 1e-9 < loss < 1e-3, loss
    assert 1e-9 < moved < 1e-3, moved
    return (
        "With PyTorch's eps of 1e-5 the rows in front of a batch norm can be scaled only "
        f"approximately: times 3, the loss itself moved by {loss:.2g} and (17) by "
        f"{moved:.2g}, relatively."
    )


def table() -> str:
    """The table as markdown."""
    lines = [
        "| what is done to the parameters | " + " | ".join(COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    rows = []
    for move in moves():
        lines.append(f"| {move.row} | " + " | ".join(cells(move)) + " |")
        rows.append(move.row)
    assert rows == list(EXPECTED), "a row is missing"
    return "\n".join(lines)


def centered() -> str:
    """The two shifts again, with center_output=True."""
    requests = {
        "(13)": "matrix-normalized-sharpness[surrogate=objective,center_output=True]",
        "(17)": "normalized-sharpness[surrogate=objective,center_output=True]",
        "FR diagonal": "fisher-rao-norm[diagonal=True,center_output=True]",
        "R layer": "riemannian-spectral-norm[center_output=True,tol=1e-12]",
        "R node": "riemannian-spectral-norm[metric=node,center_output=True,tol=1e-12]",
    }
    lines = [
        "| with `center_output=True` | " + " | ".join(requests) + " |",
        "|---" * (len(requests) + 1) + "|",
    ]
    for move in output_moves():
        if "shifted" in move.row:
            before, after = (
                fg.measure(one, *requests.values()) for one in (move.before, move.after)
            )
            shown = [
                cell(move.row, column, "y", before[one].value, after[one].value)
                for column, one in requests.items()
            ]
            lines.append(f"| {move.row} | " + " | ".join(shown) + " |")
    assert len(lines) == 4
    return "\n".join(lines)


def page() -> str:
    return (
        "<!-- Written by docs/generate_invariance.py; do not edit. -->\n\n"
        f"{table()}\n\n{batch_norm_eps()}\n\n{centered()}\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}: every cell agrees with theory")
