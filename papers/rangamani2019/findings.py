"""What the stored results say of every statement of the paper."""

from __future__ import annotations

from typing import Any

from papers.completeness import IN_PART, REFUTED, Check, Finding, judged
from papers.experiment import Results
from papers.page import NOT_RUN, number
from papers.rangamani2019 import (
    cifar_findings,
    convergence,
    quotient,
    riemannian,
    simulations,
)
from papers.rangamani2019.cause import MANY, loss_orders, orders
from papers.rangamani2019.minima import MEASURES, cells

ROUND = 1e-10


def _both(results: Results) -> list[dict[str, Any]]:
    return list(results[quotient.NAME].values())


def _worst(results: Results, *keys: str) -> float:
    return max(one[key] for one in _both(results) for key in keys)


def definition_1(results: Results) -> Finding:
    return _limit(results, "epsilon")


def manifold(results: Results) -> Finding:
    return _limit(results, "manifold")


def _limit(results: Results, key: str) -> Finding:
    rows = results[riemannian.NAME]["sharpness"]
    ratios = [row[key] / row[f"{key}, second order"] for row in rows]
    words = (
        f"measured over second order: {number(ratios[0])} at ε = {rows[0]['radius']:g}, "
        f"{number(ratios[-1])} at ε = {rows[-1]['radius']:g}: a limit, not an equality"
    )
    return judged(abs(ratios[-1] - 1) < 0.02), words


def large(results: Results) -> Finding:
    rows = results[riemannian.NAME]["theorem"]
    holds = all(row["largest"] >= row["bound"] for row in rows)
    first = rows[0]
    words = (
        f"at α = {first['alpha']:g} the largest eigenvalue is {number(first['largest'])}, "
        f"its lower bound γ/α² {number(first['bound'])}"
    )
    return judged(holds and first["largest"] > 100 * first["floor"]), words


def small(results: Results) -> Finding:
    rows = results[riemannian.NAME]["theorem"]
    least, floor = min(row["largest"] for row in rows), rows[0]["floor"]
    words = f"never below √(λ₁λ₂) = {number(floor)}; the least that we see is {number(least)}"
    return judged(least >= floor > 0, REFUTED), words


def equivalence(results: Results) -> Finding:
    worst = _worst(results, "reflexive", "symmetric", "transitive", "loss")
    return judged(worst < ROUND), f"to {number(worst, 2)}, and the loss stays the same"


def manifold_structure(results: Results) -> Finding:
    found = results[quotient.NAME]["without biases"]
    good = found["graph"] < ROUND < found["least off graph"]
    words = (
        f"F2 is at most {number(found['graph'], 2)} on the graph, at least "
        f"{number(found['least off graph'], 2)} off it; its derivative has rank "
        f"{found['rank']} of {found['rows']}. W_i ≠ 0 is needed"
    )
    return judged(good and found["rank"] == found["rows"]), words


def manifold_with_biases(results: Results) -> Finding:
    found = results[quotient.NAME]["with biases"]
    good = found["graph"] < ROUND < found["least off graph"]
    words = (
        f"the printed rows for biases are up to {number(found['printed rows'], 3)} on the "
        f"graph, mended ones at most {number(found['graph'], 2)}, with rank "
        f"{found['rank']} of {found['rows']}"
    )
    good = good and found["rank"] == found["rows"] and found["printed rows"] > 0.01
    return judged(good, IN_PART), words


def metric(results: Results) -> Finding:
    found = results[quotient.NAME]["without biases"]["metric"]
    return judged(found < ROUND), f"to {number(found, 2)}"


def metric_with_biases(results: Results) -> Finding:
    found = results[quotient.NAME]["with biases"]["metric"]
    return judged(
        found < ROUND
    ), f"to {number(found, 2)}; where b_i = 0 it is not defined"


def invariants(results: Results) -> Finding:
    worst = _worst(results, "invariant")
    return judged(worst < ROUND), f"to {number(worst, 2)}"


def tangents(results: Results) -> Finding:
    worst = _worst(results, "vertical")
    exact = all(
        one["vertical dimension"] == one["layers"] - 1 for one in _both(results)
    )
    words = (
        f"derivatives of T_λ agree to {number(worst, 2)}, and the dimension is L − 1; the "
        "proofs show inclusion in a larger space only"
    )
    return judged(worst < 1e-8 and exact), words


def curves(results: Results) -> Finding:
    moved = min(one["straight line"] for one in _both(results))
    words = (
        f"the straight line changes the loss by {number(moved, 2)} or more at t = 0.1, "
        f"as t^{number(min(one['straight line, order'] for one in _both(results)), 3)}"
    )
    return judged(moved > 1e-4, REFUTED), words


def definition_2(results: Results) -> Finding:
    found = results[riemannian.NAME]["remarks"]
    worst = max(one["definition"] for one in found.values())
    proper = found["away"]["largest, Levi-Civita"] / found["away"]["largest"] - 1
    words = (
        f"grad g(grad f, ξ) is G⁻¹∇²f ξ to {number(worst, 2)}; at a minimum that is the "
        f"Riemannian Hessian, elsewhere λmax of the latter is another ({proper:+.1%})"
    )
    return judged(worst < ROUND and abs(proper) > 1e-3, IN_PART), words


