"""The page: the claims side by side, then each experiment in plain words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from papers.dinh2017 import words
from papers.dinh2017.claims import finding
from papers.dinh2017.completeness import completeness
from papers.dinh2017.coordinate_tables import ranking, representation
from papers.dinh2017.distance_tables import distances
from papers.dinh2017.eigenvalue_tables import theorem_2
from papers.dinh2017.network_findings import orbit_runs
from papers.dinh2017.network_tables import epsilon_sharpness, theorem_1_networks
from papers.dinh2017.orbit_tables import biases, convolutions, linear
from papers.dinh2017.several_tables import several_minima
from papers.dinh2017.verdicts import DIFFERS
from papers.experiment import Results
from papers.page import NOT_RUN, number, table

Section = tuple[str, tuple[str, ...], Callable[[Results, dict[str, Any]], str]]


def page(results: Results, expected: dict[str, Any]) -> str:
    claims = side_by_side(results, expected)
    parts = [INTRODUCTION.format(**expected), claims, in_plain_words(results, claims)]
    for title, needs, build in SECTIONS:
        missing = [name for name in needs if name not in results]
        body = f"Not run: {', '.join(missing)}.\n" if missing else ""
        parts.append(f"## {title}\n\n{body or build(results, expected)}")
    return "\n".join(parts)


def setting(results: Results, run: str, name: str) -> Any:
    return results.records[run]["settings"][name]


def side_by_side(results: Results, expected: dict[str, Any]) -> str:
    rows = []
    for claim in expected["claims"]:
        ours, verdict = finding(claim["id"], results)
        said = f"{claim['claim']} {claim['note'] and '*' + claim['note'] + '*'}".strip()
        rows.append([claim["where"], said, ours, verdict])
    return table(
        ["where", "the paper (our words; *corrections*)", "flatgauge", "verdict"], rows
    )


def in_plain_words(results: Results, claims: str) -> str:
    """The verdict; only where every claim was tried and none came out otherwise."""
    for word, said in ((DIFFERS, "came out otherwise"), (NOT_RUN, "was not tried")):
        count = sum(row.endswith(f"| {word} |") for row in claims.splitlines())
        if count:
            return f"**In plain words.** What {said} in these runs: {count} of the claims.\n"
    return f"{words.verdict(results)}\n"


INTRODUCTION = """\
{paper}

**What the paper claims.** Flatness is often measured with the Hessian of the loss, or with
the volume of the flat region around a minimum. The paper shows that such numbers depend on
how the network is written down. A ReLU network computes the same function when one layer is
multiplied by α and the next one divided by α. Along this line the Hessian can become as
large as one likes, and the flat region has infinite volume. Other changes of coordinates
change the ranking of minima at will.

**What we do here.** We check each claim with numbers, and we ask which measures of this
library keep their value. {about} A GPU is not needed.

## Side by side
"""


def figure_1(results: Results, expected: dict[str, Any]) -> str:
    found, points = results["radial-map"], setting(results, "radial-map", "points")
    rows = [
        [dimension, *(found["checks"][dimension][name] for name in CHECKS)]
        for dimension in sorted(found["checks"], key=int)
    ]
    return f"""\
![The radial map](figures/radial-map.svg)

(a) The profile ψ: blue inside r̂, red between r̂ and δ, grey outside. (b) A square grid after
g⁻¹. Only the blue and the red area change. The paper does not print its radii; we took
r̂ = {number(found["rhat"])}, ρ = {number(found["rho"])}, δ = {number(found["delta"])}.

The largest errors over {points} points (half of them in the ball), in several dimensions:

{table(["dimension", *CHECKS.values()], rows)}
The last column but one shows the printed Jacobian when (θ - θ̂)ᵀ(θ - θ̂) is read as a number:
that is wrong. The Hessian at the centre is {number(found["hessian"]["factor"])} times the old
one: relative error {number(found["hessian"]["error at a minimum"])} at a minimum and
{number(found["hessian"]["error elsewhere"])} elsewhere.
"""


CHECKS = {
    "moved": "moved outside the ball",
    "inverse": "map and inverse",
    "jacobian": "Jacobian, outer product",
    "scalar": "Jacobian, as a number",
    "determinant": "det J = ψ'(ψ/r)ⁿ⁻¹ (relative)",
}


def smallest(results: Results, expected: dict[str, Any]) -> str:
    networks = results["smallest-trace"]["networks"]
    others = setting(results, "smallest-trace", "others")
    rows = [
        [
            "-".join(map(str, one["widths"])),
            one["trace"],
            one["closed form"],
            one["measured there"],
            number(one["smallest of others"], 7),
            one["largest eigenvalue"],
            f"{number(one['lower bound'])} to {number(one['upper bound'])}",
            one["smallest largest eigenvalue"],
        ]
        for one in networks
    ]
    head = [
        "network",
        "trace",
        "K (Π t)^(1/K)",
        "trace measured there",
        "others",
        "λmax",
    ]
    head += ["bounds on the smallest λmax", "smallest λmax found"]
    return f"""\
