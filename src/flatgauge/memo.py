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

Facts lie in the order of their last use, so that those used longest ago can be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar

Facts = dict[Hashable, Any]
Owner = TypeVar("Owner")
P = ParamSpec("P")
R = TypeVar("R")


def once(
    function: Callable[Concatenate[Owner, P], R],
) -> Callable[Concatenate[Owner, P], R]:
    """Found out once for each first argument, with the same other ones."""
    return _kept(function, lambda owner: owner.facts, lambda owner: owner)


def once_per_network(
    function: Callable[Concatenate[Owner, P], R],
) -> Callable[Concatenate[Owner, P], R]:
    """Found out once for a network, its data and its point, whatever the loss.

    The fact must hold for every part of the data, too: parts are told what was found on
    the whole, so that they are measured as it was.
    """
    return _kept(
        function, lambda one: one.network_facts, lambda one: one.without_loss()
    )


def _kept(
    function: Callable[Concatenate[Owner, P], R],
    facts_of: Callable[[Any], Facts],
    given: Callable[[Any], Any],
) -> Callable[Concatenate[Owner, P], R]:
    """The function of what is `given` of its first argument, looked up in its facts."""
    takes = signature(function)

    @wraps(function)
    def look_up(owner: Owner, /, *args: P.args, **kwargs: P.kwargs) -> R:
        bound = takes.bind(owner, *args, **kwargs)
        bound.apply_defaults()
        values = [*bound.args[1:], *bound.kwargs.values()]
        key = function, *map(_hashable, values)
        facts = facts_of(owner)
        if key in facts:
            # The last is the one that was used last.
            facts[key] = facts.pop(key)
        else:
            # With the arguments: while they are there, their ids are no others'.
            facts[key] = function(given(owner), *args, **kwargs), values
        return facts[key][0]

    return look_up


def _hashable(value: Any) -> Hashable:
    """The value, or what tells it from others while it is there."""
    try:
        hash(value)
    except TypeError:
        return id, id(value)
    return value
