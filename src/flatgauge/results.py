"""Results as plain data: a number with its status, uncertainty, cost and provenance.

Nothing here holds a tensor, so that a result can be stored, sent and drawn again
without the model that it came from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from html import escape
from pathlib import Path
from typing import Any

from flatgauge.errors import FlatgaugeError
from flatgauge.files import write_text
from flatgauge.tables import format_value, table
from flatgauge.vocabulary import Status as Status

SCHEMA = "flatgauge-report-1"
"""Raised where a field changes its meaning; a file without newer fields still opens."""

ROUNDING = {"float64": 1e-9, "float32": 1e-3, "tf32": 1e-2}
"""The relative difference that rounding alone makes between equal networks: other batches,
another order of sums, twins along a symmetry."""

# Contributions by layer are parts of the value if they add up to it within this share.
PARTS_ADD_UP = 1e-3

Plain = Mapping[str, Any]
"""What JSON holds: strings, numbers, lists and dictionaries."""


@dataclass(frozen=True)
class Cost:
    """What a number took: seconds, and Hessian products.

    `notes["routes"]` says, by loss, which route multiplied them last, and where others
    were tried: the seconds of one product with the first batch for each candidate, how
    far each was from the truth, and why some failed.
    """

    seconds: float = 0.0
    products: int = 0
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Provenance:
    """What is needed to compare a number with another one.

    `derivatives` is "checked" where autograd's were compared with differences of the loss,
    "undecided" where rounding or kinks hid the answer, else "as given".

    Where samples influence each other (`coupled`), `batch_sizes` says of what sizes the
    batches were, such as "3 × 16, 1 × 2": other batches are another objective.

    `data` is a fingerprint of the samples (`flatgauge.fingerprints`), "" in files of
    before it; `precision` is that of float32 products, "ieee" or "tf32".
    """

    flatgauge: str
    torch: str
    python: str
    device: str
    dtype: str
    model: str
    parameters: int
    fingerprint: str
    loss: str
    loss_value: float
    mode: str
    samples: int
    batches: int
    seed: int
    time: str
    derivatives: str = "as given"
    coupled: bool = False
    batch_sizes: str = ""
    data: str = ""
    precision: str = "ieee"

    @property
    def rounding(self) -> float:
        """The share of a number that rounding may change, when it is computed alike."""
        return ROUNDING["tf32" if self.precision == "tf32" else self.dtype]


@dataclass(frozen=True)
class Measurement:
    """One measured number. It has no `float()`: look at the status first.

    Attributes:
        measure: the measure's name.
        value: the number, or None where it does not apply or failed.
        status: how far to trust it.
        message: the status in words for this very number.
        uncertainty: an error bound or a standard error, in the value's units, of the
            computation and not of the data; None if the value is exact. Of a lower
            bound (details["bound"] is "lower") it is rounding alone.
        details: parts and by-products, such as contributions by layer.
        options: every option with the value that was used.
        loss: the name of the loss that the measure saw: the objective's own, or the
            surrogate that its options chose.
        cost: what it took.
        provenance: what it was measured on.
        data_uncertainty: the standard error over samples of the data, where it was asked
            for (`resamples=`); `uncertainty` is that of the computation alone.
    """

    measure: str
    value: float | None
    status: Status
    message: str
    uncertainty: float | None
    details: dict[str, Any]
    options: dict[str, Any]
    loss: str
    cost: Cost
    provenance: Provenance
    data_uncertainty: float | None = None

    def __post_init__(self) -> None:
        if self.value is not None and not math.isfinite(self.value):
            raise FlatgaugeError(
                f"'{self.measure}' came out as {self.value}, which is never a result: "
                "please report this."
            )

    @property
    def is_lower_bound(self) -> bool:
        """Whether the truth may be larger than the number, by what nobody knows."""
        return self.details.get("bound") == "lower"

    @property
    def two_sided(self) -> float | None:
        """The uncertainty to both sides, which a lower bound does not have."""
        return None if self.is_lower_bound else self.uncertainty

    @property
    def error_bar(self) -> float:
        """What the number can be off by, when it is compared with another of its kind.

        That is its uncertainty; for a lower bound, whose uncertainty is rounding alone,
        also how far apart the searches for it ended.
        """
        spread = self.details["bound_spread"] if self.is_lower_bound else 0.0
        return max(self.uncertainty or 0.0, spread)

    @property
    def caution(self) -> str:
        """What must be known before the number is read, though it can be trusted."""
        return self.details.get("caution", "")

    @property
    def size(self) -> float:
        """What rounding is a share of: the value, or the parts that cancel in it."""
        layers = self.details.get("layers") or {}
        parts = [one for one in layers.values() if isinstance(one, int | float)]
        value, whole = self.value or 0.0, sum(map(abs, parts))
        cancels = abs(sum(parts) - value) <= PARTS_ADD_UP * whole
        return max(abs(value), whole) if cancels else abs(value)

    @property
    def shown(self) -> str:
        """The number for people; a lower bound has no error bar on both sides."""
        bound = "≥ " if self.is_lower_bound else ""
        shown = bound + format_value(self.value, self.two_sided)
        if self.value is None or self.data_uncertainty is None:
            return shown
        return f"{shown} ± {self.data_uncertainty:.1g} (data)"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {**asdict(self), "status": self.status.name}

    @classmethod
    def from_dict(cls, plain: Plain) -> Measurement:
        """The inverse of `to_dict`; old files name a surrogate's loss in the details."""
        named = plain["details"].get("loss")
        return cls(
            **{
                "loss": named
                if isinstance(named, str)
                else plain["provenance"]["loss"],
                **plain,
                "status": Status[plain["status"]],
                "cost": Cost(**plain["cost"]),
                "provenance": Provenance(**plain["provenance"]),
            }
        )


