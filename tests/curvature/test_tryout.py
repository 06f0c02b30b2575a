from __future__ import annotations

import gc
import weakref

import pytest
from cases import CASES, assert_close, at_once, random_vector

import flatgauge as fg
from flatgauge.curvature import choose
from flatgauge.curvature.routes import ROUTES
from flatgauge.curvature.routes.double_backward import DoubleBackward
from flatgauge.curvature.routes.reverse_twice import ReverseTwice
from flatgauge.curvature.routes.route import Variant
from flatgauge.errors import OptionError
from flatgauge.vectors import scale


class Doubled(Variant):
    """Fast and wrong, as a recording of the wrong stream would be."""

    order, words = 9, "doubled"

    @classmethod
    def suits(cls, inner, objective, batch):
        return True

    def prepare(self, objective, batch):
        return lambda vectors: [scale(vector, 2.0) for vector in vectors]


class Failing(DoubleBackward):
    name = "failing"

    def prepare(self, objective, batch):
        raise RuntimeError("no rule for this\nand more")


def test_a_wrong_variant_is_not_chosen(monkeypatch):
    monkeypatch.setattr(choose, "VARIANTS", [Doubled])
    objective = CASES["mlp"].objective()
    hessian = at_once(fg.Hessian(objective))
    truth = fg.Hessian(objective, "double-backward") @ random_vector(objective)
    assert_close(hessian @ random_vector(objective), truth, 1e-12)
    assert not any("doubled" in name for name in hessian.choice.seconds)
    reason = hessian.choice.failures["double-backward, doubled"]
    assert "its product is off by" in reason


def test_the_reason_of_a_failure_is_kept(monkeypatch):
    monkeypatch.setitem(ROUTES, "failing", Failing)
    hessian = at_once(fg.Hessian(CASES["mlp"].objective()))
    _ = hessian @ random_vector(hessian.objective)
    seen = hessian.choice.to_dict()
    assert seen["failures"] == {"failing": "RuntimeError: no rule for this"}
    assert "failing" not in {**seen["seconds"], **seen["disagreement"]}


def test_a_route_to_another_matrix_is_refused():
    objective = CASES["mlp"].objective()
    for route in (ReverseTwice(), Doubled(ReverseTwice())):
        with pytest.raises(OptionError, match="multiplies by the Gauss-Newton matrix"):
            fg.Hessian(objective, route)
        assert fg.GaussNewton(objective, route).choice.route is route


def test_recordings_that_are_not_kept_are_given_up(monkeypatch):
    class Replayed(DoubleBackward):
        name = "replayed"
        replays = True

    objective = CASES["mlp"].objective()
    hessian = fg.Hessian(objective, Replayed(), memory_budget=0)
    truth = fg.Hessian(objective, "double-backward") @ random_vector(objective)
    for _ in range(2):
        assert_close(hessian @ random_vector(objective), truth, 1e-12)
        assert hessian.choice.route.name == "double-backward"


@pytest.mark.parametrize("matrix", [fg.Hessian, fg.GaussNewton, fg.Fisher])
def test_what_is_kept_goes_with_its_operator(matrix):
    objective = CASES["mlp"].objective()
    operator = matrix(objective)
    _ = operator @ random_vector(objective)
    gone = weakref.ref(operator)
    gc.disable()
    try:
        del operator
        assert gone() is None
    finally:
        gc.enable()
