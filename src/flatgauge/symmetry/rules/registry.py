"""How an operator tells what it does to the scales of its inputs.

A rule is a function of a `Site` and the operator's own arguments, with a `Scale` in
place of every floating tensor and `Integers` in place of every other tensor. It returns
the `Scale` of the output, or one for each output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]

_RULES: dict[str, Rule] = {}
_CONSTANT: set[str] = set()


def scale_rule(*operators: str, constant: bool = False) -> Callable[[Rule], Rule]:
    """Register the scaling rule of one or several operators.

    An operator is named as in its schema, without the overload: `"aten::relu"`, or
    `"mylib::my_op"` for your own `torch.library` operator. A later rule replaces an
    earlier one.

    Args:
        operators: The names.
        constant: Whether the rule is wanted even where no input has a scale; without
            it, the result of such a call simply has scale 0.

    >>> @scale_rule("mylib::squared_relu")
    ... def squared_relu(site, x):
    ...     return x * 2.0
    """

    def register(rule: Rule) -> Rule:
        for operator in operators:
            _RULES[operator] = rule
            (_CONSTANT.add if constant else _CONSTANT.discard)(operator)
        return rule

    return register


def find_rule(operator: str, *, scaled: bool) -> Rule | None:
    """The rule of an operator, or None where it has none or needs none."""
    return _RULES.get(operator) if scaled or operator in _CONSTANT else None
