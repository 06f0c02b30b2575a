"""Reports: measurements as plain data, without the model that they came from."""

from __future__ import annotations

import json
import math
from collections.abc import ItemsView, Iterator, KeysView, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from html import escape
from pathlib import Path
from typing import Any

from flatgauge.errors import FlatgaugeError
from flatgauge.exports import Tabular
from flatgauge.measurements import Cost as Cost
from flatgauge.measurements import Measurement as Measurement
from flatgauge.measurements import Plain as Plain
from flatgauge.measurements import Provenance as Provenance
from flatgauge.tables import table
from flatgauge.vocabulary import Status as Status

SCHEMA = "flatgauge-report-1"
"""Raised where a field changes its meaning; a file without newer fields still opens."""


@dataclass(frozen=True, repr=False)
class Report(Tabular):
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

    def __contains__(self, key: object) -> bool:
        return key in self.measurements

    def keys(self) -> KeysView[str]:
        """The strings that asked; with them `dict(report)` has the measurements."""
        return self.measurements.keys()

    def items(self) -> ItemsView[str, Measurement]:
        """The measurements with the strings that asked for them."""
        return self.measurements.items()

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

    def sentence(self) -> str:
        """What was measured, on what and with what, as a paper says it."""
        return f"{self.provenance.sentence()} {measured_with(self)}"

    def paper_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Measures and values; the status where it is not to be trusted as it stands."""
        cells = [(key, one.quoted) for key, one in self.measurements.items()]
        return ("Measure", "Value"), cells

    def whole(self) -> dict[str, Any]:
        """What the page is drawn from."""
        return self.to_dict()

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

    def _repr_html_(self) -> str:
        from flatgauge.report.page import fragment

        try:
            return fragment(self.to_dict())
        except FlatgaugeError:
            return f"<pre>{escape(str(self))}</pre>"


def measured_with(report: Report) -> str:
    """The measures with all of their options, and the loss where it is a surrogate."""
    said = []
    for key, one in report.measurements.items():
        options = [f"{name}={value}" for name, value in one.options.items()]
        if one.loss != report.provenance.loss:
            options.append(f"on {one.loss}")
        said.append(f"{key} ({', '.join(options)})" if options else key)
    return f"Measures: {'; '.join(said)}." if said else ""


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
