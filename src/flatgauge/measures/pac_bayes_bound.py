"""A PAC-Bayes bound on the error of a Gaussian posterior around the weights."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.data import Batch, cut_length
from flatgauge.deadline import OutOfTime
from flatgauge.draws import while_time_lasts
from flatgauge.losses.classes import class_rows
from flatgauge.measures import effort
from flatgauge.measures.options import (
    Count,
    DiagonalOf,
    Positive,
    Range,
    Share,
    Surrogate,
    at_least,
)
from flatgauge.measures.registry import Outcome, measure, output_claims
from flatgauge.measures.workbench import NotApplicable, Workbench
from flatgauge.objective import Objective
from flatgauge.results import Status
from flatgauge.solvers.pac_bayes import (
    ScaleGrid,
    lambda_grid,
    mean_upper_bound,
    psi_bound,
    risk_bound,
)
from flatgauge.solvers.posterior import (
    Block,
    blocks_of,
    entry_block,
    matrix_posteriors,
    tensor_block,
)
from flatgauge.uses import Matrices
from flatgauge.vectors import Params, add, gaussian, generator, multiply
from flatgauge.vocabulary import RENAMINGS, Kind

AboveOne = Annotated[float, Range("a number above 1, such as 1.1", lambda v: v > 1)]


def _claims(options, loss: str) -> set[Kind]:
    claims = {Kind.LAYER_RESCALE, *RENAMINGS}
    claims |= {Kind.NODE_RESCALE} if options["posterior"] == "node" else set()
    return claims | output_claims(options, loss)


@dataclass(frozen=True)
class _Candidate:
    """The posterior for one λ, and the bound without the posterior's own error."""

    lam: float
    blocks: dict[str, list[Block]]
    deviation: Params
    price: float
    complexity: float

    def total(self, attribute: str) -> float | int:
        """An attribute's sum over all blocks."""
        every = (block for parts in self.blocks.values() for block in parts)
        return sum(getattr(block, attribute) for block in every)


