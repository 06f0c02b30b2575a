"""The page's sections on the definitions, propositions and lemmas of the paper."""

from __future__ import annotations

from typing import Any

from papers.experiment import Results
from papers.page import number, table
from papers.rangamani2019.quotient import NAME as QUOTIENT
from papers.rangamani2019.riemannian import NAME as DEFINITIONS

KINDS = ("without biases", "with biases")
ROWS = {
    "loss": "the loss at T_λ W",
    "symmetric": "2.1: T_λ⁻¹ T_λ W against W",
    "transitive": "2.1: T_μ T_λ W against T_μλ W",
    "metric": "2.3, 2.5: g of two tangent vectors, over their lengths",
    "invariant": "2.3: Π ‖W_i‖², and with biases Π ‖W~_i‖²",
    "graph": "2.2, A.2, A.3: largest entry of F2 on the graph of ~",
    "least off graph": "the same, least off the graph",
    "vertical": "2.4, 2.6: vertical vectors against derivatives of T_λ",
    "slope": "∇L along vertical vectors, over the lengths",
}


def propositions(results: Results) -> str:
    """Section 2 and Appendix A."""
    if QUOTIENT not in results:
        return "The propositions and lemmas: not run.\n"
    result = results[QUOTIENT]
    settings = results.records[QUOTIENT]["settings"]
    rows: list[list[Any]] = [
        [label, *(number(result[kind][key], 2) for kind in KINDS)]
        for key, label in ROWS.items()
    ]
    rows += [
        [
            "A.2, A.3: rank of F2's derivative, of so many rows",
            *(f"{result[k]['rank']} of {result[k]['rows']}" for k in KINDS),
        ],
        [
            "2.4, 2.6: dimension of the vertical space, at so many layers",
            *(
                f"{result[k]['vertical dimension']} at {result[k]['layers']}"
                for k in KINDS
            ),
        ],
        [
            "the loss on the line W + tV, V vertical, at t = 0.1",
            *(number(result[k]["straight line"], 2) for k in KINDS),
        ],
    ]
    found = result["with biases"]
    plain = max(result[kind]["euclidean"] for kind in KINDS)
    widths = "-".join(map(str, settings["widths"]))
    return (
        f"A {widths} ReLU network with normally distributed parameters, without and with "
        f"biases, in float64; the worst over {settings['draws']} draws of λ, with ln λ of "
        f"width {settings['spread']}. Differences are relative. F2 is the function of "
        "Propositions A.2 and A.3 whose zeros are to be the pairs of equivalent "
        "networks.\n\n"
        + table(["statement", *KINDS], rows)
        + "\n- Propositions 2.1 to 2.3 and 2.5 hold: T_λ is a group that keeps the "
        "function, its classes are the zeros of a submersion, and g does not notice it, "
        f"while Euclidean lengths change by up to exp({number(plain / 2, 2)}). The "
        "classes need W_i ≠ 0, and b_i ≠ 0 where there are biases, since F2 and g divide "
        "by their norms.\n"
        "- In Appendix A.1 the rows of F and F2 for the biases are misprinted. "
        "log r(b_L) − log r(W_{L−1}), as printed, is up to "
        f"{number(found['printed rows'], 3)} on the graph instead of 0; "
        "log r(b_i) − log r(b_{i−1}) − log r(W_i) is right, and is what was used above.\n"
        "- Lemmas 2.4 and 2.6 are right, but not by their proofs: those show that the "
        "vertical vectors lie in the tangent space of one level set, which has "
        f"{found['parameters'] - 1} of {found['parameters']} dimensions; the classes have "
        f"{found['vertical dimension']}. Differentiating T_λ gives them.\n"
        "- Section 2 says that every smooth curve that starts vertically stays in its "
        "class. It need not: on a straight line the loss changes, with the power "
        f"{number(found['straight line, order'], 3)} of its length.\n"
    )


