"""What is found out once, and kept with what it is about.

    @once
    def gradient(work: Workbench, objective: Objective) -> Params: ...

    @once_per_network
    def is_affine(objective: Objective) -> bool: ...

A decorated function is computed at its first call with some arguments and looked up from
then on; an error is not kept. The key is the function with its arguments, defaults filled
in. What cannot be hashed, such as a point, is itself alone: an equal one is another. The
facts lie in the first argument, and go with it.

`once` keeps a fact for the very object: a workbench, or an objective, which is a network
with data, a point and a loss. `once_per_network` keeps it for the network at its point,
whatever the loss. Its function is given an objective from which the loss, and all that
follows from it, is missing: what depends on a loss takes it as an argument, and has it
in its key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

Facts = dict[Hashable, Any]


class Owner(Protocol):
    """Has a place for facts about itself."""

    facts: Facts


class NetworkOwner(Protocol):
    """Has a place for facts about its network, and itself without its loss."""

    network_facts: Facts

    def without_loss(self) -> Any:
        """Itself, but for what a loss decides."""
        ...


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
O = TypeVar("O", bound=Owner)  # noqa: E741
N = TypeVar("N", bound=NetworkOwner)


def once(function: Callable[Concatenate[O, P], R]) -> Callable[Concatenate[O, P], R]:
    """Found out once for each first argument, with the same other ones."""
    return _kept(function, lambda owner: owner.facts, lambda owner: owner)


def once_per_network(
    function: Callable[Concatenate[N, P], R],
) -> Callable[Concatenate[N, P], R]:
    """Found out once for a network, its data and its point, whatever the loss.

    The fact must hold for every part of the data, too: parts are told what was found on
    the whole, so that they are measured as it was.
    """
    return _kept(
        function, lambda owner: owner.network_facts, lambda owner: owner.without_loss()
    )


@dataclass(frozen=True, eq=False)
class _Same:
    """Equal to what holds the very same value, which is not freed meanwhile."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _kept(
    function: Callable[Concatenate[T, P], R],
    facts_of: Callable[[T], Facts],
    given: Callable[[T], T],
) -> Callable[Concatenate[T, P], R]:
    """The function of what is `given` of its first argument, looked up in its facts."""
    takes = signature(function)

    @wraps(function)
    def look_up(owner: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        bound = takes.bind(owner, *args, **kwargs)
        bound.apply_defaults()
        values = [*bound.args[1:], *bound.kwargs.values()]
        key = function, *(v if isinstance(v, Hashable) else _Same(v) for v in values)
        facts = facts_of(owner)
        if key not in facts:
            facts[key] = function(given(owner), *args, **kwargs)
        return facts[key]

    return look_up
