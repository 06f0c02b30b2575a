"""Every claim of the paper: the runs that it needs, and what they say of it."""

from __future__ import annotations

from collections.abc import Callable

from papers.dinh2017 import (
    findings,
    network_findings,
    ranking_findings,
    representation_findings,
)
from papers.dinh2017.network_findings import orbit_runs
from papers.dinh2017.verdicts import Finding
from papers.experiment import Results
from papers.page import NOT_RUN

Find = Callable[[Results], Finding]
THEOREM_2 = ("theorem2-without-biases", "theorem2-deep", "theorem2-convolutions")
EVERY_ORBIT = tuple(
    run for name in ("linear", "biases", "convolutions") for run in orbit_runs(name)
)

FINDINGS: dict[str, tuple[tuple[str, ...], Find]] = {
    "radial-local": (("radial-map",), findings.radial_local),
    "radial-jacobian": (("radial-map",), findings.radial_jacobian),
    "radial-hessian": (("radial-map",), findings.radial_hessian),
    "orbit-same-function": (("orbit-layer",), findings.same_function),
    "orbit-biases": (tuple(orbit_runs("biases")), network_findings.orbit_biases),
    "orbit-convolutions": (
        tuple(orbit_runs("convolutions")),
        network_findings.orbit_convolutions,
    ),
    "orbit-large": (("orbit-layer",), findings.large),
    "orbit-small": (("smallest-trace",), findings.small),
    "orbit-invariant": (EVERY_ORBIT, network_findings.invariant_measures),
    "volume": (("volume",), findings.volume),
    "epsilon-quadratic": (("epsilon-sharpness",), network_findings.epsilon_quadratic),
    "epsilon-large": (("epsilon-sharpness",), network_findings.epsilon_large),
    "theorem1": (("theorem1",), findings.theorem1),
    "theorem1-networks": (("theorem1-networks",), network_findings.theorem1_networks),
    "derivatives": (("derivatives",), network_findings.derivatives),
    "theorem2": (("theorem2-without-biases",), findings.theorem2),
    "theorem2-inequality": (THEOREM_2, findings.theorem2_inequality),
    "theorem2-biases": (("theorem2-with-biases",), findings.theorem2_biases),
    "theorem2-majority": (("theorem2-deep",), findings.theorem2_majority),
    "theorem2-convolutions": (
        ("theorem2-convolutions",),
        findings.theorem2_convolutions,
    ),
    "ranking": (("ranking",), ranking_findings.ranking),
    "ranking-several": (("several-minima",), ranking_findings.ranking_several),
    "representation-error": (
        ("representation",),
        representation_findings.representation_error,
    ),
    "representation-distance": (
        ("distances",),
        representation_findings.distance_error,
    ),
    "representation-likelihood": (
        ("representation",),
        representation_findings.representation_likelihood,
    ),
    "representation-divergence": (
        ("distances",),
        representation_findings.divergence_same,
    ),
}


def finding(claim: str, results: Results) -> Finding:
    """What the stored results say of a claim, or that they are not there."""
    needed, find = FINDINGS[claim]
    if any(run not in results for run in needed):
        return NOT_RUN, NOT_RUN
    return find(results)