def projection(results: Results) -> Finding:
    found = results[riemannian.NAME]["remarks"]
    at, away = (found[point]["vertical image"] for point in ("minimum", "away"))
    words = (
        f"the Hessian's image of a vertical vector is {number(at, 2)} at a minimum, "
        f"{number(away, 2)} away from one"
    )
    return judged(at < ROUND < 1e-4 < away, IN_PART), words


def power_method(results: Results) -> Finding:
    found = results[riemannian.NAME]["spectral"]
    if not found["found"]:
        return judged(False), "no network was found to try it on"
    words = (
        f"it finds the largest magnitude: {number(found['algorithm'], 6)} where Definition "
        f"3 asks for {number(found['largest'], 6)}"
    )
    wrong = abs(found["algorithm"] / found["smallest"] - 1) < 1e-3
    return judged(wrong, IN_PART), words


def nodes(results: Results) -> Finding:
    found = results[riemannian.NAME]["nodes"]
    words = (
        f"with the node-wise metric to {number(found['node'], 2)}; the printed Λ₄W₃ must "
        "be W₃Λ₄"
    )
    good = found["node"] < 1e-8 and found["loss, printed"] > 0.01
    return judged(good, IN_PART), words


def table_2(results: Results) -> Finding:
    return _differences(results, "table2")


def table_3(results: Results) -> Finding:
    return _differences(results, "table3")


def _differences(results: Results, name: str) -> Finding:
    rows = simulations.differences(results, name)
    worst = [max(row[dtype] for row in rows) for dtype in ("float32", "float64")]
    words = "at most {} in float32 and {} in float64".format(
        *(number(w, 2) for w in worst)
    )
    return judged(all(row["within"] for row in rows)), words


def figure_1(results: Results) -> Finding:
    power, lanczos = (
        simulations.needed(results[convergence.NAME], name)[1]
        for name in ("power", "lanczos")
    )
    words = f"{power} products to 1e-6, Lanczos {lanczos}; the figure prints no numbers"
    return judged(power is not None), words


def flatter(results: Results) -> Finding:
    if not cells(results):
        return NOT_RUN, ""
    found = [cell.compare(MEASURES[0]) for cell in cells(results)]
    counts = [f"{one.small_is_smaller} of {one.pairs}" for one in found]
    every = all(one.small_is_smaller == one.pairs for one in found)
    words = f"the small batch is flatter in {', '.join(counts)} pairs"
    return (judged(True) if every else IN_PART), words


def by_orders(results: Results) -> Finding:
    if not cells(results):
        return NOT_RUN, ""
    found = [(orders(cell), loss_orders(cell)) for cell in cells(results)]
    wide = sum(one >= MANY for one, _ in found)
    said = "; ".join(f"{one:.2f} (losses {other:.2f})" for one, other in found)
    words = f"orders of magnitude, beside those of the train losses: {said}"
    return (judged(True) if wide == len(found) else IN_PART), words


def accuracy(results: Results) -> Finding:
    if not cells(results):
        return NOT_RUN, ""
    better = [
        sum(
            one["test_accuracy"] > other["test_accuracy"]
            for one, other in zip(cell.small, cell.large, strict=True)
        )
        for cell in cells(results)
    ]
    every = [len(cell.small) for cell in cells(results)]
    words = f"the small batch is better in {sum(better)} of {sum(every)} pairs"
    return (judged(True) if better == every else IN_PART), words


CHECKS = {
    "definition 1": Check((riemannian.NAME,), definition_1),
    "large": Check((riemannian.NAME,), large),
    "small": Check((riemannian.NAME,), small),
    "equivalence": Check((quotient.NAME,), equivalence),
    "manifold structure": Check((quotient.NAME,), manifold_structure),
    "metric": Check((quotient.NAME,), metric),
    "invariants": Check((quotient.NAME,), invariants),
    "tangents": Check((quotient.NAME,), tangents),
    "curves": Check((quotient.NAME,), curves),
    "biases": Check((quotient.NAME,), manifold_with_biases),
    "metric with biases": Check((quotient.NAME,), metric_with_biases),
    "definition 2": Check((riemannian.NAME,), definition_2),
    "manifold": Check((riemannian.NAME,), manifold),
    "power method": Check((riemannian.NAME,), power_method),
    "projection": Check((riemannian.NAME,), projection),
    "table 2": Check(("table2",), table_2),
    "table 3": Check(("table3",), table_3),
    "figure 1": Check((convergence.NAME,), figure_1),
    "flatter": Check((), flatter),
    "orders": Check((), by_orders),
    "accuracy": Check((), accuracy),
    "nodes": Check((riemannian.NAME,), nodes),
    **cifar_findings.CHECKS,
}
"""Key in expected.json -> how the verdict follows from the stored results."""
