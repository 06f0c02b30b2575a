"""The parts of the page on Theorem 1 in many networks, and on ε-sharpness."""

from __future__ import annotations

from typing import Any

from papers.dinh2017.network_findings import epsilon_quadratic
from papers.experiment import Results
from papers.page import number, table


def theorem_1_networks(results: Results, expected: dict[str, Any]) -> str:
    found = results["theorem1-networks"]["networks"]
    seeds = results.records["theorem1-networks"]["settings"]["seeds"]
    rows = [
        [
            one["network"],
            one["pairs"],
            one["least growth"],
            " to ".join(number(power, 6) for power in one["powers"]),
            one["error"],
            one["loss change"],
        ]
        for one in found
    ]
    head = ["network", "pairs of layers", "least growth", "power of α", "law", "loss"]
    return f"""\
![The gradient in other networks](figures/gradients.svg)

The paper says that the theorem holds for "several other models" that contain such a network.
In each of these, every layer but the last is multiplied by α and the one behind it divided by
α, for {len(seeds)} random networks of each kind, with biases as in supplement B. A tensor
that is multiplied by f has its gradient divided by f, so ‖∇L‖² = Σ ‖∇_t L‖² / f_t² over the
tensors t: "law" is the largest relative error of this. "Least growth" is the smallest ratio of
the norms at the smallest α and at α = 1, "power of α" the slope of their logarithms at the
end, and "loss" the largest relative change of the loss. The residual block is
W (x + W₂ relu(W₁ x)), in which W₁ and W₂ are rescaled. The figure shows the first pair of the
first seed.

{table(head, rows)}"""


def epsilon_sharpness(results: Results, expected: dict[str, Any]) -> str:
    found = results["epsilon-sharpness"]
    small, images = (found["networks"][name] for name in ("small", "images"))
    words, _ = epsilon_quadratic(results)
    head = [
        "ε",
        "α",
        "linear term",
        "quadratic term",
        "measured",
        "measured / quadratic",
    ]
    ends = ["ε", "α", "constant network", "at α = 1", "at this α", "certified"]
    bounds = [
        [one[key] for key in ("epsilon", "alpha", "bound", "before", "after")]
        + [one["trusted after"]]
        for one in found["constant"]
    ]
    return f"""\
![ε-sharpness and its approximation](figures/epsilon.svg)

The largest (L(θ + d) - L(θ)) / (1 + L(θ)) over ‖d‖ ≤ ε, found by climbing from several starts
(marks), beside λmax ε² / (2 (1 + L)) (dashed), each for the network itself (α = 1) and for
twins (αθ₁, θ₂/α). Left: a small network at a critical point (norm of the gradient
{number(small["gradient"], 2)}). Right: one with a hidden layer, trained on images by a fixed
number of epochs (loss {number(images["loss"])}, norm of the gradient
{number(images["gradient"])}). The measured values are lower bounds of the maximum. Hollow
marks are climbs that ended where the library does not certify a local maximum.

In numbers: {words}. Where training stopped before a critical point, the linear term
ε ‖∇L‖ / (1 + L) is larger than the quadratic one for all ε below 2 ‖∇L‖ / λmax, and the
approximation says nothing there. {at_largest(small, images)} The network on images:

{table(head, curve_rows(images))}
A ball of radius ε around (αθ₁, θ₂/α) with α = ε / ‖θ₁‖ holds the network with θ₁ = 0, whose
outputs are 0. So the ε-sharpness of this twin is at least (ln 10 - L) / (1 + L), however small
ε is:

{table(ends, bounds)}"""


def at_largest(small: dict[str, Any], images: dict[str, Any]) -> str:
    """How far the quadratic term is off where ε is largest."""
    ratios = []
    for network in (small, images):
        point = network["curves"][0]["points"][-1]
        ratios.append(number(point["value"] / point["quadratic"], 3))
    return (
        f"At ε = {number(small['epsilons'][-1], 3)}, where the loss is no parabola any more, "
        f"the measured rise at α = 1 is {ratios[0]} times the quadratic term (small network) "
        f"and {ratios[1]} times (images)."
    )


def curve_rows(network: dict[str, Any]) -> list[list[Any]]:
    """Every other ε of every curve."""
    rows = []
    for curve in network["curves"]:
        points = list(zip(network["epsilons"], curve["points"], strict=True))
        for epsilon, one in points[::2]:
            mark = "" if one["trusted"] else " (not certified)"
            both = one["linear"] + one["quadratic"]
            row = [epsilon, curve["alpha"], one["linear"], one["quadratic"]]
            row += [f"{number(one['value'])}{mark}", one["value"] / one["quadratic"]]
            rows.append([*row, one["value"] / both])
    return rows
