"""Dense float64 references by plain autograd: one graph, one row of a matrix at a time."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from fuzz.losses import IGNORED, entropies, normalized_entropies
from fuzz.problems import Problem


@dataclass
class Rows:
    """Outputs [M, K] and targets of all valid rows, and their weights."""

    outputs: Tensor
    targets: Tensor
    weights: Tensor


class Reference:
    """The objective that the generator means, at one point, in float64."""

    def __init__(self, problem: Problem, model: torch.nn.Module | None = None):
        self.problem = problem
        self.model = copy.deepcopy(model or problem.network.model).cpu().double()
        self.model.train(problem.mode == "train")
        for module in self.model.modules():
            if hasattr(module, "precise"):
                module.precise = True
        self.params = {
            name: p for name, p in self.model.named_parameters() if p.requires_grad
        }
        self.reach = 0.0
        self.theta = torch.cat([p.detach().flatten() for p in self.params.values()])

    def outputs(self) -> Tensor:
        """The outputs on all data."""
        return torch.cat([f.flatten(0, -2) for f, _ in self._forward()])

    def value(self, loss: str = "own") -> Tensor:
        """The objective, differentiable: under its own or the normalized loss."""
        coupled = self.problem.loss.coupled
        if coupled is not None:
            values = [coupled(f, y) for f, y in self._forward()]
            return torch.stack(values).mean()
        rows = self.rows()
        return (rows.weights * self.row_losses(rows, loss)).sum() / rows.weights.sum()

    def rows(self) -> Rows:
        found = self._forward()
        targets = torch.cat([y for _, y in found])
        if targets.is_floating_point():
            # A sample is one row, with all of its tokens.
            outputs = torch.cat([f.flatten(1) for f, _ in found])
            targets = targets.flatten(1)
        else:
            outputs = torch.cat([f.flatten(0, -2) for f, _ in found])
            targets = targets.flatten()
            valid = targets != IGNORED
            outputs, targets = outputs[valid], targets[valid]
        weigh = self.problem.loss.weights
        ones = torch.ones(len(outputs), dtype=torch.float64)
        return Rows(outputs, targets, ones if weigh is None else weigh(targets))

    def row_losses(self, rows: Rows, loss: str = "own") -> Tensor:
        chosen = {
            "own": self.problem.loss.rows,
            "cross-entropy": entropies,
            "normalized-cross-entropy": normalized_entropies,
        }[loss]
        return chosen(rows.outputs, rows.targets)

    def gradient(self) -> Tensor:
        return self._slope(self.value())

    def hessian(self, loss: str = "own") -> Tensor:
        """∇²L by one backward pass a row."""
        g = self._slope(self.value(loss), graph=True)
        if not g.requires_grad:
            return torch.zeros(len(g), len(g), dtype=g.dtype)
        rows = [self._slope(one, keep=True) for one in g]
        matrix = torch.stack(rows)
        return (matrix + matrix.T) / 2 if self.problem.network.sound else matrix

    def row_gradients(self) -> tuple[Tensor, Tensor]:
        """The gradient of every row's loss [M, P], and the rows' weights."""
        rows = self.rows()
        losses = self.row_losses(rows)
        found = torch.stack([self._slope(one, keep=True) for one in losses])
        return found, rows.weights

    def gauss_newton(self) -> Tensor:
        """Σ w Jᵀ (∇²_f ℓ) J / Σ w; `reach` is Σ w ‖J‖² / Σ w, which rounding goes with."""
        rows = self.rows()
        total, self.reach = 0.0, 0.0
        for index in range(len(rows.outputs)):
            f = rows.outputs[index]
            jacobian = torch.stack([self._slope(one, keep=True) for one in f])
            free = f.detach().clone().requires_grad_()
            one = Rows(free[None], rows.targets[index : index + 1], rows.weights[:1])
            slope = torch.autograd.grad(
                self.row_losses(one).sum(), free, create_graph=True
            )[0]
            curvature = torch.stack(
                [torch.autograd.grad(s, free, retain_graph=True)[0]
                 if s.requires_grad else torch.zeros_like(free) for s in slope]
            )  # fmt: skip
            weight = rows.weights[index]
            total = total + weight * jacobian.T @ curvature @ jacobian
            self.reach += float(weight * jacobian.square().sum())
        self.reach /= float(rows.weights.sum())
        return torch.as_tensor(total) / rows.weights.sum()

    def moved(self, step: Tensor) -> Reference:
        """The same objective at θ + step."""
        other = Reference(self.problem, self.model)
        with torch.no_grad():
            start = 0
            for parameter in other.params.values():
                size = parameter.numel()
                parameter += step[start : start + size].view_as(parameter)
                start += size
        return other

    def by_name(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector of all parameters, by name and shape."""
        parts = vector.split([p.numel() for p in self.params.values()])
        return {
            name: part.view_as(p)
            for part, (name, p) in zip(parts, self.params.items(), strict=True)
        }

    def _forward(self) -> list[tuple[Tensor, Tensor]]:
        """Outputs and targets: of all data at once, or by batch where that matters."""
        batches = [(_double(x), _double(y)) for x, y in self.problem.batches]
        if not self.problem.coupled:
            inputs, targets = zip(*batches, strict=True)
            batches = [(torch.cat(inputs), torch.cat(targets))]
        with sdpa_kernel(SDPBackend.MATH):
            return [(self.model(x), y) for x, y in batches]

    def _slope(self, value: Tensor, graph: bool = False, keep: bool = False) -> Tensor:
        if not value.requires_grad:
            return torch.zeros_like(self.theta)
        found = torch.autograd.grad(
            value, list(self.params.values()), create_graph=graph,
            retain_graph=graph or keep, allow_unused=True, materialize_grads=True,
        )  # fmt: skip
        return torch.cat([part.flatten() for part in found])


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
