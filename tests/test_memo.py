"""Facts are found once, and are dropped where they need not hold any more."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

from flatgauge.losses import CrossEntropy
from flatgauge.memo import Facts, once, once_per_network
from flatgauge.objective import OF_THE_LOSS, Objective
from flatgauge.run import measure


@dataclass
class Desk:
    """Something that has facts, and a log of what was computed."""

    facts: Facts = field(default_factory=dict)
    log: list[object] = field(default_factory=list)

    @once
    def doubled(self, number: int, *, times: int = 2) -> int | None:
        self.log.append((number, times))
        if number < 0:
            raise ValueError("negative")
        return number * times if number else None

    @once
    def other(self, number: int, *, times: int = 2) -> int:
        return -1


@once_per_network
def of_the_network(objective: Objective, word: str = "") -> object:
    return object()


@once
def of_the_objective(objective: Objective, word: object = "") -> object:
    return object()


@once_per_network
def with_a_loss(objective: Objective, loss: CrossEntropy) -> object:
    return object()


@once_per_network
def two_deep(objective: Objective) -> object:
    return of_the_network(objective)


@pytest.fixture
def objective() -> Objective:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    data = torch.randn(12, 4), torch.randint(3, (12,))
    return Objective(model, data, batch_size=4)


def test_a_fact_is_computed_once_for_its_arguments():
    desk = Desk()
    assert [desk.doubled(3), desk.doubled(3, times=2), desk.doubled(number=3)] == [
        6
    ] * 3
    assert desk.log == [(3, 2)]
    assert desk.doubled(3, times=3) == 9
    assert desk.doubled(0) is None
    assert desk.doubled(0) is None
    assert desk.log == [(3, 2), (3, 3), (0, 2)]


def test_functions_and_owners_are_told_apart():
    desk, another = Desk(), Desk()
    assert (desk.doubled(3), desk.other(3)) == (6, -1)
    assert another.facts == {}
    another.doubled(3)
    assert another.log == [(3, 2)]


def test_an_error_is_not_kept():
    desk = Desk()
    for _ in range(2):
        with pytest.raises(ValueError, match="negative"):
            desk.doubled(-1)
    assert desk.log == [(-1, 2)] * 2


def test_a_fact_keeps_its_name_and_its_docstring():
    assert once(test_an_error_is_not_kept).__name__ == "test_an_error_is_not_kept"


def test_what_cannot_be_hashed_is_known_by_its_identity(objective):
    point, equal = {"a": 1}, {"a": 1}
    assert of_the_objective(objective, point) is of_the_objective(objective, point)
    assert of_the_objective(objective, point) is not of_the_objective(objective, equal)


def test_arguments_are_a_part_of_the_key(objective):
    for fact in (of_the_network, of_the_objective):
        assert fact(objective, "a") is fact(objective, word="a")
        assert fact(objective) is fact(objective, "")
        assert fact(objective, "a") is not fact(objective, "b")


def test_another_loss_shares_the_facts_of_the_network_both_ways(objective):
    other = objective.with_loss("normalized-cross-entropy")
    assert of_the_network(other) is of_the_network(objective)
    assert two_deep(objective) is of_the_network(other)


def test_a_fact_of_the_network_may_ask_for_others(objective):
    assert two_deep(objective) is of_the_network(objective)
    double = objective.in_double()
    assert two_deep(double) is of_the_network(double)


def test_another_loss_has_its_own_facts(objective):
    other = objective.with_loss("normalized-cross-entropy")
    assert of_the_objective(other) is not of_the_objective(objective)


def test_a_loss_is_a_part_of_the_key(objective):
    other = objective.with_loss("normalized-cross-entropy")
    again = objective.with_loss("cross-entropy")
    assert with_a_loss(objective, objective.loss) is with_a_loss(other, again.loss)
    assert with_a_loss(objective, objective.loss) is not with_a_loss(other, other.loss)


def test_a_network_in_double_is_its_own_double(objective):
    double = objective.in_double()
    moved = double.at({n: 2 * t for n, t in double.parameters.items()})
    assert double.in_double().network is double.network
    # Its network is where it was before.
    again = moved.in_double()
    assert again.network is not moved.network
    for name, tensor in moved.parameters.items():
        assert torch.equal(again.network.parameters[name], tensor)


@pytest.mark.parametrize(
    "derive",
    [
        lambda one: one.at({n: 2 * t for n, t in one.parameters.items()}),
        lambda one: one.at(one.parameters),
        lambda one: one.with_model(one.model()),
        lambda one: one.in_double(),
    ],
    ids=["point", "same point", "model", "dtype"],
)
def test_another_point_model_or_dtype_knows_nothing(objective, derive):
    before = of_the_network(objective), of_the_objective(objective)
    other = derive(objective)
    assert not other.facts
    assert not other.network_facts
    assert of_the_network(other) is not before[0]
    assert of_the_objective(other) is not before[1]
    # Nor does it tell.
    found = of_the_network(other, "new")
    assert of_the_network(objective, "new") is not found


def test_a_part_starts_with_what_is_known_and_keeps_what_it_finds(objective):
    known, own = of_the_network(objective), of_the_objective(objective)
    part = objective.part({0: [0, 1], 2: None})
    assert of_the_network(part) is known
    assert of_the_objective(part) is not own
    assert of_the_network(part, "new") is not of_the_network(objective, "new")


def test_other_batches_of_the_same_rows_share_the_facts_of_the_network(objective):
    with objective.isolated():
        batches = list(objective.batches())
    other = objective.in_batches(batches)
    assert of_the_network(other) is of_the_network(objective)
    assert of_the_objective(other) is not of_the_objective(objective)


@pytest.mark.parametrize("name", OF_THE_LOSS)
def test_a_fact_of_the_network_cannot_read_what_the_loss_decides(objective, name):
    @once_per_network
    def sly(objective: Objective) -> object:
        return getattr(objective, name)

    with pytest.raises(AttributeError, match=name):
        sly(objective)


@pytest.mark.parametrize(
    "read",
    [
        Objective.value,
        Objective.gradient,
        lambda one: one.batch_total(one.parameters, one.first_batch()),
        lambda one: one.part({0: None}),
        of_the_objective,
    ],
)
def test_nor_what_is_computed_from_it(objective, read):
    with pytest.raises(AttributeError):
        once_per_network(read)(objective)


def test_all_that_two_losses_have_of_their_own_is_missing(objective):
    def rows(outputs, targets):
        return nn.functional.cross_entropy(outputs.sum(0)[None], targets[:1])

    other = objective.with_loss(rows)
    same = {n for n, v in vars(objective).items() if vars(other)[n] is v}
    kept = vars(objective).keys() - same - {"derivatives", "_others"}
    assert kept <= set(OF_THE_LOSS)


def test_it_can_read_the_network_and_the_data(objective):
    @once_per_network
    def shapes(objective: Objective) -> list[tuple[int, ...]]:
        read: list[tuple[int, ...]] = []
        objective.sum(
            lambda b: read.append(objective.evaluate(objective.leaves(), b)[0].shape)
        )
        return read

    assert shapes(objective) == [(4, 3)] * 3


@dataclass(frozen=True)
class Listed:
    """Seems hashable, and is not."""

    names: list[str]


def test_arguments_that_only_seem_hashable_count_by_identity(objective):
    one, other = Listed(["a"]), Listed(["a"])
    assert of_the_objective(objective, one) is of_the_objective(objective, one)
    assert of_the_objective(objective, one) is not of_the_objective(objective, other)


def test_a_measured_objective_can_be_pickled(objective):
    before = measure(objective, "hessian-trace")["hessian-trace"].value
    of_the_objective(objective, lambda: None)
    again = pickle.loads(pickle.dumps(objective))
    assert measure(again, "hessian-trace")["hessian-trace"].value == before
