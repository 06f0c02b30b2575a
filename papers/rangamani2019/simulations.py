"""The page's sections on section 3.1 of the paper: Tables 2 and 3, and Figure 1."""

from __future__ import annotations

from typing import Any

from papers.experiment import Results
from papers.page import NOT_RUN, number, table
from papers.rangamani2019.convergence import LEVELS
from papers.rangamani2019.convergence import NAME as FIGURE_1
from papers.rangamani2019.invariance import DTYPES

TITLES = {"table2": "Table 2", "table3": "Table 3"}
LIMITS = {"float32": 1e-5, "float64": 1e-12}


def tables(results: Results, expected: dict[str, Any]) -> str:
    """Relative differences under rescaled layers, the printed ones beside them."""
    rows = []
    for name, title in TITLES.items():
        printed = dict(expected[name]["differences"])
        for row in differences(results, name):
            paper = printed.pop(row["factors"], None)
            limits = (
                ["0", "0"] if row["exact"] else [number(v) for v in LIMITS.values()]
            )
            rows.append(
                [
                    f"{title}, {row['factors']}",
                    paper,
                    *(
                        f"{number(row[dtype], 2)} (limit {limit})"
                        for dtype, limit in zip(DTYPES, limits, strict=True)
                    ),
                    number(row["euclidean"], 3),
                    "within the limits" if row["within"] else "above the limits",
                ]
            )
        rows += [
            [f"{title}, {factors}", value, NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN]
            for factors, value in printed.items()
        ]
    head = ["table, λ", "the paper", "float32", "float64"]
    return table([*head, "largest eigenvalue of the Hessian, ×", "verdict"], rows)


def differences(results: Results, name: str) -> list[dict[str, Any]]:
    """One entry for each λ of a table that was run."""
    if name not in results:
        return []
    found = results[name]
    rows = []
    for single, double in zip(*(found[dtype]["rows"] for dtype in DTYPES), strict=True):
        exact = single["exact"]
        moved = {"float32": single, "float64": double}
        values = {dtype: one["relative_difference"] for dtype, one in moved.items()}
        limits = {dtype: 0.0 if exact else LIMITS[dtype] for dtype in DTYPES}
        rows.append(
            {
                "factors": factors_text(single["factors"]),
                "exact": exact,
                **values,
                "euclidean": double["euclidean_ratio"],
                "within": all(values[dtype] <= limits[dtype] for dtype in DTYPES),
            }
        )
    return rows


def factors_text(factors: list[list[int]]) -> str:
    """λ as the paper writes it.

    >>> factors_text([[5, 1], [1, 20]])
    '(5, 1/20)'
    """
    shown = [str(top) if low == 1 else f"{top}/{low}" for top, low in factors]
    return f"({', '.join(shown)})"


def setting(results: Results, expected: dict[str, Any]) -> str:
    """What was measured for the tables, and at which loss."""
    lines = []
    for name, title in TITLES.items():
        if name not in results:
            lines.append(f"- {title}: not run.")
            continue
        samples = results.records[name]["settings"]["samples"]
        found = results[name]["float64"]
        lines.append(
            f"- {title}: {expected[name]['network']}, with biases, {samples} samples, "
            f"loss {number(found['loss'])}, Riemannian spectral norm "
            f"{number(found['value'], 6)} (float64)."
        )
    return "\n".join(lines) + "\n"


def tables_verdict(results: Results) -> str:
    """One sentence on the tables."""
    rows = [row for name in TITLES for row in differences(results, name)]
    if not rows:
        return "Tables 2 and 3: not run."
    good = [row for row in rows if row["within"]]
    missing = [title for name, title in TITLES.items() if name not in results]
    rest = f" {missing[0]} was not run." if missing else ""
    if len(good) < len(rows):
        return (
            f"Tables 2 and 3 differ: {len(rows) - len(good)} of {len(rows)} rows are "
            f"above the limits.{rest}"
        )
    worst = {
        dtype: max(row[dtype] for row in rows if not row["exact"]) for dtype in DTYPES
    }
    moved = max(row["euclidean"] for row in rows)
    return (
        "Tables 2 and 3 agree: rescaled layers do not move the measure. It changes by at "
        f"most {number(worst['float32'], 2)} in float32 and {number(worst['float64'], 2)} "
        "in float64, which is rounding, and not by a single bit where every λ is a power "
        "of two. The largest eigenvalue of the ordinary Hessian grows up to "
        f"{number(moved, 2)} times.{rest}"
    )


def figure1(results: Results) -> str:
    """How fast the two methods converge."""
    if FIGURE_1 not in results:
        return "Figure 1: not run.\n"
    found = results[FIGURE_1]
    steps = {name: len(values) for name, values in found["estimates"].items()}
    names = {"power": "power method (Algorithm 1)", "lanczos": "Lanczos"}
    rows = [
        [
            label,
            *(
                f"more than {steps[name]}" if n is None else n
                for n in needed(found, name)
            ),
        ]
        for name, label in names.items()
    ]
    head = ["products to a relative error of", *(f"{level:.0e}" for level in LEVELS)]
    magnitude = (
        "The largest eigenvalue is also the largest in magnitude here (the smallest is "
        f"{number(found['smallest'])}), so that both methods look for the same number; "
        "where a negative eigenvalue is larger in magnitude, Algorithm 1 as printed finds "
        "that one and its stopping rule never fires."
        if abs(found["smallest"]) < found["largest"]
        else "A negative eigenvalue is the largest in magnitude here: Algorithm 1 as "
        "printed finds that one instead."
    )
    return f"""\
![Convergence of the power method and of Lanczos](figures/figure1.svg)

The network of Table 2, in float64. Both methods start from the same vector. {magnitude}

{table(head, rows)}
The text of the paper gives no numbers for its Figure 1, so there is nothing to compare but
that the method converges. The largest eigenvalue is {number(found["largest"], 10)}, found with
a residual of {number(found["residual"], 2)}.
"""


def needed(found: dict[str, Any], name: str) -> list[int | None]:
    """The products that a method needed for each level of accuracy."""
    return found["products"][name]


def figure1_verdict(results: Results) -> str:
    """One sentence on the figure."""
    if FIGURE_1 not in results:
        return "Figure 1: not run."
    found, level = results[FIGURE_1], LEVELS.index(1e-6)
    power, lanczos = (needed(found, name)[level] for name in ("power", "lanczos"))
    if power is None or lanczos is None:
        return "Figure 1: the power method did not get within 1e-6 in its steps."
    return (
        f"Figure 1 agrees: the power method converges. It needs {power} products for a "
        f"relative error of 1e-6, Lanczos needs {lanczos}."
    )
