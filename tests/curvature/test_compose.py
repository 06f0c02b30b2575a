from __future__ import annotations

import pytest
import torch
from support.cases import CASES, assert_close

import flatgauge as fg
from flatgauge.curvature.dense import dense_hessian
from flatgauge.curvature.operator import (
    Block,
    Compressed,
    DenseOperator,
    Scaled,
    SymmetricOperator,
)
from flatgauge.errors import NonFiniteError
from flatgauge.solvers.lanczos import largest_eigenvalue
from flatgauge.vectors import (
    add,
    dot,
    gaussian,
    generator,
    map_tensors,
    norm,
    ravel,
    scale,
)


def parts():
    objective = CASES["mlp"].objective()
    return objective, fg.Hessian(objective), dense_hessian(objective)


def test_scaled_is_the_product_of_three_matrices():
    objective, operator, dense = parts()
    scales = map_tensors(torch.abs, objective.parameters)
    diagonal = torch.diag(ravel(scales))
    assert_close(Scaled(operator, scales).to_dense(), diagonal @ dense @ diagonal)


def test_scales_may_broadcast():
    objective, operator, dense = parts()
    scales = {n: t.norm() for n, t in objective.parameters.items()}
    full = {n: scales[n].expand_as(t) for n, t in objective.parameters.items()}
    diagonal = torch.diag(ravel(full))
    assert_close(Scaled(operator, scales).to_dense(), diagonal @ dense @ diagonal)


def test_compressed():
    objective, operator, dense = parts()
    unit = gaussian(objective.parameters, generator(0))
    unit = scale(unit, 1 / norm(unit))
    flat = ravel(unit)
    projector = torch.eye(flat.numel()).double() - torch.outer(flat, flat)
    compressed = Compressed(operator, lambda v: add(v, unit, -dot(v, unit)))
    assert_close(compressed.to_dense(), projector @ dense @ projector)


@pytest.mark.parametrize("kind", ["Hessian", "GaussNewton"])
def test_block(kind):
    objective = CASES["mlp"].objective()
    operator = getattr(fg, kind)(objective)
    names = list(objective.parameters)[1::2]
    flags = {n: torch.full_like(t, n in names) for n, t in objective.parameters.items()}
    chosen = ravel(flags).bool()
    block = Block(operator, names)
    assert list(block.space) == names
    assert_close(block.to_dense(), operator.to_dense()[chosen][:, chosen])
    assert operator.takes_parts is (kind == "Hessian")


def test_products_are_counted_at_both_levels():
    objective, operator, _ = parts()
    scaled = Scaled(operator, objective.parameters)
    scaled @ [objective.parameters] * 3
    assert (scaled.products, operator.products) == (1, 1)
    scaled @ ([objective.parameters] * 3)
    assert (scaled.products, operator.products) == (4, 4)


def test_rounding_is_that_of_the_operator_inside():
    class Coarse(DenseOperator):
        rounding = 0.125

    inside = Coarse(torch.eye(2))
    scaled = Scaled(inside, {"x": torch.ones(2)})
    assert scaled.rounding == 0.125
    assert Compressed(inside, lambda vector: vector).rounding == 0.125
    assert largest_eigenvalue(scaled).error_bound >= 0.125


class Partly(SymmetricOperator):
    """Finite on one part, not on the other."""

    name = "odd"

    def __init__(self):
        self.space = {"good": torch.zeros(2).double(), "bad": torch.zeros(1).double()}

    def _apply(self, vectors):
        return [{**v, "bad": v["bad"] * float("nan")} for v in vectors]


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        (Partly(), r"the odd product with respect to 'bad' is not finite"),
        (Scaled(Partly(), Partly().space), r"'bad' is not finite"),
        (
            Compressed(Partly(), lambda v: scale(v, float(ravel(v).sum()))),
            "a projected product is not finite",
        ),
    ],
)
def test_what_is_not_finite_is_named_where_it_can_be(operator, words):
    vector = map_tensors(torch.ones_like, operator.space)
    with pytest.raises(NonFiniteError, match=words):
        _ = operator @ vector
    with pytest.raises(NonFiniteError, match=words):
        largest_eigenvalue(operator)
