"""What the stored results say of how (17) and (62) are solved, and of the loss (20)."""

from __future__ import annotations

from papers.completeness import IN_PART, Check, Finding, judged
from papers.experiment import Results
from papers.page import agrees, number
from papers.tsuzuku2019.convolution import total
from papers.tsuzuku2019.noise import orders
from papers.tsuzuku2019.noise_sections import CLEAR, NOISES
from papers.tsuzuku2019.theory_sections import shift_factor


def convexity(results: Results) -> Finding:
    pairs = results["convexity"]["pairs"]
    clipped = [one for one in pairs if not one["negative_curvatures"]]
    errors = max(max(one["hessian_error"], one["form_error"]) for one in clipped)
    least = min(one["least"] for one in clipped)
    words = (
        f"on {len(clipped)} pairs the formulas hold to {number(errors, 2)}, the least "
        f"eigenvalue is {number(least, 2)} of the largest"
    )
    return judged(errors < 1e-9 and least > -1e-9), words


def logarithms(results: Results) -> Finding:
    """(18), (19) as printed are convex, too; the scales themselves are not."""
    clipped = [
        one for one in results["convexity"]["pairs"] if not one["negative_curvatures"]
    ]
    printed = min(one["least_as_printed"] for one in clipped)
    plain = max(one["least_in_sigma"] for one in clipped)
    words = (
        "(19) lacks the square of (47), which is harmless (least eigenvalue "
        f"{number(printed, 2)}); without logarithms the problem is not convex (at best "
        f"{number(plain, 2)})"
    )
    return judged(printed > -1e-9 and plain < -1e-6), words


def convolution(results: Results) -> Finding:
    losses = results["convolution"]["losses"].values()
    points = [found for both in losses for found in both.values()]
    apart = max(abs(total(p, "channels") / total(p, "minimized") - 1) for p in points)
    moved = max(
        abs(
            total(both["rescaled"], "channels") / total(both["trained"], "channels") - 1
        )
        for both in losses
    )
    words = (
        "summing over kernel positions gives the minimum that L-BFGS finds entry by entry "
        f"to {number(apart, 2)}; rescaled channels change it by {number(moved, 2)}"
    )
    return judged(apart < 1e-6 and moved < 1e-9), words


def scale_of_outputs(results: Results) -> Finding:
    values = results["surrogate"]["losses"]["cross-entropy"]
    ratio = values["scaled"]["sharpness"] / values["trained"]["sharpness"]
    words = f"with larger outputs (17) becomes {number(ratio, 3)} times as large"
    return judged(abs(ratio - 1) > 0.01), words


def normalized_loss(results: Results) -> Finding:
    values = results["surrogate"]["losses"]["normalized-cross-entropy"]
    base = values["trained"]["sharpness"]
    kept = max(abs(values[p]["sharpness"] / base - 1) for p in ("scaled", "shifted"))
    moved = shift_factor(results["surrogate"])
    words = (
        f"scaled outputs and a shifted last bias change (17) by {number(kept, 2)}; a shift "
        f"through the last matrix makes it {number(moved)} times as large, unless the mean "
        "over the classes is taken out first"
    )
    centred = abs(shift_factor(results["surrogate"], "centred") - 1)
    return judged(kept < 1e-9 and moved > 1.01 and centred < 1e-9, IN_PART), words


def algorithm(results: Results) -> Finding:
    estimates = results["algorithm1"]["estimates"]
    printed = next(one for one in estimates if one["kind"] == "differences")
    ratio = printed["ratios"][printed["probes"].index(10)]
    words = f"with 10 probes {number(ratio, 3)} times the exact value of (17)"
    return judged(ratio > 1.1, IN_PART), words


def inner_loop(results: Results) -> Finding:
    tries = results["descent"]["tries"]
    reached = sum(one["outcome"] == "reached" for one in tries)
    diverged = sum(one["outcome"] == "diverged" for one in tries)
    words = (
        f"within 1 % of the minimum in {reached} of {len(tries)} tries, {diverged} "
        "diverge; the paper names no learning rate"
    )
    return judged(reached > 0, IN_PART), words


def probes(results: Results) -> Finding:
    result = results["algorithm1-small"]
    lines = {one["kind"]: one for one in result["estimates"]}
    product, apart = (
        lines[kind]["trace_ratio"] for kind in ("products", "differences")
    )
    error = lines["products"]["trace_error"]
    words = (
        f"the first layer's trace by (60) is {number(product, 3)} ± {number(error, 2)} of "
        f"the exact one, by (61) {number(apart, 3)}: differences see the kinks of ReLU"
    )
    return judged(abs(product - 1) < 4 * error, IN_PART), words


def nonconvex(results: Results) -> Finding:
    found = [
        (one["score"], profile["loss"], one["lambda"])
        for profile in results["noise-profile"]["profiles"]
        for one in profile["lambdas"]
    ]
    score, loss, lam = min(found)
    words = (
        f"along the common size of the noise, under the {loss} at λ = {lam:g}, a second "
        f"difference is negative by {number(-score, 3)} standard errors"
    )
    return judged(score < CLEAR), words


def lambda_matters(results: Results) -> Finding:
    networks = [results[name] for name in NOISES]
    direct = {tuple(one) for one in orders(networks, "direct")}
    second = {tuple(one) for one in orders(networks, "second_order")}
    words = (
        f"over {len(networks[0]['values'])} values of λ three networks stand in "
        f"{len(direct)} orders by (62) and in {len(second)} by (17)"
    )
    return judged(len(direct) > 1 and len(second) == 1), words


def worked_example(results: Results) -> Finding:
    before, between, after = results["appendix"]["stages"]
    same = (
        between["first"] == [[0.1, 0.2], [3, 4]]
        and agrees(after["second"], [[50, 0.6], [70, 0.8]], 1e-9)
        and abs(after["normalized-sharpness"] / before["normalized-sharpness"] - 1)
        < 1e-9
    )
    words = (
        "the matrices (38)-(41) are right; of the norms (35), (44) and (45) are "
        f"misprints: {number(before['first_norms']['spectral'])}, "
        f"{number(after['second_norms']['frobenius'])} and "
        f"{number(after['second_norms']['spectral'])}"
    )
    return judged(same, IN_PART), words


CHECKS = {
    "convexity": Check(("convexity",), convexity),
    "logarithms": Check(("convexity",), logarithms),
    "convolution": Check(("convolution",), convolution),
    "scale of outputs": Check(("surrogate",), scale_of_outputs),
    "normalized loss": Check(("surrogate",), normalized_loss),
    "algorithm": Check(("algorithm1",), algorithm),
    "inner loop": Check(("descent",), inner_loop),
    "probes": Check(("algorithm1-small",), probes),
    "nonconvex": Check(("noise-profile",), nonconvex),
    "lambda matters": Check(NOISES, lambda_matters),
    "worked example": Check(("appendix",), worked_example),
}
"""Key in expected.json -> how the verdict follows from the stored results."""
