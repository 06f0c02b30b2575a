"""A curvature as an operator: what is planned, and whether its matrix itself is made."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from flatgauge.curvature.operator import SymmetricOperator, rounding_of
from flatgauge.curvature.plan import EXPECTED, Plan, plan
from flatgauge.curvature.products import Products
from flatgauge.curvature.routes import Route, resolve_route
from flatgauge.errors import LossError, OptionError
from flatgauge.memory import graph_room, memory_budget
from flatgauge.objective import Objective
from flatgauge.own_precision import own_precision
from flatgauge.vectors import Params, derivative_errors, own_bytes, ravel, unravel

# What is lost of a product whose factors have 10 bits, as a share of the largest.
TF32 = 2**-10


class CurvatureOperator(SymmetricOperator):
    """A = (1/N) Σ_batches A_b for N rows in all, multiplied as its plan says.

    A subclass sets `truth`, the name of the route that others must agree with, and says
    what the arguments are; with a `memory_budget` of 0 nothing is kept. `planned` is the
    plan, if there is one yet.
    """

    truth: str = ""

    def __init__(
        self,
        objective: Objective,
        route: str | Route = "auto",
        *,
        expect: int = EXPECTED,
        memory_budget: int | None = None,
    ):
        if objective.loss.rounding >= 1:
            raise LossError(all_is_lost(objective))
        if objective.sharded and self.truth != "double-backward":
            # Its batches do not say what they add to sums over processes.
            objective = objective.whole()
        if objective.sharded and route not in ("auto", "double-backward"):
            raise OptionError(
                f"the route '{getattr(route, 'name', route)}' needs whole parameters: use "
                "'auto', or pass objective.whole()."
            )
        self.objective = objective
        self.space = objective.parameters
        self.ranks = objective.ranks
        self.memory = objective.memory if memory_budget is None else memory_budget
        self.expect = expect
        self._given = None if route == "auto" else resolve_route(route, self.name)
        if self._given is not None:
            self._given.check(objective)
        self.planned: Plan | None = None
        self._products: Products | None = None
        self._matrix: Tensor | None = None

    @property
    def plan(self) -> Plan:
        """How the products are made: made once, before the first of them."""
        return self.planned or self._ready().plan

    @property
    def rounding(self) -> float:
        """That of the loss and of the network, too; TF32 keeps 10 bits of the factors."""
        objective = self.objective
        own = rounding_of(own_precision(objective))
        finest = max(super().rounding, objective.loss.rounding, own)
        coarse = objective.precision == "tf32" and objective.device.type == "cuda"
        if coarse and objective.dtype == torch.float32:
            return max(finest, TF32)
        return finest

    @property
    def takes_parts(self) -> bool:
        """Whether all routes do: a block costs less than the whole."""
        return self._matrix is None and self._routes_take_parts

    @cached_property
    def _routes_take_parts(self) -> bool:
        own = self.plan.route.takes_parts and self.plan.truth.takes_parts
        return bool(self.ranks.least(int(own)))

    def as_matrix(self, instead_of: int) -> Tensor | None:
        """A itself, if it takes less than so many products.

        Later products read it, where that takes less than they would.
        """
        if self._matrix is not None or not self._pays(instead_of):
            return self._matrix
        made, reads = self._ready(), self.reads_matrix
        matrix = made.matrix()
        self._products = None
        self.products += self.dimension
        if reads:
            self.planned = replace(made.plan, reason="all of it is kept as a matrix")
            self._matrix = matrix
        return matrix

    @property
    def reads_matrix(self) -> bool:
        """Whether a product takes less with A itself, once that is there."""
        if self._matrix is not None:
            return True
        return bool(self.ranks.least(int(self.ranks.together(self._ready().reads))))

    def matrix_seconds(self, instead_of: int) -> float | None:
        """About what that will take; None where it is not made."""
        if self._matrix is not None:
            return 0.0
        if not self._pays(instead_of):
            return None
        return self.ranks.agreed(self.ranks.together(self._ready().matrix_seconds))

    def _pays(self, instead_of: int) -> bool:
        price = self.ranks.together(self._ready().price)
        return bool(self.ranks.least(int(price < instead_of)))

    def prepare(self) -> None:
        """Prepare the batches that are kept, as the first product would."""
        if self._matrix is None:
            self._ready().prepare()

    def _apply(self, vectors: list[Params]) -> list[Params]:
        if self._matrix is None:
            return self._ready()(vectors)
        flat = [self._matrix @ ravel(vector) for vector in vectors]
        return [unravel(image, self.space) for image in flat]

    def make_room(self) -> None:
        """Give up what is kept, if others could not keep as much beside it."""
        made = self._products
        device = self.objective.device
        budget = memory_budget(device, self.memory)
        room = graph_room(device, budget, own_bytes(self.space))
        keeps = made is None or made.plan.replays or made.held <= room
        # All processes ask, whatever each has planned for its own batches.
        if not self.ranks.least(int(keeps)):
            self._products = None

    def _ready(self) -> Products:
        if self._products is None:
            budget = memory_budget(self.objective.device, self.memory)
            made = Products(self.planned or self._decided(budget), budget, self.name)
            self.planned, self._products = made.plan, made
        return self._products

    def _decided(self, budget: int) -> Plan:
        objective = self.objective
        if self._given is not None:
            return Plan(objective, self._given, self._given, "asked for")
        with derivative_errors(self.name):
            return self.ranks.together(
                lambda: plan(objective, self.truth, expect=self.expect, budget=budget)
            )


def all_is_lost(objective: Objective) -> str:
    """What is said of a loss that rounding leaves nothing of."""
    return (
        f"the loss '{objective.loss.name}' loses all of its second derivatives to "
        f"rounding in {objective.dtype}: {finer(objective)}."
    )


def finer(objective: Objective) -> str:
    """What to do about the rounding of a loss."""
    wider = "" if objective.dtype == torch.float64 else " or dtype=torch.float64"
    return f"use a named loss{wider}"
