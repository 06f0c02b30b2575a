"""The spectral density by stochastic Lanczos quadrature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.errors import OptionError
from flatgauge.results import Status
from flatgauge.shapes import Float
from flatgauge.solvers.krylov import Lanczos, random_start
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
        products: the number of products with the operator.
    """

    nodes: Float[Tensor, "probes points"]
    weights: Float[Tensor, "probes points"]
    dimension: int
    status: Status
    message: str
    products: int

    def moment(self, power: int) -> tuple[float, float]:
        """The mean of lambda^power over the eigenvalues, and its standard error."""
        return _mean_and_error((self.weights * self.nodes**power).sum(dim=1))

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
    if len(alphas) == 1:
        return np.array(alphas), np.ones(1)
    nodes, vectors = eigh_tridiagonal(
        np.array(alphas), np.array(betas[: len(alphas) - 1]), lapack_driver="stev"
    )
    weights = np.asarray(vectors)[0] ** 2
    return np.asarray(nodes), weights / weights.sum()


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
    if probes < 2 or steps < 1:
        raise OptionError(
            f"probes={probes} and steps={steps} were given: a density needs at least "
            "2 probes and 1 step."
        )
    size = operator.dimension
    if size <= steps:
        nodes = torch.linalg.eigvalsh(operator.to_dense().double().cpu())[None]
        return SpectralDensity(
            nodes=nodes,
            weights=torch.full_like(nodes, 1 / size),
            dimension=size,
            status=Status.EXACT,
            message=f"All {size} eigenvalues were computed.",
            products=size,
        )
    random = generator(seed)
    nodes = torch.zeros(probes, steps, dtype=torch.float64)
    weights = torch.zeros_like(nodes)
    products = 0
    for probe in range(probes):
        run = Lanczos(operator, random_start(operator, random))
        while run.steps < steps and not run.exhausted:
            run.step()
        points, shares = quadrature(run.alphas, run.betas)
        nodes[probe] = float(points[-1])
        nodes[probe, : run.steps] = torch.from_numpy(points)
        weights[probe, : run.steps] = torch.from_numpy(shares)
        products += run.steps
    return SpectralDensity(
        nodes=nodes,
        weights=weights,
        dimension=size,
        status=Status.ESTIMATED,
        message=f"A quadrature of {steps} points was averaged over {probes} probes.",
        products=products,
    )


def _mean_and_error(singles: Float[Tensor, " probes"]) -> tuple[float, float]:
    count = len(singles)
    error = singles.std().item() / math.sqrt(count) if count > 1 else 0.0
    return singles.mean().item(), error
