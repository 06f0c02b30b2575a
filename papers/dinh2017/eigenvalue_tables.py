"""The part of the page that tells of Theorem 2."""

from __future__ import annotations

from typing import Any

from papers.dinh2017.findings import settled
from papers.experiment import Results
from papers.page import number, table

HEAD = [
    "seed",
    "parameters",
    "rank r",
    "gap",
    "r - min n",
    "exact",
    "seen",
    "inequality",
]


def theorem_2(results: Results, expected: dict[str, Any]) -> str:
    known = expected["known"]["ranks"]
    (one,) = results["theorem2-known-ranks"]["networks"]
    parts = [derivatives(results), TEXT]
    for run, title in TITLES.items():
        if run not in results:
            parts.append(f"{title}: not run.\n")
            continue
        made = len(results[run]["networks"])
        networks = settled(results, run)
        parts.append(
            f"**{title}.** {len(networks)} of {made} networks came to a minimum with "
            f"curvature.\n\n{table(HEAD, [row(network) for network in networks])}"
        )
    parts.append(
        "For one more network with biases, at zero loss, the ranks were calculated by "
        f"other means before (r = {known['rank']}, r - min n = {known['claimed']}, at most "
        f"{known['exact']} grow): here we find {one['rank']}, {one['claimed']} and "
        f"{one['exact']}.\n"
    )
    return "\n".join(parts)


def derivatives(results: Results) -> str:
    """The formulas of the gradient and the Hessian, on which the theorem rests."""
    rows = [
        [name, one["parameters"], one["gradient"], one["hessian"]]
        for name, one in results["derivatives"]["networks"].items()
    ]
    head = ["network", "parameters", "∇L(Tθ) = D ∇L(θ)", "∇²L(Tθ) = D ∇²L(θ) D"]
    return f"""\
The theorem rests on how derivatives change along the orbit: D is diagonal, with 1/α_k for the
weights of layer k, and a hidden bias has 1/(α₁ ⋯ α_k). Largest errors at random α, relative
to the largest entry:

{table(head, rows)}"""


def row(one: dict[str, Any]) -> list[Any]:
    gap = f"{number(one['last nonzero'], 2)} / {number(one['first zero'], 2)}"
    rest = [one["claimed"], one["exact"], one["counts"][-1], one["interlaced"]]
    return [one["seed"], one["parameters"], one["rank"], gap, *rest]


TITLES = {
    "theorem2-without-biases": "Without biases, [2, 3, 3, 3], trained",
    "theorem2-with-biases": "With biases, [2, 3, 3, 3], trained",
    "theorem2-deep": "Thin and deep without biases, [4, 4, 4, 4, 4, 4], at zero loss",
    "theorem2-convolutions": "Two convolutions of 3 channels and a linear layer, without "
    "biases, at zero loss",
}

TEXT = """\
Small networks are trained in float64 by Newton's method to a point with gradient 0 and no
negative curvature, or stand at such a point by construction, with zero loss. Then all layers
but one are divided by β, the remaining one is multiplied by β^(K-1), and we count the
eigenvalues of the Hessian (calculated anew at each point) that are larger than 100 times the
largest one at the start. The right panel of the figure above shows the counts along β for the
network of highest rank: dashed is the promise r - min n, dotted the exact number, which is the
rank of the block H_SS of the parameters S that shrink.

In the tables, "gap" is the smallest eigenvalue that counts as not zero and the largest one
that counts as zero, both divided by the largest. "Exact" is the best over the choice of the
layer that grows; "seen" is the count at the largest β. Networks that do not come to such a
point are left out: most likely their training ends at a kink of the ReLU functions, where
there is no Hessian, or all their units are dead. "Inequality" says whether λ_i(DHD) ≥ β²
λ_(i+n)(H) holds, on which the paper's proof rests (n the size of the weight matrix that
grows).
"""
