"""Section D: distances between distributions in three representations of the data.

The Earth mover's distance moves mass in Euclidean space, so it depends on the
representation. An f-divergence, the mean of f(q/p) under p, knows only the quotient of
two densities, which no bijection changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.distributions import MultivariateNormal

from flatgauge.shapes import Float
from flatgauge.vectors import generator
from papers.dinh2017.orbit import flat_images
from papers.dinh2017.representation import representations
from papers.experiment import Context

EUCLIDEAN = ("W1", "W2")
DIVERGENCES = ("Kullback-Leibler", "squared Hellinger", "total variation")


@dataclass(frozen=True)
class Normal:
    """A normal distribution: mean [d] and covariance [d, d]."""

    mean: Float[Tensor, " d"]
    covariance: Float[Tensor, "d d"]

    def mapped(self, matrix: Float[Tensor, "d d"]) -> Normal:
        """The distribution of A x."""
        return Normal(matrix @ self.mean, matrix @ self.covariance @ matrix.T)

    def density(self) -> MultivariateNormal:
        return MultivariateNormal(self.mean, self.covariance)

    def draw(self, standard: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Samples, made from standard normal ones."""
        return self.mean + standard @ torch.linalg.cholesky(self.covariance).T


def settings(quick: bool) -> dict[str, Any]:
    return {
        "images": 1000 if quick else 10_000,
        "pool": 1 if quick else 4,
        "least deviation": 0.05,
        "grey level": 1 / (16 if quick else 255),
        "directions": [2, 5, 10, 20],
        "widths": [0.7, 1.3],
        "shifts": {"first": 0.5, "last": 3.0},
        "points": 100 if quick else 500,
        "repeats": 3 if quick else 20,
        "samples": 2000 if quick else 20_000,
        "seed": 0,
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Every model against the same truth, in every representation."""
    truth = fitted(context, settings)
    maps = representations(truth.covariance)
    return {
        "pixels": len(truth.mean),
        "models": [
            {
                "model": name,
                **{
                    kind: compared(truth.mapped(a), model.mapped(a), a, truth, settings)
                    for kind, a in maps.items()
                },
            }
            for name, model in models(truth, settings).items()
        ],
    }


def fitted(context: Context, settings: dict[str, Any]) -> Normal:
    """The truth: mean and covariance of images, with the noise of one grey level."""
    pixels, _ = flat_images(context, "train", settings["images"], settings["pool"])
    pixels = pixels.cpu()
    pixels = pixels[:, pixels.std(0) > settings["least deviation"]]
    noise = settings["grey level"] ** 2 / 12
    covariance = pixels.T.cov() + noise * torch.eye(pixels.shape[1]).double()
    return Normal(pixels.mean(0), covariance)


def models(truth: Normal, settings: dict[str, Any]) -> dict[str, Normal]:
    """What a model may get wrong: directions, dependence, width, or the mean.

    "k directions" is probabilistic principal component analysis: the k largest
    eigenvalues of the covariance are kept, the others replaced by their mean.
    """
    mean, covariance = truth.mean, truth.covariance
    values, vectors = torch.linalg.eigh(covariance)
    found = {"the truth itself": truth}
    for count in settings["directions"]:
        kept = values.clone()
        kept[:-count] = values[:-count].mean()
        found[f"{count} directions"] = Normal(mean, vectors * kept @ vectors.T)
    found["independent pixels"] = Normal(mean, torch.diag(covariance.diagonal()))
    for width in settings["widths"]:
        found[f"deviations times {width}"] = Normal(mean, width**2 * covariance)
    for which, size in settings["shifts"].items():
        index = -1 if which == "first" else 0
        step = size * values[index].sqrt() * vectors[:, index]
        name = f"shifted {size} deviations along the {which} direction"
        found[name] = Normal(mean + step, covariance)
    return found


def compared(
    truth: Normal,
    model: Normal,
    matrix: Tensor,
    original: Normal,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """Distances and divergences of two distributions given in one representation."""
    first, second = truth.density(), model.density()
    random = generator(settings["seed"])
    shape = settings["samples"], len(truth.mean)
    standard = torch.randn(shape, generator=random, dtype=torch.float64)
    points = original.draw(standard) @ matrix.T
    quotients = (second.log_prob(points) - first.log_prob(points)).exp()
    moved = [
        earth_movers(truth, model, settings["points"], settings["seed"] + 1 + repeat)
        for repeat in range(settings["repeats"])
    ]
    return {
        "W1": moved,
        "W2": transport(truth, model),
        "Kullback-Leibler": kullback_leibler(truth, model),
        "squared Hellinger": squared_hellinger(truth, model),
        "total variation": float((1 - quotients).clamp(min=0).mean()),
    }


def earth_movers(truth: Normal, model: Normal, points: int, seed: int) -> float:
    """The mean distance in the cheapest matching of samples of both, one to one."""
    random = generator(seed)
    draws = torch.randn(
        (2, points, len(truth.mean)), generator=random, dtype=torch.float64
    )
    costs = torch.cdist(truth.draw(draws[0]), model.draw(draws[1])).numpy()
    rows, columns = linear_sum_assignment(costs)
    return float(costs[rows, columns].mean())


def transport(truth: Normal, model: Normal) -> float:
    """√(‖m - m'‖² + tr(S + S' - 2 (S^½ S' S^½)^½)): the cheapest root mean square move."""
    root = square_root(truth.covariance)
    cross = square_root(root @ model.covariance @ root)
    trace = (truth.covariance + model.covariance - 2 * cross).trace()
    squared = float((truth.mean - model.mean).square().sum() + trace)
    return math.sqrt(max(0.0, squared))


def square_root(matrix: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """Of a positive semi-definite matrix."""
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    return vectors * values.clamp(min=0).sqrt() @ vectors.T


def kullback_leibler(truth: Normal, model: Normal) -> float:
    """½ (tr(S'⁻¹S) + ΔᵀS'⁻¹Δ - d + ln det S' / det S), of the truth from the model."""
    shift = model.mean - truth.mean
    solved = torch.linalg.solve(
        model.covariance, torch.cat([truth.covariance, shift[:, None]], dim=1)
    )
    quadratic = solved[:, :-1].trace() + shift @ solved[:, -1]
    return 0.5 * float(
        quadratic - len(shift) + model.covariance.logdet() - truth.covariance.logdet()
    )


def squared_hellinger(truth: Normal, model: Normal) -> float:
    """1 - (det S det S')^¼ / det(M)^½ exp(-⅛ ΔᵀM⁻¹Δ), M = (S + S') / 2."""
    middle = (truth.covariance + model.covariance) / 2
    shift = truth.mean - model.mean
    logs = (truth.covariance.logdet() + model.covariance.logdet()) / 4
    logs -= middle.logdet() / 2 + shift @ torch.linalg.solve(middle, shift) / 8
    return -math.expm1(float(logs))