@dataclass(frozen=True)
class Report:
    """Measurements by the string that asked for each, and what belongs with them.

    `extras` holds plain data for the page: spectra, landscapes, audits, comparisons, and
    `cautions`, sentences that must be read before the numbers.
    """

    measurements: dict[str, Measurement]
    provenance: Provenance
    extras: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Measurement:
        if key not in self.measurements:
            known = ", ".join(self.measurements)
            raise FlatgaugeError(f"'{key}' was not measured; this report has {known}.")
        return self.measurements[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.measurements)

    def __len__(self) -> int:
        return len(self.measurements)

    def with_extras(self, **extras: Any) -> Report:
        """The same report with more plain data for the page; this one stays as it is."""
        return replace(self, extras={**self.extras, **extras})

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each measurement, for a table or a data frame."""
        return [
            {
                "measure": key,
                "value": one.value,
                "uncertainty": one.uncertainty,
                "data_uncertainty": one.data_uncertainty,
                "status": one.status.name,
                "message": one.message,
                "seconds": one.cost.seconds,
                "products": one.cost.products,
            }
            for key, one in self.measurements.items()
        ]

    def __str__(self) -> str:
        head = (
            f"{self.provenance.model}, {self.provenance.parameters} parameters, "
            f"{self.provenance.samples} samples, {self.provenance.loss} "
            f"{self.provenance.loss_value:.6g}"
        )
        cells = [
            (key, one.shown, one.status.word) for key, one in self.measurements.items()
        ]
        notes = [
            f"{key}: {one.message if one.status is Status.FAILED else one.caution}"
            for key, one in self.measurements.items()
            if one.status is Status.FAILED or one.caution
        ]
        notes += [self.extras["budget"]["text"]] if "budget" in self.extras else []
        notes += self.cautions
        return "\n".join([head, table(self._head, cells), *notes])

    @property
    def _head(self) -> tuple[str, ...]:
        bars = any(one.two_sided is not None for one in self.measurements.values())
        return "measure", "value ± error of the solver" if bars else "value", "status"

    @property
    def cautions(self) -> list[str]:
        """What must be known before any of the numbers is read."""
        return list(self.extras.get("cautions", ()))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "schema": SCHEMA,
            "provenance": asdict(self.provenance),
            "measurements": {k: m.to_dict() for k, m in self.measurements.items()},
            "extras": self.extras,
        }

    @classmethod
    def from_dict(cls, plain: Plain) -> Report:
        """The inverse of `to_dict`."""
        if not isinstance(plain, Mapping) or plain.get("schema") != SCHEMA:
            raise FlatgaugeError(
                "this is no flatgauge report: give a file that was written by "
                "Report.to_json or by the command line's --json."
            )
        try:
            return cls(
                {k: Measurement.from_dict(m) for k, m in plain["measurements"].items()},
                Provenance(**plain["provenance"]),
                dict(plain["extras"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise FlatgaugeError(
                f"this flatgauge report is incomplete ({type(error).__name__}: {error}): "
                "write it again."
            ) from error

    def to_json(self, path: str | Path) -> None:
        """Write the report; a file of that name is replaced in one step."""
        write_text(path, json.dumps(self.to_dict(), indent=1, allow_nan=False))

    @classmethod
    def from_json(cls, path: str | Path) -> Report:
        """Read a report back."""
        try:
            plain = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FlatgaugeError(
                f"'{path}' could not be read as JSON: {error}"
            ) from error
        return cls.from_dict(plain)

    def to_html(self, path: str | Path) -> None:
        """Write the page: one file with figures and tables that needs nothing else."""
        from flatgauge.report.page import render

        write_text(path, render(self.to_dict()))

    def _repr_html_(self) -> str:
        from flatgauge.report.page import fragment

        try:
            return fragment(self.to_dict())
        except FlatgaugeError:
            return f"<pre>{escape(str(self))}</pre>"


def plain(value: Any) -> Any:
    """Numbers, strings, lists and dictionaries only; infinities become strings."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)
