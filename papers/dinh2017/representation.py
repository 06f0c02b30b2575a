"""Section D: the mean squared error ranks by the representation, likelihoods do not."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import MultivariateNormal

from flatgauge.vectors import generator
from papers.data import images
from papers.experiment import Context

REPRESENTATIONS = ("pixels", "standardized", "whitened")


def settings(quick: bool) -> dict[str, Any]:
    return {
        "train": 1000 if quick else 5000,
        "test": 397 if quick else 2000,
        "pool": 1 if quick else 2,
        "levels": 16 if quick else 255,
        "least deviation": 0.05,
        "ridge": 1e-6,
        "neighbours": [1, 2, 3, 4, 5, 6, 8, 10, 15, 20],
        "seed": 0,
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Predict the lower half of an image from its upper half.

    By linear regression (stored as 0 neighbours), and as the mean of the nearest ones.
    """
    upper, lower = halves(context, settings)
    count = settings["train"]
    regression = linear(upper, lower, count, settings["ridge"])
    order = nearest(upper, count, max(settings["neighbours"]))
    predictions = {0: regression} | {
        neighbours: lower[order[:, :neighbours]].mean(1)
        for neighbours in settings["neighbours"]
    }
    mean, maps = lower[:count].mean(0), representations(lower[:count].T.cov())
    return {
        "pixels": lower.shape[1],
        "log determinants": {
            name: float(torch.linalg.slogdet(matrix).logabsdet)
            for name, matrix in maps.items()
        },
        "models": [
            {
                "neighbours": neighbours,
                **{
                    kind: {
                        **scores(lower, guess, count, mean, matrix),
                        **lead(lower, regression, guess, count, matrix),
                    }
                    for kind, matrix in maps.items()
                },
            }
            for neighbours, guess in predictions.items()
        ],
    }


def halves(context: Context, settings: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Pixels that vary, with noise of one grey level so that they have a density."""
    count = settings["train"]
    parts = [
        images(context, "mnist", "train", count)[0],
        images(context, "mnist", "test", settings["test"])[0],
    ]
    pixels = F.avg_pool2d(torch.cat(parts), settings["pool"])[:, 0].double().cpu()
    noise = torch.rand(
        pixels.shape, generator=generator(settings["seed"]), dtype=torch.float64
    )
    pixels = pixels + (noise - 0.5) / settings["levels"]
    middle = pixels.shape[1] // 2
    upper, lower = pixels[:, :middle].flatten(1), pixels[:, middle:].flatten(1)
    least = settings["least deviation"]
    return (
        upper[:, upper[:count].std(0) > least],
        lower[:, lower[:count].std(0) > least],
    )


def linear(upper: Tensor, lower: Tensor, count: int, ridge: float) -> Tensor:
    """Least squares on the training part, for every image."""
    center, mean = upper[:count].mean(0), lower[:count].mean(0)
    known = upper[:count] - center
    penalty = ridge * torch.eye(known.shape[1], dtype=known.dtype)
    matrix = torch.linalg.solve(
        known.T @ known / count + penalty, known.T @ (lower[:count] - mean) / count
    )
    return mean + (upper - center) @ matrix


def nearest(upper: Tensor, count: int, neighbours: int) -> Tensor:
    """The indices of the nearest training images; a training image is not its own."""
    distances = torch.cdist(upper, upper[:count])
    distances[torch.arange(count), torch.arange(count)] = torch.inf
    return distances.topk(neighbours, largest=False).indices


def representations(covariance: Tensor) -> dict[str, Tensor]:
    """The matrices A of z = A (x - mean): pixels, standardized, whitened."""
    factor = torch.linalg.cholesky(covariance)
    identity = torch.eye(len(covariance), dtype=covariance.dtype)
    matrices = (
        identity,
        torch.diag(1 / covariance.diagonal().sqrt()),
        torch.linalg.solve_triangular(factor, identity, upper=False),
    )
    return dict(zip(REPRESENTATIONS, matrices, strict=True))


def scores(
    lower: Tensor, predicted: Tensor, count: int, mean: Tensor, matrix: Tensor
) -> dict[str, float]:
    """The error and the log-likelihood of the test part in one representation.

    A model is the conditional density N(prediction, covariance of its training errors).
    In z = A (x - mean) it is N(A (prediction - mean), A covariance Aᵀ), evaluated as such.
    """
    truth, guess = (lower - mean) @ matrix.T, (predicted - mean) @ matrix.T
    errors = truth - guess
    covariance = (lower - predicted)[:count].T.cov()
    density = MultivariateNormal(guess[count:], matrix @ covariance @ matrix.T)
    return {
        "mean squared error": float(errors[count:].square().mean()),
        "log-likelihood": float(density.log_prob(truth[count:]).mean()),
    }


def lead(
    lower: Tensor, reference: Tensor, predicted: Tensor, count: int, matrix: Tensor
) -> dict[str, float]:
    """The mean over images of the reference's squared error minus the model's own."""
    first, second = (
        ((lower - guess)[count:] @ matrix.T).square().mean(1)
        for guess in (reference, predicted)
    )
    gain = first - second
    return {
        "lead": float(gain.mean()),
        "standard error of the lead": float(gain.std() / len(gain) ** 0.5),
    }
