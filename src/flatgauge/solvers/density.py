"""The spectral density by stochastic Lanczos quadrature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.errors import OptionError
from flatgauge.results import Status
from flatgauge.shapes import Float
from flatgauge.solvers.krylov import Lanczos, random_start
from flatgauge.solvers.student import standard_error
from flatgauge.solvers.tridiagonal import diagonalized
from flatgauge.vectors import generator


@dataclass(frozen=True)
class SpectralDensity:
    """The distribution of the eigenvalues, as weighted points for each probe.

    Attributes:
        nodes: points on the axis of eigenvalues; float64 on the host.
        weights: nonnegative, of sum 1 for each probe. Where a probe needed fewer points
            than another, the last ones have weight 0.
        dimension: the number n of eigenvalues.
        status: EXACT if the points are the eigenvalues themselves, else ESTIMATED.
        message: how the points were found.
        products: the number of products with the operator that were used.
    """

    nodes: Float[Tensor, "probes points"]
    weights: Float[Tensor, "probes points"]
    dimension: int
    status: Status
    message: str
    products: int

    def moment(self, power: int) -> tuple[float, float]:
        """The mean of lambda^power over the eigenvalues, and its standard error.

        The error is widened for few and skewed probes (`student.standard_error`), such
        that two of them hold in about 95 %.
        """
        singles = (self.weights * self.nodes**power).sum(dim=1).numpy()
        error = float(standard_error(singles)) if len(singles) > 1 else 0.0
        return float(singles.mean()), error

    def cumulative(self, grid: Float[Tensor, " g"]) -> Float[Tensor, " g"]:
        """The share of the eigenvalues that are at most each point of `grid`."""
        below = self.nodes[..., None] <= grid.to(self.nodes)
        return (self.weights[..., None] * below).sum(dim=1).mean(dim=0)

    def evaluate(
        self, grid: Float[Tensor, " g"], width: float | None = None
    ) -> Float[Tensor, " g"]:
        """The density, smoothed by a Gaussian of standard deviation `width`.

        Without a width, one hundredth of the range of the points is taken.
        """
        if width is None:
            spread = (self.nodes.max() - self.nodes.min()).item()
            width = spread / 100 or max(abs(self.nodes.max().item()), 1.0) / 100
        if not width > 0:
            raise OptionError(f"width={width:g} was given: it must be positive.")
        distance = (grid.to(self.nodes) - self.nodes[..., None]) / width
        kernel = torch.exp(-(distance**2) / 2) / (width * math.sqrt(2 * math.pi))
        return (self.weights[..., None] * kernel).sum(dim=1).mean(dim=0)


def quadrature(
    alphas: Sequence[float], betas: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """The Gauss quadrature of a Lanczos run: points and weights of sum 1.

    The points are the eigenvalues of T and the weights the squared first entries of its
    eigenvectors; q_1^T f(A) q_1 is reproduced for polynomials f up to degree 2 m - 1.

    Args:
        alphas: the diagonal of T.
        betas: the numbers beside it, and beta_m last (it is not used).

    Returns:
        The points, ascending, and their weights.
    """
    nodes, vectors = diagonalized(alphas, betas[: len(alphas) - 1])
    weights = vectors[0] ** 2
    return nodes, weights / weights.sum()


@dataclass(frozen=True)
class RunSummary:
    """What is kept of a Lanczos run when its basis is let go.

    Attributes:
        alphas: the diagonal of T, up to the first restart of the run.
        betas: the numbers beside it, and beta_m last.
        steps: the number of steps, which is the number of products used.
        deflated_values: the Rayleigh quotients of the deflated vectors.
        deflated_shares: the squared cosines between them and the start vector.
    """

    alphas: list[float]
    betas: list[float]
    steps: int
    deflated_values: list[float]
    deflated_shares: list[float]

    @staticmethod
    def of(run: Lanczos, deflated_values: Sequence[float] = ()) -> RunSummary:
        """The record of a run, given the values of the vectors that it deflated."""
        alphas, betas = run.tridiagonal
        return RunSummary(
            alphas, betas, run.steps, list(deflated_values), run.deflated_shares
        )

    def quadrature(self) -> tuple[np.ndarray, np.ndarray]:
        """Points and weights for the start vector v as it was before the deflation.

        Where the deflated x_i are eigenvectors, v and f(A) split along them:
        v^T f(A) v = sum_i <v, x_i>^2 f(lambda_i) + r^T f(A) r, with r the part of v that
        the run started from. Their residuals enter as a perturbation of A.
        """
        nodes, weights = quadrature(self.alphas, self.betas)
        shares = np.array(self.deflated_shares)
        points = np.concatenate([self.deflated_values, nodes])
        order = np.argsort(points)
        return points[order], np.append(shares, (1 - shares.sum()) * weights)[order]


def spectral_density(
    operator: SymmetricOperator, probes: int = 10, steps: int = 80, seed: int = 0
) -> SpectralDensity:
    """Estimate the distribution of the eigenvalues.

    Each probe is a Gaussian unit vector v, for which E v^T f(A) v = tr f(A) / n, and a
    Lanczos run turns v^T f(A) v into a quadrature (Golub and Meurant 2010; Ghorbani,
    Krishnan and Xiao 2019). Up to n = `steps` all eigenvalues are computed instead,
    which costs no more than one probe.

    Args:
        operator: the symmetric operator.
        probes: the number of random vectors, two or more for a standard error.
        steps: the most points, and products, for each probe.
        seed: of the probes.

    Returns:
        A `SpectralDensity`.

    Raises:
        OptionError: if probes < 2 or steps < 1.

    >>> import torch
    >>> from flatgauge.curvature.operator import DenseOperator
    >>> A = DenseOperator(torch.diag(torch.tensor([1.0, 2.0, 6.0]).double()))
    >>> spectral_density(A).moment(1)
    (3.0, 0.0)
    """
    check_probes(probes, steps)
    if operator.dimension <= steps:
        return exact_density(operator.to_dense())
    random = generator(seed)
    runs = [probe(operator, steps, random) for _ in range(probes)]
    return average_density(runs, operator.dimension)


def check_probes(probes: int, steps: int) -> None:
    """Raise an OptionError unless a density can be had from so many."""
    if probes < 2 or steps < 1:
        raise OptionError(
            f"probes={probes} and steps={steps} were given: a density needs at least "
            "2 probes and 1 step."
        )


def probe(
    operator: SymmetricOperator, steps: int, random: torch.Generator
) -> RunSummary:
    """One Lanczos run of `steps` steps.

    Fewer if an invariant subspace is found, or if memory holds no more vectors: after a
    restart the quadrature of the start vector would be lost.
    """
    run = Lanczos(operator, random_start(operator, random))
    run.go_to(steps)
    return RunSummary.of(run)


def exact_density(matrix: Float[Tensor, "n n"]) -> SpectralDensity:
    """The eigenvalues of a symmetric matrix, each with the same weight."""
    size = len(matrix)
    nodes = torch.linalg.eigvalsh(matrix.double().cpu())[None]
    return SpectralDensity(
        nodes=nodes,
        weights=torch.full_like(nodes, 1 / size),
        dimension=size,
        status=Status.EXACT,
        message=f"All {size} eigenvalues were computed.",
        products=size,
    )


def average_density(runs: Sequence[RunSummary], dimension: int) -> SpectralDensity:
    """The mean of the quadratures of several runs, each a probe."""
    singles = [run.quadrature() for run in runs]
    longest = max(len(points) for points, _ in singles)
    nodes = torch.zeros(len(runs), longest, dtype=torch.float64)
    weights = torch.zeros_like(nodes)
    for row, (points, shares) in enumerate(singles):
        nodes[row] = float(points[-1])
        nodes[row, : len(points)] = torch.from_numpy(points)
        weights[row, : len(points)] = torch.from_numpy(shares)
    return SpectralDensity(
        nodes=nodes,
        weights=weights,
        dimension=dimension,
        status=Status.ESTIMATED,
        message=f"A quadrature of {longest} points was averaged over {len(runs)} "
        "probes.",
        products=sum(run.steps for run in runs),
    )
