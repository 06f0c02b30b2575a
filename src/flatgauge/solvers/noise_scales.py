"""The best scales of Gaussian noise on the weights, by stochastic descent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.data import Batch
from flatgauge.deadline import OutOfTime
from flatgauge.draws import while_time_lasts
from flatgauge.objective import Objective
from flatgauge.uses import Matrices
from flatgauge.vectors import (
    Params,
    add,
    check_finite,
    derivative_errors,
    gaussian,
    generator,
    gradient_of,
    multiply,
    scale,
    zeros_like,
)

# Antithetic pairs of draws in each step.
PAIRS = 2
RATE = 0.1

LogScales = list[Tensor]


@dataclass(frozen=True)
class Evaluation:
    """The noisy loss at given scales, from independent draws.

    Attributes:
        rise: E L(θ + noise) − L(θ).
        penalty: Σ W² / (2λs).
        layers: the penalty of each parameter.
        error: the standard error of the rise.
        left: the decrease that a Newton step would still bring, ½ Σ g²/Γ without the
            noise of g: g = slope − penalty in a log scale, Γ = |slope| + penalty.
        left_error: the standard error of `left` that this noise gives it.
        imbalance: how much the loss's slope in a common scale of all noise differs from
            the penalty, to which it is equal at a minimum; relative to the penalty.
        stopped: what ended the draws early, if anything did.
    """

    rise: float
    penalty: float
    layers: dict[str, float]
    error: float
    left: float
    left_error: float
    imbalance: float
    stopped: OutOfTime | None


class NoiseScales:
    """E L(θ + √s ε) − L(θ) + Σ W² / (2λs) as a function of ln σ² and ln σ'².

    The variance s_ij = σ_i² σ'_j² is a product over the rows and columns of each matrix
    (kernel positions share it); other parameters have no noise. Scales are given as a
    list: rows, then columns, of each separate matrix of each parameter in turn. The
    slope in ln σ_i² of a draw is ½ Σ_j √s_ij ε_ij ∂L/∂W_ij (reparametrization); like the
    draws, it is the same for networks that differ by a rescaling of rows and columns.
    """

    def __init__(self, objective: Objective, matrices: dict[str, Matrices], lam: float):
        # What ended a descent before its last step.
        self.stopped: OutOfTime | None = None
        self.objective = objective
        self.matrices = matrices
        self.lam = lam
        self._squares = [
            (name, part)
            for name, matrix in matrices.items()
            for part in matrix.matrices(objective.parameters[name].double().square())
        ]

    def descend(self, logs: LogScales, steps: int, seed: int) -> LogScales:
        """Adam with a rate that falls to 0; the mean of the second half of its path.

        Where time runs out, the mean as far as it goes, or else the last scales.
        """
        random = generator(seed)
        leaves = [log.to(self.objective.device, copy=True) for log in logs]
        adam = torch.optim.Adam(leaves, lr=RATE, betas=(0.9, 0.99))
        mean, count = [torch.zeros_like(leaf) for leaf in leaves], 0
        deadline.usable()
        for step in range(steps):
            adam.param_groups[0]["lr"] = RATE * (1 - step / steps)
            try:
                drawn = [self._pair(leaves, random)[1] for _ in range(PAIRS)]
            except OutOfTime as stop:
                self.stopped = stop
                break
            slopes = [sum(parts) / PAIRS for parts in zip(*drawn, strict=True)]
            penalties = self._penalties(leaves)
            for leaf, slope, penalty in zip(leaves, slopes, penalties, strict=True):
                leaf.grad = slope - penalty
            adam.step()
            if step >= steps // 2:
                mean = [m + leaf for m, leaf in zip(mean, leaves, strict=True)]
                count += 1
        return [m / count for m in mean] if count else leaves

    def evaluate(self, logs: LogScales, pairs: int, seed: int) -> Evaluation:
        """The objective at these scales, and how far from stationary they are.

        Where time runs out after two pairs, these are all.
        """
        random = generator(seed)
        logs = [log.to(self.objective.device) for log in logs]
        draws = (self._pair(logs, random) for _ in range(pairs))
        found, stopped = while_time_lasts(draws)
        pairs, values = len(found), [value for value, _ in found]
        each = torch.stack([torch.cat(slopes) for _, slopes in found])
        rises = torch.tensor(values, dtype=torch.float64) - self.objective.value()
        penalties = self._penalties(logs)
        penalty = torch.cat(penalties)
        # The rows' sums: those of the columns are the same again.
        layers = dict.fromkeys(self.matrices, 0.0)
        for (name, _), rows in zip(self._squares, penalties[::2], strict=True):
            layers[name] += float(rows.sum())
        slope, noise = each.mean(0), each.var(0) / pairs
        felt = penalty + slope.abs() > 0
        gain = (slope - penalty)[felt].square() - noise[felt]
        weight = 1 / (2 * (penalty + slope.abs())[felt])
        spread = 2 * noise[felt] * (noise[felt] + 2 * gain.clamp_min(0))
        total = sum(layers.values())
        # Every entry counts twice here, in its row and in its column.
        common = float(slope.sum()) / 2
        return Evaluation(
            rise=float(rises.mean()),
            penalty=total,
            layers=layers,
            error=float(rises.std()) / math.sqrt(pairs),
            left=max(float((gain * weight).sum()), 0.0),
            left_error=float((spread * weight.square()).sum().sqrt()),
            imbalance=abs(common - total) / total if total else 0.0,
            stopped=stopped,
        )

    def _pair(
        self, logs: LogScales, random: torch.Generator
    ) -> tuple[float, LogScales]:
        """The mean loss and slopes at θ ± √s ε."""
        space = {name: self.objective.parameters[name] for name in self.matrices}
        deviation = self._deviation(logs)
        noise = gaussian(space, random)
        move = {name: deviation[name] * noise[name] for name in space}
        total, change = 0.0, zeros_like(space)
        for sign in (1.0, -1.0):
            value, gradient = self._loss(add(space, move, sign))
            total += value / 2
            change = add(change, multiply(gradient, move), sign / 4)
        return total, list(self._marginals(change))

    def _loss(self, moved: Params) -> tuple[float, Params]:
        """The loss with these matrices, and its gradient in them."""
        objective = self.objective

        def term(batch: Batch) -> tuple[float, Params]:
            leaves = {n: t.detach().requires_grad_() for n, t in moved.items()}
            total = objective.batch_total({**objective.parameters, **leaves}, batch)
            with derivative_errors("gradient"):
                return float(total.detach()), gradient_of(total, leaves)

        value, gradient = objective.sum(term)
        check_finite(gradient, "gradient under noise")
        rows = objective.sample_count
        return value / rows, scale(gradient, 1 / rows)

    def _deviation(self, logs: LogScales) -> Params:
        """√s of every entry."""
        roots: dict[str, list[Tensor]] = {name: [] for name in self.matrices}
        for (name, _), x, y in self._parts(logs):
            roots[name].append(((x[:, None] + y) / 2).exp())
        return {
            name: matrix.laid_out(roots[name], self.objective.parameters[name])
            for name, matrix in self.matrices.items()
        }

    def _marginals(self, change: Params) -> Iterator[Tensor]:
        """Sums over rows and over columns of each separate matrix."""
        for name, matrix in self.matrices.items():
            for part in matrix.matrices(change[name].double()):
                yield part.sum(1)
                yield part.sum(0)

    def _penalties(self, logs: LogScales) -> LogScales:
        """Σ W² / (2λs) of each row and column."""
        sums = []
        for (_, square), x, y in self._parts(logs):
            penalty = square * torch.exp(-x[:, None] - y) / (2 * self.lam)
            sums += [penalty.sum(1), penalty.sum(0)]
        return sums

    def _parts(
        self, logs: LogScales
    ) -> Iterator[tuple[tuple[str, Tensor], Tensor, Tensor]]:
        return zip(self._squares, logs[::2], logs[1::2], strict=True)
