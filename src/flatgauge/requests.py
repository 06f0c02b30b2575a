"""What was asked for: the strings, and the measures and options that they name."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from flatgauge.errors import OptionError
from flatgauge.measures.registry import MeasureInfo, find_measure

DEFAULT = (
    "hessian-trace",
    "hessian-spectral-norm",
    "matrix-normalized-sharpness",
    "normalized-sharpness",
    "fisher-rao-norm",
    "fisher-rao-norm[diagonal=True]",
    "riemannian-spectral-norm[metric=layer]",
    "riemannian-spectral-norm[metric=node]",
    "spectral-norm-product",
)
REQUEST = re.compile(r"(?P<name>[^\[\]]+)(?:\[(?P<options>[^\[\]]*)\])?")

PlannedMeasure = tuple[MeasureInfo, dict[str, Any]]


def asked_for(requests: Sequence[str | Sequence[str]]) -> list[str]:
    """The requests one by one, each once; the default set if there is none.

    >>> asked_for(("hessian-trace", ["fisher-rao-norm", "hessian-trace"]))
    ['hessian-trace', 'fisher-rao-norm']
    """
    found: list[str] = []
    for one in requests or DEFAULT:
        for request in one if isinstance(one, list | tuple) else [one]:
            if not isinstance(request, str):
                raise OptionError(
                    f"a request is {type(request).__name__}: give names of measures, "
                    "such as 'hessian-trace', or a list of them."
                )
            found.append(request)
    return list(dict.fromkeys(found))


def planned(request: str, options: Mapping[str, Mapping[str, Any]]) -> PlannedMeasure:
    """The measure that a request names, and all of its options."""
    match = REQUEST.fullmatch(request)
    if match is None:
        raise OptionError(
            f"'{request}' is no request: write a name, or name[option=value,...]."
        )
    info = find_measure(match["name"])
    own = dict(item.split("=", 1) for item in _items(match["options"], request))
    written = {key.strip(): parse_value(value) for key, value in own.items()}
    return info, info.complete({**options.get(info.name, {}), **written})


def _items(text: str | None, request: str) -> list[str]:
    items = [item for item in (text or "").split(",") if item.strip()]
    if any("=" not in item for item in items):
        raise OptionError(
            f"'{request}' has an option without a value: write key=value."
        )
    return items


def parse_value(text: str) -> Any:
    """A Python literal, or the text itself.

    >>> parse_value("1e-6"), parse_value("True"), parse_value("node")
    (1e-06, True, 'node')
    """
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()


def check_names(
    options: Mapping[str, Mapping[str, Any]],
    plans: Mapping[str, PlannedMeasure],
) -> None:
    """Refuse options of measures that are not known, or were not asked for."""
    asked = {info.name for info, _ in plans.values()}
    for name in options:
        find_measure(name)
        if name not in asked:
            raise OptionError(
                f"options= names '{name}', which was not asked for: add it to the "
                "measures, or leave its options out."
            )
