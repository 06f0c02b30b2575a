"""Symmetric matrices with chosen eigenvalues, shared by the tests of the solvers."""

from __future__ import annotations

import math

import numpy as np
import torch

from flatgauge.curvature.operator import DenseOperator
from flatgauge.memory import BASIS_SHARE
from flatgauge.solvers.krylov import Lanczos, random_start
from flatgauge.vectors import generator


def operator_with(eigenvalues, seed=0, dtype=torch.float64):
    """A dense operator with these eigenvalues in a random orthonormal basis."""
    values = torch.as_tensor(np.asarray(eigenvalues, dtype=float))
    draw = torch.randn(
        len(values), len(values), generator=generator(seed), dtype=torch.float64
    )
    basis, _ = torch.linalg.qr(draw)
    matrix = (basis * values) @ basis.T
    return DenseOperator(((matrix + matrix.T) / 2).to(dtype))


def exact(operator):
    """All eigenvalues of the matrix as it is stored, ascending."""
    return np.linalg.eigvalsh(operator.matrix.double().numpy())


def network_like(size=200):
    """A few large eigenvalues, a bulk near zero, some of it negative."""
    bulk = np.random.default_rng(0).normal(0.0, 0.02, size - 8)
    return np.concatenate([[10.0, 7.0, 4.0, 2.0, 1.0, 0.5, -0.5, -0.2], bulk])


def within(operator, rows):
    """The operator, with memory for a Lanczos basis of so many vectors."""
    size = operator.dimension * operator.matrix.element_size()
    operator.memory = math.ceil(rows * size / BASIS_SHARE)
    return operator


def tridiagonalize(operator, steps=30, seed=0):
    """At most so many Lanczos steps from a random start."""
    lanczos = Lanczos(operator, random_start(operator, generator(seed)))
    lanczos.go_to(steps)
    return lanczos
