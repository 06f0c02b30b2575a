from __future__ import annotations

import pytest
import torch

from flatgauge import vectors
from flatgauge.errors import (
    ModelError,
    NonFiniteError,
    OutOfMemoryError,
    VectorError,
)

SPACE = {
    "a": torch.arange(6.0).reshape(2, 3),
    "scalar": torch.tensor(2.0),
    "empty": torch.zeros(0, 4),
}


def test_algebra():
    twice = vectors.scale(SPACE, 2.0)
    assert vectors.size(SPACE) == 7
    assert float(vectors.dot(SPACE, twice)) == 2 * (55 + 4)
    assert float(vectors.norm(SPACE)) == pytest.approx(59**0.5, rel=1e-14)
    total = vectors.add(SPACE, twice, -0.5)
    assert float(vectors.norm(total)) == 0
    assert torch.equal(vectors.multiply(SPACE, SPACE)["a"], SPACE["a"] ** 2)
    assert float(vectors.norm(vectors.zeros_like(SPACE))) == 0


def test_dot_accumulates_in_float64():
    big = {"x": torch.full((10_001,), 1.0), "y": torch.tensor([1e8])}
    one = {"x": torch.full((10_001,), 1.0), "y": torch.tensor([1.0])}
    assert float(vectors.dot(big, one)) == 1e8 + 10_001


def test_ravel_and_unravel_are_inverse():
    flat = vectors.ravel(SPACE)
    back = vectors.unravel(flat, SPACE)
    assert list(back) == list(SPACE)
    assert all(torch.equal(back[name], SPACE[name]) for name in SPACE)
    back["a"][0, 0] = 9.0
    assert float(flat[0]) == 9.0


def test_unravel_refuses_other_sizes():
    with pytest.raises(VectorError, match=r"6 entries .* space has 7"):
        vectors.unravel(torch.zeros(6), SPACE)


def test_probes_come_from_their_own_generator():
    state = torch.get_rng_state()
    first = vectors.gaussian(SPACE, vectors.generator(3))
    again = vectors.gaussian(SPACE, vectors.generator(3))
    signs = vectors.rademacher(SPACE, vectors.generator(3))
    assert torch.equal(first["a"], again["a"])
    assert not torch.equal(
        first["a"], vectors.gaussian(SPACE, vectors.generator(4))["a"]
    )
    assert set(signs["a"].unique().tolist()) <= {-1.0, 1.0}
    assert signs["a"].dtype == torch.float32
    assert torch.equal(state, torch.get_rng_state())


def test_gradient_is_zero_for_what_is_not_used():
    point = {"a": torch.tensor([2.0], requires_grad=True), "b": torch.ones(3)}
    point["b"].requires_grad_()
    found = vectors.gradient_of((point["a"] ** 3).sum(), point)
    assert found["a"].tolist() == [12.0]
    assert found["b"].tolist() == [0.0] * 3
    assert vectors.gradient_of(torch.tensor(1.0), point)["a"].tolist() == [0.0]


def test_derivative_errors_speak_in_sentences():
    with (
        pytest.raises(ModelError, match=r"gradient .* boom.*second derivatives"),
        vectors.derivative_errors("gradient"),
    ):
        raise RuntimeError("boom\nsecond line")
    with (
        pytest.raises(ModelError, match="in place"),
        vectors.derivative_errors("gradient"),
    ):
        raise RuntimeError("modified by an inplace operation")
    with (
        pytest.raises(OutOfMemoryError, match="smaller batches"),
        vectors.derivative_errors("gradient"),
    ):
        raise torch.OutOfMemoryError("no memory")


def test_check_finite_names_the_parameter():
    vectors.check_finite(SPACE, "gradient")
    with pytest.raises(NonFiniteError, match="gradient with respect to 'a'"):
        vectors.check_finite({"a": torch.tensor([float("nan")])}, "gradient")


def test_check_like_puts_names_in_order():
    shuffled = dict(reversed(SPACE.items()))
    assert list(vectors.check_like(shuffled, SPACE)) == list(SPACE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"b": torch.zeros(1)}, "not known 'b'"),
        ({"a": torch.zeros(3, 2)}, r"'a' has shape \(3, 2\).*\(2, 3\)"),
        ({"a": torch.zeros(2, 3, dtype=torch.float64)}, "float64.*float32"),
    ],
)
def test_check_like_refuses(change, words):
    with pytest.raises(VectorError, match=words):
        vectors.check_like({**SPACE, **change}, SPACE)


def test_check_like_names_what_is_missing():
    with pytest.raises(VectorError, match=r"missing 'a', 'scalar'"):
        vectors.check_like({"empty": SPACE["empty"]}, SPACE)
    many = {f"p{i}": torch.zeros(1) for i in range(6)}
    with pytest.raises(VectorError, match="and 3 more"):
        vectors.check_like({}, many)
