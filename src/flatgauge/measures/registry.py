"""How a measure is declared, found and described.

A measure is one decorated function in a file of its own in this package:

    @measure(
        name="hessian-trace",
        title="Trace of the Hessian",
        formula="Tr ∇²L(θ)",
        reference="...",
        invariant_to=lambda options, loss: {*RENAMINGS},
        flatter="smaller",
        cost="...",
    )
    def hessian_trace(work: Workbench, *, target: float = 0.02) -> Outcome: ...

Its keyword-only arguments are its options, and their annotations say what these may be:
see `flatgauge.measures.options`. What it claims to be invariant to is read by
the tests and by the audit, so a claim is always checked.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from flatgauge.errors import OptionError
from flatgauge.measures.options import checked, option_types
from flatgauge.results import Measurement, Status
from flatgauge.vocabulary import Kind

NORMALIZED_LOSS = "normalized-cross-entropy"
ENTRY_POINTS = "flatgauge.measures"


@dataclass(frozen=True)
class Outcome:
    """What a measure's function returns; the run adds options, cost and provenance.

    `loss` names the loss that the measure saw, where that is not the objective's own.
    """

    value: float | None
    status: Status
    message: str
    uncertainty: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    loss: str | None = None


Claims = Callable[[Mapping[str, Any], str], AbstractSet[str]]


def output_claims(options: Mapping[str, Any], loss: str) -> set[Kind]:
    """What measures that allow for the outputs claim of them.

    Scaling, under the normalized loss; shifting, where the output layer is centered.
    """
    claims = {Kind.OUTPUT_SCALE} if loss == NORMALIZED_LOSS else set()
    return claims | ({Kind.OUTPUT_SHIFT} if options.get("center_output") else set())


class Gradients(NamedTuple):
    """About what a measure takes, and what it takes until there is an estimate.

    `of_shared` of it is for what other measures of a run need, too, by the name `shared`.
    """

    whole: float
    first: float
    of_shared: float = 0.0
    shared: str = ""


# Of a workbench and all options.
Effort = Callable[[Any, Mapping[str, Any]], Gradients]


@dataclass(frozen=True)
class MeasureInfo:
    """A measure as users see it: `fg.list_measures()` returns one for each."""

    name: str
    title: str
    formula: str
    reference: str
    flatter: str
    cost: str
    options: dict[str, Any]
    logarithmic: bool
    function: Callable[..., Outcome] = field(repr=False)
    claims: Claims = field(repr=False)
    effort: Effort | None = field(default=None, repr=False)
    on_shards: bool = field(default=False, repr=False)

    def invariant_to(
        self, options: Mapping[str, Any] | None = None, loss: str = "cross-entropy"
    ) -> frozenset[str]:
        """The kinds of symmetry that must not move the value.

        Args:
            options: the options it is computed with; defaults for those left out.
            loss: the name of the loss that it sees; the normalized cross-entropy adds
                "output-scale" to some measures' claims.
        """
        claimed = self.claims(self.complete(options or {}), loss)
        unknown = claimed - set(Kind)
        if unknown:
            raise OptionError(
                f"'{self.name}' claims {sorted(unknown)}: the kinds are {', '.join(Kind)}."
            )
        return frozenset(claimed)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; the claims are those of the default options."""
        told = ("name", "title", "formula", "reference", "flatter", "cost", "options")
        return {
            **{field: getattr(self, field) for field in told},
            "logarithmic": self.logarithmic,
            "invariant_to": sorted(self.invariant_to()),
        }

    def complete(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The given options, each of its type and in its range, and the others' defaults."""
        unknown = [name for name in options if name not in self.options]
        if unknown:
            known = ", ".join(self.options) or "none"
            raise OptionError(
                f"'{self.name}' has no option '{unknown[0]}'; its options are: {known}."
            )
        kinds = option_types(self.function)
        given = {
            name: checked(name, value, kinds[name]) for name, value in options.items()
        }
        return {**self.options, **given}


_REGISTERED: dict[str, MeasureInfo] = {}


def measure(
    *,
    name: str,
    title: str,
    formula: str,
    reference: str,
    invariant_to: Claims,
    flatter: str,
    cost: str,
    logarithmic: bool = False,
    effort: Effort | None = None,
    on_shards: bool = False,
) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Register a function as a measure; its keyword-only arguments are the options.

    `logarithmic` says that the value is a logarithm, so that the ratio of two is the
    exponential of their difference. `effort` says about how many gradients it takes.
    `on_shards` says that it takes sharded parameters as they are.
    """

    def register(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
        options = {
            parameter.name: parameter.default
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        known = _REGISTERED.get(name)
        if known is not None and known.function.__module__ != function.__module__:
            raise OptionError(
                f"the measure '{name}' is defined in both {known.function.__module__} and "
                f"{function.__module__}: rename one."
            )
        _REGISTERED[name] = MeasureInfo(
            name,
            title,
            formula,
            reference,
            flatter,
            cost,
            options,
            logarithmic,
            function,
            invariant_to,
            effort,
            on_shards,
        )
        return function

    return register


@cache
def _load_all() -> None:
    """Import every file of this package, and what other packages offer."""
    package = importlib.import_module("flatgauge.measures")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"flatgauge.measures.{module.name}")
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()


def list_measures() -> list[MeasureInfo]:
    """Every measure, by name.

    >>> [one.name for one in list_measures()][:2]
    ['epsilon-sharpness', 'fisher-rao-norm']
    """
    _load_all()
    return [_REGISTERED[name] for name in sorted(_REGISTERED)]


def find_measure(name: str) -> MeasureInfo:
    """The measure of that name, or an error that lists the known ones."""
    _load_all()
    if name not in _REGISTERED:
        known = ", ".join(sorted(_REGISTERED))
        raise OptionError(f"the measure '{name}' is not known; there are: {known}.")
    return _REGISTERED[name]


def catalogue(found: Mapping[str, Measurement]) -> dict[str, Any]:
    """What a page says about each measure: title, formula, reference and claims."""
    entries = {}
    for request, one in found.items():
        info = find_measure(one.measure)
        entries[request] = {
            "title": info.title,
            "formula": info.formula,
            "reference": info.reference,
            "flatter": info.flatter,
            "logarithmic": info.logarithmic,
            "invariant_to": sorted(claims_of(one)),
        }
    return entries


def claims_of(found: Measurement) -> frozenset[str]:
    """What this very number claims to be invariant to."""
    return find_measure(found.measure).invariant_to(found.options, found.loss)