@measure(
    name="pac-bayes-bound",
    title="PAC-Bayes bound",
    formula="L_S(Q) + (KL[Q‖P] + k ln|grid| + ln(1/δ) + Ψ(λ, m)) / λ, 0-1 loss",
    reference="Tsuzuku et al. 2019, equations (1) to (4), with (6) corrected",
    invariant_to=_claims,
    flatter="smaller",
    cost="one diagonal of the Hessian, then forward passes: samples, and a few for each λ",
    effort=effort.of_bound,
)
def pac_bayes_bound(
    work: Workbench,
    *,
    posterior: Literal["matrix", "node"] = "matrix",
    surrogate: Surrogate = "auto",
    curvature: DiagonalOf = "hessian",
    probes: Count = 30,
    delta: Share = 0.05,
    lam: Positive | None = None,
    psi: Literal["tight", "paper"] = "tight",
    samples: Annotated[int, at_least(2)] = 200,
    grid_ratio: AboveOne = 2 ** (1 / 8),
    cap: Positive = 10.0,
) -> Outcome:
    """With probability 1 − δ over the data and the draws, Q errs no more than this.

    Q is Gaussian around the weights, P around 0. P's scales are chosen after training
    from a grid of powers of `grid_ratio` between 2⁻⁶⁴ and 2⁶⁴, and each one costs
    ln|grid|: one a tensor for posterior="matrix"; one a row and a column of a matrix and
    one an entry of everything else for posterior="node". Half of δ goes to the bound and
    half to the Monte Carlo estimate of L_S(Q). λ is chosen with draws that are not used
    again, and the same λ shapes the posterior.

    Invariance is exact for scalings by powers of `grid_ratio`, else within the grid's
    resolution, which the uncertainty contains. The bound assumes that samples are
    independent, and that buffers and frozen parameters were not fitted to them. In the
    details, (A), the change of the true error, is given on the samples.

    Args:
        work: what the measures share.
        posterior: "matrix" (equation (11)) or "node" (equation (17)).
        surrogate: whose curvature shapes the posterior: "auto" (the normalized
            cross-entropy for three classes or more) or "objective".
        curvature: "hessian", or "ggn" for the Gauss-Newton diagonal.
        probes: random vectors, where the diagonal must be estimated.
        delta: the probability that the bound fails.
        lam: λ, if you fixed it before seeing the data; None takes a union bound over
            √m, 2√m, 4√m, ... up to 4m.
        psi: "tight" (λ²/8m) or "paper" (λ²/2m).
        samples: draws from the posterior.
        grid_ratio: of the grid for the prior's scales.
        cap: the largest variance, in units of the mean squared weight of the tensor or
            row; it replaces the infinite one where there is no curvature.
    """
    grid = ScaleGrid(grid_ratio)
    objective, point = work.objective, work.objective.parameters
    _check_applies(objective)
    shaping = work.surrogate(surrogate)
    curvatures = work.diagonal if posterior == "node" else work.tensor_means
    with deadline.part(0.5):
        diagonal = curvatures(shaping, curvature, probes)
    h, used = diagonal.mean, work.uses().matrices if posterior == "node" else {}
    solved = {n: matrix_posteriors(one, h[n], point[n]) for n, one in used.items()}
    lams = lambda_grid(objective.sample_count) if lam is None else [lam]
    share = delta / (2 * len(lams))

    def propose(lam: float) -> _Candidate:
        blocks = {
            name: blocks_of(used[name], solved[name], (h[name], weight), lam, cap, grid)
            if name in solved
            else [_plain_block(posterior, weight, h[name], lam, cap, grid)]
            for name, weight in point.items()
        }
        price = grid.price * sum(b.tuned for parts in blocks.values() for b in parts)
        kl = sum(block.kl for parts in blocks.values() for block in parts)
        bound = psi_bound(lam, objective.sample_count, psi)
        complexity = risk_bound(0.0, kl + price, share, lam, bound)
        deviation = {
            n: _deviation(used.get(n), parts, point[n]) for n, parts in blocks.items()
        }
        return _Candidate(lam, blocks, deviation, price, complexity)

    pilot = max(2, samples // 20) if len(lams) > 1 else 0
    chosen = _choose([propose(one) for one in lams], objective, pilot, 2 * work.seed)
    errors, stop = _drawn(objective, chosen.deviation, samples, 2 * work.seed + 1)
    samples = len(errors)
    risk = statistics.fmean(errors)
    error = statistics.stdev(errors) / math.sqrt(samples)
    upper = mean_upper_bound(risk, samples, delta / 2)
    value = upper + chosen.complexity
    noise = mean_upper_bound(min(risk + error, 1.0), samples, delta / 2) - upper
    resolution = chosen.total("resolution") / chosen.lam
    kl, at_mean = chosen.total("kl"), _error(objective, objective.parameters)
    second_order = sum(
        float((diagonal.mean[n].double() * s.double().square()).sum()) / 2
        for n, s in chosen.deviation.items()
    )
    details = {
        "vacuous": value >= 1,
        "training_error": at_mean,
        "posterior_error": risk,
        "posterior_error_bound": upper,
        "A_on_samples": at_mean - risk,
        "B": kl / chosen.lam,
        "C": risk - at_mean,
        "C_second_order": second_order,
        "kl": kl,
        "bits": kl / math.log(2),
        "tighter_kl": chosen.total("least_kl"),
        "equal_variance_kl": chosen.total("equal_kl"),
        "layers": {n: sum(b.kl for b in bs) for n, bs in chosen.blocks.items()},
        "hyperprior": chosen.price,
        "tuned_scales": chosen.total("tuned"),
        "grid_size": grid.count,
        "lambda": chosen.lam,
        "lambda_price": math.log(len(lams)),
        "log_inverse_delta": -math.log(delta / 2),
        "psi": psi_bound(chosen.lam, objective.sample_count, psi),
        "samples": objective.sample_count,
        "standard_error": noise,
        "grid_resolution": resolution,
        "not_expressible": work.uses().mixed if posterior == "node" else [],
        "method": diagonal.method,
    }
    message = f"It holds with probability {1 - delta:g} for independent samples" + (
        ", but says nothing, being 1 or more." if value >= 1 else "."
    )
    status = Status.ESTIMATED
    if stop is not None:
        status = Status.NOT_CONVERGED
        message = stop.after(f"after {samples} draws, for which the bound holds")
    uncertainty = math.hypot(noise, resolution)
    return Outcome(value, status, message, uncertainty, details, shaping.loss.name)


def _check_applies(objective: Objective) -> None:
    """The 0-1 loss of independent samples must be defined."""
    if not objective.loss.classification:
        raise NotApplicable(
            f"the bound is on the 0-1 loss of a classification, and '{objective.loss.name}'"
            " is not known to be one: use a cross-entropy."
        )
    if objective.network.mode == "train" or objective.coupled:
        raise NotApplicable(
            "a prediction may depend on the rest of its batch (by mode='train', or by the "
            "network), while the bound needs independent samples: use mode='eval', and a "
            "network that takes each sample by itself."
        )
    if None in objective.each(cut_length):
        raise NotApplicable(
            "a batch does not split into samples, as of a graph, so that they are not known "
            "to be independent as the bound needs: give every tensor of a batch one row "
            "per sample."
        )
    with objective.isolated():
        batch = objective.first_batch()
        rows = class_rows(*objective.evaluate(objective.parameters, batch))
    if rows.samples.unique().numel() < rows.samples.numel():
        raise NotApplicable(
            "its samples have several targets each, which are not independent as the "
            "bound needs."
        )


def _plain_block(
    posterior: str, weight: Tensor, h: Tensor, lam: float, cap: float, grid: ScaleGrid
) -> Block:
    if posterior == "node":
        return entry_block(weight, h, lam, cap, grid)
    return tensor_block(weight, float(h.double().sum()), lam, cap, grid)


def _deviation(used: Matrices | None, blocks: list[Block], weight: Tensor) -> Tensor:
    """√s of every entry of a parameter."""
    roots = [block.variance.sqrt() for block in blocks]
    if used is None:
        return roots[0].to(weight)
    return used.laid_out(roots, weight)


def _choose(
    candidates: list[_Candidate], objective: Objective, pilot: int, seed: int
) -> _Candidate:
    """The λ whose bound is smallest by a few draws of their own."""
    best, lowest = candidates[0], math.inf
    for one in sorted(candidates, key=lambda candidate: candidate.complexity):
        if pilot == 0 or one.complexity >= lowest:
            break
        errors, stop = _drawn(objective, one.deviation, pilot, seed)
        if stop is not None:
            raise stop
        bound = one.complexity + statistics.fmean(errors)
        if bound < lowest:
            best, lowest = one, bound
    return best


def _drawn(
    objective: Objective, deviation: Params, count: int, seed: int
) -> tuple[list[float], OutOfTime | None]:
    """The 0-1 loss at draws from the posterior, two at least if time runs out."""
    random, point = generator(seed), objective.parameters

    def draw() -> float:
        noise = gaussian(point, random)
        return _error(objective, add(point, multiply(deviation, noise)))

    return while_time_lasts(draw() for _ in range(count))


def _error(objective: Objective, params: Params) -> float:
    """The share of samples whose class does not have the one highest score."""

    def wrong(batch: Batch) -> int:
        rows = class_rows(*objective.evaluate(params, batch), objective.loss.ignored)
        scores = rows.outputs
        own = scores.gather(1, rows.targets[:, None])
        # Ties and NaN count as errors.
        beaten = (scores < own).sum(1) == scores.shape[1] - 1
        return int((~beaten).sum())

    with torch.no_grad():
        return objective.sum(wrong) / objective.sample_count
