"""inf over x, y of Σ α e^{x+y} + β e^{−x−y}, by sweeps and Newton steps of our own."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

SWEEPS = 60
NEWTON = 60


def balanced(alpha: np.ndarray, beta: np.ndarray) -> float:
    """The infimum, where entries that scales can send to 0 alone count as 0."""
    alpha, beta = _pruned(alpha, beta)
    if not (alpha.any() and beta.any()):
        return 0.0
    unit = np.sqrt(alpha.sum() * beta.sum())
    return unit * _least(alpha / alpha.sum(), beta / beta.sum())


def _pruned(alpha: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What stays: entries inside a strongly connected component of rows and columns."""
    m, n = alpha.shape
    graph = np.zeros((m + n, m + n))
    graph[:m, m:] = alpha > 0
    graph[m:, :m] = (beta > 0).T
    _, labels = connected_components(csr_matrix(graph), connection="strong")
    same = labels[:m, None] == labels[None, m:]
    return np.where(same, alpha, 0.0), np.where(same, beta, 0.0)


def _least(alpha: np.ndarray, beta: np.ndarray) -> float:
    m, n = alpha.shape
    x, y = np.zeros(m), np.zeros(n)

    def parts(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scale = x[:, None] + y[None, :]
        return alpha * np.exp(scale), beta * np.exp(-scale)

    def half_log(up: np.ndarray, down: np.ndarray) -> np.ndarray:
        live = (up > 0) & (down > 0)
        ratio = np.where(live, up, 1.0) / np.where(live, down, 1.0)
        return 0.5 * np.log(ratio)

    for _ in range(SWEEPS):
        p, q = parts(x, y)
        x = x + half_log(q.sum(1), p.sum(1))
        p, q = parts(x, y)
        y = y + half_log(q.sum(0), p.sum(0))
    best = sum(part.sum() for part in parts(x, y))
    for _ in range(NEWTON):
        p, q = parts(x, y)
        both, net = p + q, p - q
        slope = np.concatenate([net.sum(1), net.sum(0)])
        curve = np.block([[np.diag(both.sum(1)), both], [both.T, np.diag(both.sum(0))]])
        try:
            step = -np.linalg.lstsq(curve, slope, rcond=1e-14)[0]
        except np.linalg.LinAlgError:
            break
        size = min(1.0, 2.0 / max(np.abs(step).max(), 1e-300))
        while size > 1e-10:
            trial = sum(
                part.sum() for part in parts(x + size * step[:m], y + size * step[m:])
            )
            if trial <= best:
                break
            size /= 2
        else:
            break
        gain = best - trial
        x, y, best = x + size * step[:m], y + size * step[m:], trial
        if gain <= 1e-15 * best:
            break
    return float(best)
