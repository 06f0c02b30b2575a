"""The sections of the page on growing norms, convexity, convolutions and losses."""

from __future__ import annotations

from typing import Any

from papers.experiment import Results
from papers.page import number, table
from papers.tsuzuku2019.convolution import convolutional, total
from papers.tsuzuku2019.drawings import UNBOUNDED
from papers.tsuzuku2019.sections import not_run

RULES = {
    "channels": "channels (the paper)",
    "minimized": "the same, entry by entry, by L-BFGS",
    "positions": "kernel positions as columns",
    "elementwise": "lower bound 2 Σ |W| √h",
    "matrix": "upper bound 2 ‖W‖ √Σh",
}


def unbounded(results: Results) -> str:
    """α → ∞: both norms grow, the stable ranks go to 1, (17) stays."""
    if "unbounded" not in results:
        return not_run("unbounded")
    result = results["unbounded"]
    facts, steps = result["network"], result["steps"]
    rows = [
        [
            number(one["alpha"]),
            *(one[key][name] for key in ("first", "second") for name in NORMS),
            one["row_curvature"],
            one["matrix-normalized-sharpness"],
            number(one["normalized-sharpness"], 6),
            one["bartlett"],
            one["neyshabur"],
        ]
        for one in steps
        if one["alpha"] == round(one["alpha"])
    ]
    norms = [f"{n} W⁽{i}⁾" for i in "¹²" for n in ("‖·‖_F", "‖·‖₂", "stable rank")]
    head = ["α", *norms, "curvature of the row, ×", "(13)", "(17)"]
    return (
        f"![Norms and stable ranks against α](figures/{UNBOUNDED})\n\n"
        f"A trained network of {facts['parameters']} weights (accuracy "
        f"{facts['accuracy']:.1%} on {facts['samples']} digits) with one hidden layer. "
        "As in Appendix A.1, the row of one unit is divided by α and its column "
        "multiplied by it, those of another unit the other way round; the two are the "
        "units of the largest product of norms. The last columns are the norms of which "
        "the bounds are made that the paper names: Bartlett et al. 2017, "
        "Π‖W‖₂ (Σ (‖Wᵀ‖₂,₁/‖W‖₂)^⅔)^(3/2), and the root of Neyshabur et al. 2018, "
        "Π‖W‖₂ (Σ ‖W‖_F²/‖W‖₂²)^½.\n\n"
        + table([*head, "Bartlett et al.", "Neyshabur et al."], rows)
        + "\nThe loss changes by at most "
        f"{number(max(abs(o['loss'] / steps[0]['loss'] - 1) for o in steps), 2)} "
        "(relative), (17) by at most "
        f"{number(_drift(steps, 'normalized-sharpness'), 2)}. At the largest α "
        "the stable ranks are above 1 by "
        f"{number(steps[-1]['first']['above_one'], 3)} and "
        f"{number(steps[-1]['second']['above_one'], 3)}.\n"
    )


NORMS = ("frobenius", "spectral", "stable_rank")


def convexity(results: Results) -> str:
    """Appendix B as numbers."""
    if "convexity" not in results:
        return not_run("convexity")
    pairs = results["convexity"]["pairs"]
    rows = [
        [
            one["label"],
            " × ".join(map(str, one["shape"])),
            one["negative_curvatures"],
            number(one["hessian_error"], 2),
            number(one["form_error"], 2),
            number(one["least"], 2),
            one["nullity"],
            one["components"],
            number(one["least_as_printed"], 2),
            number(one["least_in_sigma"], 2),
            number(one["far"], 2),
        ]
        for one in pairs
    ]
    head = ["α and β", "shape", "negative in α", "Hessian against (53)-(55)"]
    head += ["vᵀ∇²Sv against (58)", "least eigenvalue", "zero eigenvalues"]
    head += ["components", "least with (19) as printed", "least in σ and σ'"]
    clipped = [one for one in pairs if not one["negative_curvatures"]]
    below = [one for one in pairs if one["far"] < 0]
    return (
        "S of (48) for the matrices of a trained network, α = diag ∇²L and β = W², and "
        "for random ones; the worst over some random points. Its Hessian comes from "
        "automatic differentiation and knows nothing of Appendix B. Errors are relative, "
        "eigenvalues are over the largest one.\n\n"
        + table([*head, "S far out, over S(0)"], rows)
        + "\nThe proof of Appendix B holds: the Hessian is (53)-(55), its quadratic form "
        "is (58), and no eigenvalue is below 0 by more than "
        f"{number(-min(one['least'] for one in clipped), 2)} of the largest. As many "
        "eigenvalues are 0 as there are connected components of rows and columns: within "
        "each, x + c and y − c give the same S, so that S is convex but never strictly. "
        "(19) lacks the square that (47) has; it is the same statement with y halved. "
        "In the standard deviations σ and σ' themselves the problem is not convex: their "
        "logarithms are needed. So is the clipping in Algorithm 1, which Appendix B "
        f"assumes as α ≥ 0: without it {len(below)} of {len(pairs) - len(clipped)} "
        "problems have no minimum at all, because S falls without end along the row and "
        "the column of a negative curvature.\n"
    )


