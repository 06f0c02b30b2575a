"""Rescalings of weights that are used as several matrices, and what is said of the rest."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.numerical_dimension import numerical_dimension
from support.used_networks import Built, data, routed, slices, stack
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.errors import SymmetryError
from flatgauge.symmetry.capture import read
from flatgauge.symmetry.graph import Example

X, Y = data()


def made(run, **shapes: tuple[int, ...]) -> Built:
    return Built(shapes, run, 0, lambda weights, factors: weights)


@pytest.mark.parametrize("build", [slices, stack])
def test_two_layers_in_one_tensor(build):
    network = build(5 if build is slices else 4)
    group = fg.symmetries(network, X)
    assert group.dimension == network.units
    assert group.error < 1e-12
    assert "at least" not in str(group)


CASES = {
    "a product of two weights": (
        lambda w, x: F.linear(F.linear(x, w["u"] * w["v"]).relu(), w["o"]),
        {"u": (3, 4), "v": (3, 4), "o": (3, 3)},
    ),
    "one tensor read in two ways": (
        lambda w, x: F.linear(F.linear(x, w["w"]).relu(), w["w"].view(4, 3)),
        {"w": (3, 4)},
    ),
    "blocks of a matrix, put otherwise": (
        lambda w, x: F.linear(
            F.linear(x, w["w"].view(2, 2, 2, 2).transpose(1, 2).reshape(4, 4)).relu(),
            w["o"],
        ),
        {"w": (4, 4), "o": (3, 4)},
    ),
    "overlapping slices": (
        lambda w, x: F.linear(F.linear(x, w["w"][:4]).relu(), w["w"][2:]) @ w["o"],
        {"w": (6, 4), "o": (4, 3)},
    ),
    "a band of equal entries": (
        lambda w, x: F.linear(
            F.linear(x, w["w"].as_strided((3, 4), (1, 1))).relu(), w["o"]
        ),
        {"w": (6,), "o": (3, 3)},
    ),
    "a padded weight": (
        lambda w, x: F.linear(F.linear(x, F.pad(w["w"], (0, 1))).relu(), w["o"]),
        {"w": (3, 3), "o": (3, 3)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_no_matrix_is_scaled_entry_by_entry(name: str):
    run, shapes = CASES[name]
    network = made(run, **shapes)
    group = fg.symmetries(network, X)
    assert group.complete
    assert (group.dimension, 0) == numerical_dimension(network, (X[:6],))


def looked_up() -> Built:
    def run(w: dict[str, Tensor], x: Tensor) -> Tensor:
        expert = (x[:, 0] > 0).long()
        return ((x[:, None] @ w["first"][expert]).relu() @ w["second"][expert]).sum(1)

    return made(run, first=(2, 4, 3), second=(2, 3, 3))


def test_what_is_held_together_is_named():
    group = fg.symmetries(looked_up(), X)
    assert group.dimension == 3  # of 6: both experts by the same factors
    assert not group.complete
    assert {place.operator for place in group.coarse} == {"aten::index"}
    assert "all, at least" in str(group)
    assert "depend on the inputs" in str(group)
    assert "at least" in group._repr_html_()


def test_the_audit_says_that_there_may_be_more():
    objective = fg.Objective(looked_up(), (X, Y))
    request = "normalized-sharpness[surrogate=objective]"
    found = fg.audit(objective, request, elements=1, sharpen_by=None)
    rows = {row.kind: row for row in found.audit_rows}
    assert rows["node-rescale"].verdict == "holds"
    assert rows["node-rescale"].text == "holds on those found; there may be more"


def test_sharpness_names_what_it_cannot_express():
    run, shapes = CASES["a product of two weights"]
    objective = fg.Objective(made(run, **shapes), (X, Y))
    found = fg.measure(objective, "normalized-sharpness", options={
        "normalized-sharpness": {"surrogate": "objective"}
    })["normalized-sharpness"]  # fmt: skip
    assert found.details["not_expressible"] == ["u", "v"]
    assert "'u', 'v'" in found.message


def test_parts_that_no_sample_reaches_are_refused():
    with pytest.raises(SymmetryError, match="reach all of it"):
        fg.symmetries(routed(), X.abs())


def test_an_objective_gives_more_samples_where_few_do_not_reach_all():
    order = X[:, 0].argsort()
    objective = fg.Objective(routed(), (X[order], Y[order]))
    assert fg.symmetries(objective).dimension == routed().units


def test_networks_that_do_not_run_are_refused():
    with pytest.raises(SymmetryError, match="could not be run"):
        read(nn.Linear(3, 2), Example((torch.ones(2, 4),), {}, lambda result: result))
