"""The runs on the bounds, on Appendix B and D, and on sections 5.1, 5.3, 5.4 and 7."""

from __future__ import annotations

from typing import Any

from papers.experiment import Run, Tolerance
from papers.tsuzuku2019.bits import bits
from papers.tsuzuku2019.bounds import bounds
from papers.tsuzuku2019.convexity import convexity
from papers.tsuzuku2019.convolution import convolution
from papers.tsuzuku2019.noise import noise, noise_profile
from papers.tsuzuku2019.surrogate import surrogate
from papers.tsuzuku2019.unbounded import unbounded


def digits(widths: list[int], **more: Any) -> dict[str, Any]:
    """A network on the first of the 8 x 8 digits, which need no files."""
    return {
        "data": "digits",
        "samples": 500,
        "widths": widths,
        "bias": False,
        "batch": 50,
        "epochs": 40,
        "rate": 3e-3,
        "seed": 0,
        **more,
    }


def bound_settings(quick: bool, networks: list[tuple[str, dict[str, Any]]]) -> Any:
    return {
        "networks": [{"label": label, "network": one} for label, one in networks],
        "posteriors": ["matrix", "node"],
        "factors": [1.0] if quick else [0.5, 1.0, 2.0, 4.0, 8.0],
        "draws": 40 if quick else 100,
        "seed": 1,
    }


def bound_runs(quick: bool) -> list[Run]:
    """(1), (2), (4): digits with true and random labels, and all of MNIST."""
    some = {"samples": 1397, "bias": True, "epochs": 20 if quick else 100}
    shares = (0.0, 1.0) if quick else (0.0, 0.5, 1.0)
    labelled = [
        (
            f"digits, {share:.0%} random labels",
            digits([32], random_labels=share, **some),
        )
        for share in shares
    ]
    mnist = digits(
        [32],
        data="mnist",
        samples=500 if quick else 60000,
        batch=50 if quick else 200,
        epochs=10,
        bias=True,
    )
    large = bound_settings(quick, [("MNIST", mnist)])
    # A draw for which rounding decides one prediction moves an error by 1 / (draws m).
    drawn = {"networks": Tolerance(relative=0.01, absolute=1e-3)}
    return [
        Run("bounds-digits", bound_settings(quick, labelled), bounds, tolerances=drawn),
        Run(
            "bounds-mnist", large | {"factors": []}, bounds, ("data",), tolerances=drawn
        ),
    ]


def bits_run(quick: bool) -> Run:
    shapes = [[16, 2], [32, 2], [64, 2], [128, 2], [256, 2], [32, 1], [32, 3], [32, 4]]
    settings = {
        "network": digits([], samples=1397, epochs=10 if quick else 40),
        "shapes": shapes[:2] if quick else shapes,
        "factors": [1.0, 16.0] if quick else [1.0, 16.0, 64.0, 256.0, 1024.0],
        "draws": 10,
        "seed": 1,
    }
    return Run(
        "bits", settings, bits, tolerances={"networks": Tolerance(relative=1e-3)}
    )


def convexity_run(quick: bool) -> Run:
    settings = {
        "network": digits([16, 12], epochs=10),
        "shape": [9, 11],
        "zeros": [0.0, 0.5, 0.85],
        "points": 2 if quick else 10,
        "spread": 1.0,
        "seed": 0,
    }
    # What is rounding itself, or the eigenvalue 0, is another number elsewhere.
    rounding = Tolerance(absolute=1e-9)
    unlike = {
        "hessian_error": rounding,
        "form_error": rounding,
        "least": rounding,
        "least_as_printed": rounding,
    }
    return Run("convexity", settings, convexity, tolerances=unlike)


def convolution_run(quick: bool) -> Run:
    network = digits(
        [16], channels=[6, 8], kernels=[3, 2], epochs=5 if quick else 150, bias=True
    )
    settings = {"network": network, "spread": 1.0, "seed": 1}
    return Run("convolution", settings, convolution)


def unbounded_run(quick: bool) -> Run:
    settings = {
        "network": digits([24]),
        "alphas": [10.0 ** (k / 2) for k in range(3 if quick else 9)],
    }
    return Run("unbounded", settings, unbounded)


def surrogate_run() -> Run:
    network = digits([24], bias=True)
    settings = {"network": network, "factor": 7.0, "shift": 3.0, "seed": 1}
    return Run("surrogate", settings, surrogate)


NOISY = {
    "10 epochs": {"epochs": 10},
    "200 epochs": {"epochs": 200},
    "200 epochs, 100 images": {"epochs": 200, "samples": 100},
}


def noise_runs(quick: bool) -> list[Run]:
    """Networks without biases: barely trained, well trained, on few images."""
    lambdas = [5.0, 50.0, 500.0, 5e3, 5e4, 5e5, 5e6]
    settings = {
        "lambdas": [50.0, 5e4] if quick else lambdas,
        "steps": 50 if quick else 200,
        "draws": 40 if quick else 200,
    }
    profile = {
        "network": digits([24], epochs=200),
        "log_noise": [k / 2 for k in range(-6, 17)],
        "lambdas": [1.0, 10.0, 100.0, 1000.0],
        "pairs": 8 if quick else 100,
        "seed": 1,
    }
    # A search with random draws ends within its own error.
    searched = {"values": Tolerance(relative=0.05, absolute=1e-3)}
    # Where the noise no longer matters, differences of a saturated loss are rounding.
    scores = {"lambdas": Tolerance(relative=1e-3, absolute=1e-6)}
    values = [
        Run(
            f"noise-{number}",
            {**settings, "label": label, "network": digits([24], **changes)},
            noise,
            tolerances=searched,
        )
        for number, (label, changes) in enumerate(NOISY.items(), start=1)
    ]
    return [*values, Run("noise-profile", profile, noise_profile, tolerances=scores)]


def runs(quick: bool) -> list[Run]:
    return [
        *bound_runs(quick),
        bits_run(quick),
        convexity_run(quick),
        convolution_run(quick),
        unbounded_run(quick),
        surrogate_run(),
        *noise_runs(quick),
    ]