def convolution(results: Results) -> str:
    """The rule of 5.3 and a finer one."""
    if "convolution" not in results:
        return not_run("convolution")
    result = results["convolution"]
    facts, losses = result["network"], result["losses"]
    rows = []
    for rule, label in RULES.items():
        row: list[Any] = [label]
        for both in losses.values():
            before, after = (total(both[point], rule) for point in POINTS)
            row += [number(before, 6), number(after / before, 10)]
        rows.append(row)
    trace = [both[point]["trace"] for both in losses.values() for point in POINTS]
    rows.append(
        [
            "trace of the Hessian, no rule",
            *(
                part
                for a, b in zip(trace[::2], trace[1::2], strict=True)
                for part in (number(a, 6), number(b / a))
            ),
        ]
    )
    head = [""]
    for loss in losses:
        head += [loss, "× after rescaled channels"]
    layers = losses["cross-entropy"]["trained"]["layers"]
    names = convolutional(result)
    scales = [
        f"{layers[n]['scales']} instead of {layers[n]['scales_positions']} for "
        f"{' × '.join(map(str, result['shapes'][n]))}"
        for n in names
    ]
    return (
        f"A network with two convolutions ({facts['parameters']} parameters, accuracy "
        f"{facts['accuracy']:.1%} on {facts['samples']} digits). One scale for each "
        "output and each input channel makes the problem that of a matrix, with "
        "α_oi = Σ_k h_oik and β_oi = Σ_k W_oik² summed over the kernel positions k; so "
        "Appendix B applies as it stands. The columns are sums over all layers; beside "
        "them the factor when every channel and hidden unit is multiplied by a random "
        "factor of its own.\n\n"
        + table(head, rows)
        + f"\nThe paper's rule needs {'; '.join(scales)} scales. A scale for each kernel "
        "position is just as invariant and gives a smaller number, since it has more to "
        "choose from; the two must not be compared with each other. The library takes "
        "the paper's rule: its value differs by "
        f"{number(_library(losses), 2)} (relative) at most.\n"
    )


POINTS = ("trained", "rescaled")


def surrogate(results: Results) -> str:
    """5.4: outputs scaled and shifted."""
    if "surrogate" not in results:
        return not_run("surrogate")
    result = results["surrogate"]
    settings = results.records["surrogate"]["settings"]
    said = {
        "trained": "as trained",
        "scaled": f"outputs × {settings['factor']:g}",
        "shifted": f"outputs + {settings['shift']:g}, by the last bias",
        "shifted by the hidden layer": "outputs + ⟨v, a⟩, by the last matrix",
    }
    rows = [
        [
            label,
            *(
                number(values[point][name], 6)
                for values in result["losses"].values()
                for name in ("loss", "sharpness", "centred")
            ),
        ]
        for point, label in said.items()
    ]
    head = [""]
    for loss in result["losses"]:
        head += [loss, "(17)", "(17), centred"]
    moved = shift_factor(result)
    return (
        "No change of the outputs below changes a prediction. The cross-entropy notices "
        "their scale; the normalized loss (20) notices neither scale nor shift, and (17) "
        "with it, where scale and shift are in the last bias or in all of the last "
        "layer. A shift that depends on the sample, ⟨v, a⟩ with a the last hidden layer, "
        "is made by W + 1vᵀ; it changes no loss either, but (17) becomes "
        f"{number(moved)} times as large: the squared weights in it do not know that "
        "their mean over the classes does not matter. Taking that mean out first "
        "(`center_output`) mends it.\n\n" + table(head, rows)
    )


def shift_factor(result: dict[str, Any], name: str = "sharpness") -> float:
    """What the shift by the hidden layer does to (17) under the normalized loss."""
    values = result["losses"]["normalized-cross-entropy"]
    return values["shifted by the hidden layer"][name] / values["trained"][name]


def _drift(steps: list[dict[str, Any]], name: str) -> float:
    return max(abs(one[name] / steps[0][name] - 1) for one in steps)


def _library(losses: dict[str, Any]) -> float:
    return max(
        abs(total(found, "channels") / found["library"] - 1)
        for both in losses.values()
        for found in both.values()
    )