def definitions(results: Results) -> str:
    """Definitions 1 to 3, Theorem 1.1, the remarks and section 6."""
    if DEFINITIONS not in results:
        return "The definitions: not run.\n"
    result = results[DEFINITIONS]
    return "\n".join(
        [
            "The same kind of network with biases, at a minimum (its own outputs are the "
            "targets) and away from one (random targets), with squared errors.\n",
            "**Definition 1** and its form on the manifold, against λ ε²/2(1+L), which "
            "the paper sets equal; it is the limit for small ε:\n",
            _sharpness(result["sharpness"]),
            "**Theorem 1.1**, one hidden layer without biases at a minimum: the largest "
            "eigenvalue at T_α exceeds γ/α² with γ the largest diagonal entry of the first "
            "layer's block, and so any bound. It does not become as small as one likes: "
            "it is never below √(λ₁λ₂), from the largest eigenvalues of the two blocks.\n",
            _theorem(result["theorem"]),
            "**Definition 2, Remarks 1 and 2, Definition 3.** Differences are relative; "
            '"image" is the length of ∇²L V over those of S∇²L S and of a vertical V.\n',
            _remarks(result["remarks"]),
            _remarks_in_words(result["remarks"]),
            _spectral(result["spectral"]),
            _nodes(result["nodes"]),
        ]
    )


def _sharpness(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        cell = [f"{row['radius']:g}"]
        for key in ("epsilon", "manifold"):
            value, order = row[key], row[f"{key}, second order"]
            cell += [number(value), number(order), number(value / order)]
        cells.append(cell)
    head = ["ε", "Definition 1", "second order", "ratio"]
    return table([*head, "on the manifold", "second order", "ratio"], cells)


def _theorem(rows: list[dict[str, float]]) -> str:
    cells = [[f"{r['alpha']:g}", r["largest"], r["bound"], r["floor"]] for r in rows]
    return table(["α", "largest eigenvalue", "γ/α²", "√(λ₁λ₂)"], cells)


REMARKS = {
    "gradient": "norm of the gradient",
    "definition": "grad g(grad f, ξ) against G⁻¹∇²f ξ",
    "frozen": "the same with the outer metric held fixed",
    "vertical image": "image of a vertical vector",
    "largest": "λmax of S∇²L S, the paper's measure",
    "largest, projected": "the same on the horizontal space",
    "largest, Levi-Civita": "λmax of the Levi-Civita Hessian",
    "drift": "the paper's measure at T_λ W",
    "drift, Levi-Civita": "Levi-Civita's at T_λ W",
}


def _remarks(result: dict[str, Any]) -> str:
    rows = [
        [
            label,
            *(
                number(result[point][key], 7 if key.startswith("largest") else 2)
                for point in ("minimum", "away")
            ),
        ]
        for key, label in REMARKS.items()
    ]
    return table(["", "at a minimum", "away from one"], rows)


def _remarks_in_words(result: dict[str, Any]) -> str:
    away = result["away"]
    proper = away["largest, Levi-Civita"] / away["largest"] - 1
    inside = away["largest, projected"] / away["largest"] - 1
    return (
        "The metric cancels in Remark 1: Hess f[ξ] = G⁻¹∇²f ξ, one ordinary product with "
        "the Hessian, at every point. That is the Hessian of a flat connection. At a "
        "minimum it is the Riemannian one, vertical vectors are its kernel, and Remark 2 "
        "is right that nothing need be projected. Away from a minimum none of this "
        f"holds: here the Levi-Civita connection gives {proper:+.1%}, the projection "
        f"{inside:+.1%}. All of them are invariant under T_λ at every point, so the "
        "measure is well defined there, too.\n"
    )


def _spectral(found: dict[str, Any]) -> str:
    if not found["found"]:
        return (
            "No network was found whose largest eigenvalue in magnitude is negative.\n"
        )
    return (
        "Definition 3 is the largest eigenvalue, and Algorithm 1 finds the one of largest "
        f"magnitude. For a random network (seed {found['seed']}) with targets far off, "
        f"where the largest is {number(found['largest'], 6)} and the smallest "
        f"{number(found['smallest'], 6)}, it comes to {number(found['algorithm'], 6)}; the "
        f"library gives {number(found['library'], 6)}.\n"
    )


def _nodes(found: dict[str, float]) -> str:
    return (
        "**Section 6.** With the node-wise metric the measure changes by "
        f"{number(found['node'], 2)} (relative) when every hidden unit is rescaled, with "
        f"the paper's own by {number(found['layer'], 3)}. The printed T_Λ has Λ₄W₃ where it "
        "must be W₃Λ₄: Λ₄ belongs to the hidden units, which are the columns of W₃, and "
        "the printed product exists only for as many outputs as hidden units. With the "
        "first entries of Λ₄ on the rows of W₃ the loss changes by "
        f"{number(found['loss, printed'], 3)} (relative), mended by "
        f"{number(found['loss'], 2)}.\n"
    )
