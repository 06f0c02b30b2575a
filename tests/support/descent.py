"""A balancing problem by gradient descent, independent of the solver."""

from __future__ import annotations

import torch


def descended(alpha, beta, learning_rate, steps):
    """The objective after so many steps, with the scales e^{2 x} and e^{2 y} from 1 on."""
    x, y = alpha.new_zeros(alpha.shape[0]), alpha.new_zeros(alpha.shape[1])
    for _ in range(steps):
        total = torch.exp(2 * (x[:, None] + y))
        difference = alpha * total - beta / total
        x = x - learning_rate * 2 * difference.sum(1)
        y = y - learning_rate * 2 * difference.sum(0)
    total = torch.exp(2 * (x[:, None] + y))
    return float((alpha * total + beta / total).sum())
