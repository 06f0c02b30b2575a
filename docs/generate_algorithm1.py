"""What the paper's Algorithm 1 would have reported: python docs/generate_algorithm1.py

Tsuzuku et al. (2019) estimate diag(H) with random probes, clip negative entries at 0 and
solve (17). Here that is done on a ReLU network trained for a few epochs on
scikit-learn's digits, before and after rescalings of its nodes that leave the function
alone, beside the exact value.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.datasets import digits
from flatgauge.demo import network
from flatgauge.solvers.balancing import balance
from flatgauge.vectors import Params, add, gaussian, generator, multiply, scale

PAGE = Path(__file__).parent / "algorithm1_table.md"
SAMPLES = 600
PROBES = (1, 10, 100)
# Independent runs that a number is the mean of, where 100 probes allow as many.
RUNS = 10
SPREADS = (0.0, 1.0, 4.0)
# The step of the finite differences, in units of a tensor's root mean square.
STEP = 1e-2


def train(images: Tensor, labels: Tensor, batch: int, epochs: int) -> nn.Module:
    model, random = network(), generator(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(labels), generator=random).split(batch):
            optimizer.zero_grad()
            F.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
    return model


def trained() -> fg.Objective:
    images, labels = digits(SAMPLES)
    model = train(images.double(), labels, batch=50, epochs=15)
    return fg.Objective(model, (images.double(), labels), "normalized-cross-entropy")


def by_products(objective: fg.Objective) -> list[Params]:
    """ε ∘ Hε with Gaussian ε and exact products: (60) without its finite difference."""
    random, hessian = generator(1), fg.Hessian(objective)
    probes = [gaussian(objective.parameters, random) for _ in range(max(PROBES))]
    found = []
    for start in range(0, len(probes), 10):
        some = probes[start : start + 10]
        found += [multiply(e, h) for e, h in zip(some, hessian @ some, strict=True)]
    return found


def by_differences(objective: fg.Objective) -> list[Params]:
    """ε ∘ [∇L(θ + rε) − ∇L(θ − rε)] / 2r, r in proportion to each tensor: (61)."""
    space, random = objective.parameters, generator(1)
    steps = {n: STEP * t.square().mean().sqrt() for n, t in space.items()}
    found = []
    for _ in range(max(PROBES)):
        probe = gaussian(space, random)
        step = {n: steps[n] * e for n, e in probe.items()}
        above, below = (
            objective.at(add(space, step, sign)).gradient() for sign in (1.0, -1.0)
        )
        found.append(
            {n: e * (above[n] - below[n]) / (2 * steps[n]) for n, e in probe.items()}
        )
    return found


def sharpness(objective: fg.Objective, diagonal: Params) -> float:
    """(17) of a diagonal with its negative entries clipped at 0."""
    return sum(
        balance(diagonal[name].clamp_min(0), weight.square()).value
        for name, weight in objective.parameters.items()
        if weight.ndim == 2
    )


def average(found: list[Params]) -> Params:
    total = found[0]
    for one in found[1:]:
        total = add(total, one)
    return scale(total, 1 / len(found))


def reported(objective: fg.Objective, found: list[Params], probes: int) -> float:
    """The mean over independent runs of what so many probes would have reported."""
    runs = [found[i : i + probes] for i in range(0, len(found), probes)][:RUNS]
    return mean(sharpness(objective, average(run)) for run in runs)


def page() -> str:
    base = trained()
    group = fg.symmetries(base)
    lines = [
        "| diagonal of the Hessian | probes | as trained | nodes rescaled, spread 1 | "
        "nodes rescaled, spread 4 |",
        "|---|---|---|---|---|",
    ]
    points = [
        base.with_model(
            group.act(base.model(), group.random_element(seed=1, spread=spread))
        )
        for spread in SPREADS
    ]
    for one in points:
        assert math.isclose(one.value(), base.value(), rel_tol=1e-9)
    name = "normalized-sharpness"
    exact = [fg.measure(one, name, strict=True)[name].value for one in points]
    for value in exact:
        assert value is not None
        assert math.isclose(value, exact[0], rel_tol=1e-9), exact
    lines.append(row("exact (`normalized-sharpness`)", "–", exact))
    for title, estimate in (
        ("Gaussian probes, exact products", by_products),
        ("Gaussian probes, finite differences", by_differences),
    ):
        found = [estimate(one) for one in points]
        for probes in PROBES:
            values = [
                reported(one, samples, probes)
                for one, samples in zip(points, found, strict=True)
            ]
            # The point of the page: inflated, and not the same for the same function.
            assert min(values) > 1.05 * exact[0], (title, probes, values)
            assert max(values) > 1.2 * min(values), (title, probes, values)
            lines.append(row(title, str(probes), values))
    count = sum(tensor.numel() for tensor in base.parameters.values())
    return (
        "<!-- Written by docs/generate_algorithm1.py; do not edit. -->\n\n"
        + "\n".join(lines)
        + f"\n\n{count} parameters, {SAMPLES} samples, normalized cross-entropy "
        f"{base.value():.3g}; rows with 1 and 10 probes are means over {RUNS} "
        "independent runs.\n"
    )


def row(title: str, probes: str, values: list[float]) -> str:
    return f"| {title} | {probes} | " + " | ".join(f"{v:.4g}" for v in values) + " |"


if __name__ == "__main__":
    torch.set_num_threads(1)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