The Hessian can be made as large as one likes, but not as small. If one layer shrinks, another
one must grow, and the product of the block traces t_k stays the same. So the trace is at least
K (t₁ ⋯ t_K)^(1/K), and one point of the orbit reaches this value. "Others" is the smallest
trace, of the Hessian calculated there, over {others} random points of the orbit, divided by
this value. For the largest eigenvalue there are bounds on both sides, (Π λ_k)^(1/K) and K
times that, with λ_k the largest eigenvalue of the block of layer k.

{table(head, rows)}"""


def volume(results: Results, expected: dict[str, Any]) -> str:
    found = results["volume"]
    rows = [
        [
            number(one["side"]),
            one["closed form"],
            f"{number(one['sampled'])} ± {number(one['sampled error'], 2)}",
            f"{number(one['rays'])} ± {number(one['rays error'], 2)}",
            one["rays by quadrature"],
        ]
        for one in found["sides"]
    ]
    head = ["R", "closed form", "sampled", "rays", "rays, by quadrature"]
    images, epsilon = found["orbit"], setting(results, "volume", "epsilon")
    return f"""\
![Volume against the side of the box](figures/volume.svg)

The network θ₂ relu(θ₁ x) at x = 1 with the loss L = ½(θ₁θ₂ - 1)², and ε = {epsilon}. In the
box (0, R)² the region L < ε has the volume 2s + 4s ln R - (1+s) ln(1+s) + (1-s) ln(1-s), with
s = √(2ε). It grows with ln R, without end.

{table(head, rows)}
{words.sampling(found)} Rays from (1, 1) see only the part of the region
that is visible from that point, so they give a lower bound that stops growing. Our
measure `volume-flatness` uses rays and says that it is a lower bound. In its details it also
gives the sum over disjoint images of one small box under rescalings, which has no bound:
{number(images["images"][0])} image has the volume {number(images["volumes"][0])},
{number(images["images"][-1])} images have {number(images["volumes"][-1])}.
"""


def theorem_1(results: Results, expected: dict[str, Any]) -> str:
    found = results["theorem1"]
    keep = [index for index, alpha in enumerate(found["alphas"]) if index % 2 == 0]
    rows = [[found["alphas"][i], found["norms"][i], found["law"][i]] for i in keep]
    head = ["α", "norm of the gradient", "√(‖∇₁L‖²/α² + α²‖∇₂L‖²)"]
    return f"""\
![Theorems 1 and 2](figures/theorems.svg)

A network with random weights on real images (the theorem needs only a gradient that is not
zero). The figure's left panel and the table show the law 1/α.

{table(head, rows)}"""


SECTIONS: list[Section] = [
    ("Figure 1: the radial map", ("radial-map",), figure_1),
    ("One network along its orbit", tuple(orbit_runs("linear")), linear),
    ("With biases", tuple(orbit_runs("biases")), biases),
    ("With convolutions", tuple(orbit_runs("convolutions")), convolutions),
    ("Not as small as one likes", ("smallest-trace",), smallest),
    ("Volume ε-flatness", ("volume",), volume),
    ("ε-sharpness", ("epsilon-sharpness",), epsilon_sharpness),
    ("Theorem 1: the gradient", ("theorem1",), theorem_1),
    ("Theorem 1 beyond one network", ("theorem1-networks",), theorem_1_networks),
    (
        "Theorem 2: how many eigenvalues",
        (
            "derivatives",
            "theorem2-without-biases",
            "theorem2-with-biases",
            "theorem2-known-ranks",
        ),
        theorem_2,
    ),
    ("Two minima, two rankings", ("ranking",), ranking),
    ("Several minima, any ranking", ("several-minima",), several_minima),
    ("Section D: the representation of the data", ("representation",), representation),
    ("Section D: distances and divergences", ("distances",), distances),
    ("What is here of the paper, and what is not", (), completeness),
]
