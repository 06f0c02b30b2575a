"""One measured number with its status, uncertainty, cost and provenance.

Nothing here holds a tensor, so that a result can be stored, sent and drawn again
without the model that it came from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from flatgauge.errors import FlatgaugeError
from flatgauge.tables import format_value, rounded
from flatgauge.vocabulary import Status

ROUNDING = {
    "float64": 1e-9,
    "float32": 1e-3,
    "tf32": 1e-2,
    "float16": 1e-2,
    "bfloat16": 1e-1,
}
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
    before it; `precision` is that of float32 products, "ieee" or "tf32"; `processes`
    measured it together, with its parameters `sharded` over them or not.

    `computed_in` is the coarsest floating type that the network computes in, where that
    is coarser than its parameters' `dtype`, else "".
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
    processes: int = 1
    computed_in: str = ""
    sharded: bool = False

    @property
    def subject(self) -> str:
        """The network, its size and its loss."""
        return (
            f"{self.model} ({self.parameters:,} parameters, {self.loss} "
            f"{self.loss_value:.4g})"
        )

    def sentence(self, subject: str = "") -> str:
        """What a number was measured on and with, as a paper says it.

        Args:
            subject: what it is a number of, if not of one network.
        """
        data = f" (fingerprint {self.data})" if self.data else ""
        products = ", TF32 products" if self.precision == "tf32" else ""
        products += f", in parts {self.computed_in}" if self.computed_in else ""
        return (
            f"Flatness of {subject or self.subject} on {self.samples:,} samples{data}, "
            f"{self.mode} mode, {self.dtype}{products}, measured with flatgauge "
            f"{self.flatgauge} (torch {self.torch}, seed {self.seed}). ± is the error of "
            "the computation, not of the data."
        )

    @property
    def rounding(self) -> float:
        """The share of a number that rounding may change, when it is computed alike."""
        tf32 = self.precision == "tf32"
        types = ["tf32" if tf32 else self.dtype, self.computed_in or self.dtype]
        return max(ROUNDING[one] for one in types)


@dataclass(frozen=True)
class Measurement:
    """One measured number. It has no `float()`: look at the status first.

    Attributes:
        measure: the measure's name.
        value: the number, or None where it does not apply or failed.
        status: how far to trust it.
        message: the status in words for this very number.
        uncertainty: an error bound or a standard error, in the value's units, of the
            computation and not of the data; None if an exact value has none but its last
            digits'. Of a lower
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

    @property
    def quoted(self) -> str:
        """The number for a paper: to two digits of its error; why, where it is none."""
        if self.value is None:
            return self.status.word
        bound = "≥ " if self.is_lower_bound else ""
        doubt = "" if self.status.trusted else f" ({self.status.word})"
        return f"{bound}{rounded(self.value, self.two_sided)}{doubt}"

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
