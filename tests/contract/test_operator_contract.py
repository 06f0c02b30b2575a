"""What every symmetric operator promises."""

from __future__ import annotations

import pytest
import torch
from support.cases import CASES, assert_close

import flatgauge as fg
from flatgauge.curvature.curvature_operator import CurvatureOperator
from flatgauge.curvature.operator import (
    Block,
    Composed,
    Compressed,
    DenseOperator,
    Scaled,
    SymmetricOperator,
)
from flatgauge.errors import VectorError
from flatgauge.vectors import add, dot, gaussian, generator, map_tensors, ravel, scale


def hessian(case: str, **options) -> fg.Hessian:
    return fg.Hessian(CASES[case].objective(), **options)


def keep_weights(vector):
    return {n: t if "weight" in n else torch.zeros_like(t) for n, t in vector.items()}


def dense_operator() -> DenseOperator:
    matrix = torch.randn(5, 5, generator=generator(0)).double()
    return DenseOperator(matrix + matrix.mT)


def scaled() -> Scaled:
    operator = hessian("mlp")
    return Scaled(operator, map_tensors(torch.abs, operator.space))


OPERATORS = {
    "dense": dense_operator,
    "hessian-mlp": lambda: hessian("mlp"),
    "hessian-resnet-train": lambda: hessian("resnet-train"),
    "hessian-gpt": lambda: hessian("gpt"),
    "hessian-lstm": lambda: hessian("lstm"),
    "hessian-tied-frozen": lambda: hessian("tied-frozen"),
    "hessian-nothing-kept": lambda: hessian("gpt", memory_budget=0),
    "hessian-forward": lambda: hessian("mlp", route="reverse-over-forward"),
    "gauss-newton": lambda: fg.GaussNewton(CASES["gpt"].objective()),
    "gauss-newton-normalized": lambda: fg.GaussNewton(
        CASES["mlp"].objective("normalized-cross-entropy")
    ),
    "fisher-empirical": lambda: fg.Fisher(CASES["gpt"].objective()),
    "fisher-true": lambda: fg.Fisher(CASES["gpt"].objective(), "true"),
    "fisher-sampled": lambda: fg.Fisher(CASES["mlp"].objective(), "true", samples=3),
    "scaled": scaled,
    "compressed": lambda: Compressed(hessian("mlp"), keep_weights),
    "block": lambda: Block(hessian("mlp"), ["0.weight", "2.bias"]),
    "block of a composed one": lambda: Block(scaled(), ["0.weight"]),
}


@pytest.fixture(params=OPERATORS)
def operator(request) -> SymmetricOperator:
    return OPERATORS[request.param]()


def vectors(operator: SymmetricOperator, count: int):
    return [gaussian(operator.space, generator(seed)) for seed in range(count)]


def test_linear(operator):
    left, right = vectors(operator, 2)
    together = operator @ add(scale(left, 2.0), right, -3.0)
    apart = add(scale(operator @ left, 2.0), operator @ right, -3.0)
    assert_close(together, apart)


def test_symmetric(operator):
    left, right = vectors(operator, 2)
    one, two = dot(left, operator @ right), dot(right, operator @ left)
    size = float(ravel(operator @ left).norm() * ravel(right).norm())
    assert abs(float(one - two)) <= 1e-13 * size


def test_matches_its_matrix(operator):
    (vector,) = vectors(operator, 1)
    matrix = operator.to_dense()
    assert_close(matrix, matrix.mT)
    assert_close(ravel(operator @ vector), matrix @ ravel(vector))


def test_several_at_once_are_one_at_a_time(operator):
    some = vectors(operator, 3)
    for vector, image in zip(some, operator @ some, strict=True):
        assert_close(image, operator @ vector, 1e-13)


def test_images_lie_in_the_space(operator):
    (vector,) = vectors(operator, 1)
    image = operator @ dict(reversed(vector.items()))
    assert list(image) == list(operator.space)
    for name, tensor in operator.space.items():
        assert image[name].shape == tensor.shape
        assert image[name].dtype == tensor.dtype
        assert not image[name].requires_grad
    assert_close(image, operator @ vector, 1e-13)


def test_vectors_are_left_alone(operator):
    (vector,) = vectors(operator, 1)
    before = {name: tensor.clone() for name, tensor in vector.items()}
    operator @ vector
    assert all(torch.equal(vector[name], before[name]) for name in vector)


def test_products_are_counted(operator):
    some = vectors(operator, 3)
    assert operator.products == 0
    operator @ some
    assert operator.products == 3
    operator @ some[0]
    operator @ []
    assert operator.products == 4


def test_wrong_vectors_are_refused(operator):
    (vector,) = vectors(operator, 1)
    name = next(iter(vector))
    wrong = {
        "missing": {n: t for n, t in vector.items() if n != name},
        "not known": {**vector, "other": torch.zeros(1)},
        "has shape": {**vector, name: torch.zeros(1, 1, 1, 7, dtype=torch.float64)},
        "convert it first": {**vector, name: vector[name].float()},
    }
    for words, one in wrong.items():
        with pytest.raises(VectorError, match=words):
            operator @ one
        with pytest.raises(VectorError, match=words):
            operator @ [vector, one]
    assert operator.products == 0


def test_every_operator_of_the_curvature_package_is_here():
    def below(kind: type) -> set[type]:
        found = {kind}
        for child in kind.__subclasses__():
            found |= below(child)
        return found

    package = {
        kind
        for kind in below(SymmetricOperator)
        if kind.__module__.startswith("flatgauge.curvature")
    }
    tested = {type(make()) for make in OPERATORS.values()}
    abstract = {SymmetricOperator, CurvatureOperator, Composed}
    assert package - tested == abstract
