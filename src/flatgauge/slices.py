"""Slices of the loss as results: a line or a plane, or several in one picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flatgauge.exports import Tabular
from flatgauge.measurements import Provenance
from flatgauge.results import Report, plain
from flatgauge.shapes import Float


@dataclass(frozen=True, repr=False)
class Landscape(Tabular):
    """The loss on a line or a plane through the objective's point.

    Attributes:
        title: what was drawn, in words.
        kind: "random", "eigenvectors", "given" or "between checkpoints".
        normalize: "layer", "filter" or "none".
        labels: what each axis is.
        axes: the coordinates t along each axis; float64 on the host.
        losses: one loss for each point of the grid, NaN where it is not finite; the
            first index belongs to the first axis.
        eigenvalues: of the directions, where these are eigenvectors; else empty.
        path: the coordinates of checkpoints in the plane, in their order; else empty.
        names: of these checkpoints; of several models' planes, the model's own.
        explained: the share of the squared distances between these checkpoints and the
            last one that lies in the plane; None without a path.
        provenance: of the objective, of the last one of a path; its page needs it.
    """

    title: str
    kind: str
    normalize: str
    labels: tuple[str, ...]
    axes: tuple[Tensor, ...]
    losses: Float[Tensor, "*points"]
    eigenvalues: tuple[float, ...] = ()
    path: tuple[tuple[float, ...], ...] = ()
    names: tuple[str, ...] = ()
    explained: float | None = None
    provenance: Provenance | None = None

    def rows(self) -> list[dict[str, Any]]:
        """One row for each point of the grid."""
        grid = torch.cartesian_prod(*self.axes).reshape(-1, len(self.axes)).tolist()
        losses = self.losses.reshape(-1).tolist()
        return [
            {**{f"t{index + 1}": t for index, t in enumerate(place)}, "loss": loss}
            for place, loss in zip(grid, losses, strict=True)
        ]

    def sentence(self) -> str:
        """What was drawn, as a paper says it."""
        axes = ", ".join(self.labels)
        return f"{self.title}: the loss on {self.losses.numel()} points ({axes})."

    def paper_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Coordinates and losses."""
        cells = [tuple(f"{value:.4g}" for value in row.values()) for row in self.rows()]
        return (*self.labels, "loss"), cells

    def drawn_from(self) -> dict[str, Any]:
        """What its figure is drawn from."""
        return {"landscapes": [self.to_dict()]}

    def whole(self) -> dict[str, Any] | None:
        """What the page is drawn from, where a plane is a surface that can be turned."""
        return _page(self.provenance, self.drawn_from())

    def _repr_html_(self) -> str:
        return _drawn(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; losses that are not finite become None."""

        def finite(value: Any) -> Any:
            if isinstance(value, list):
                return [finite(item) for item in value]
            return value if math.isfinite(value) else None

        return {
            "title": self.title,
            "kind": self.kind,
            "normalize": self.normalize,
            "labels": list(self.labels),
            "axes": [axis.tolist() for axis in self.axes],
            "losses": finite(self.losses.tolist()),
            "eigenvalues": plain(self.eigenvalues),
            "path": plain(self.path),
            "names": list(self.names),
            "explained": self.explained,
        }


@dataclass(frozen=True, repr=False)
class Landscapes(Tabular):
    """Slices of several models, by name, for one picture."""

    slices: dict[str, Landscape]

    def __getitem__(self, name: str) -> Landscape:
        return self.slices[name]

    def rows(self) -> list[dict[str, Any]]:
        """One row for each model and point of its grid."""
        return [
            {"model": name, **row}
            for name, one in self.slices.items()
            for row in one.rows()
        ]

    def sentence(self) -> str:
        """What was drawn, as a paper says it."""
        first = next(iter(self.slices.values()))
        return f"{first.sentence()} Models: {', '.join(self.slices)}."

    def paper_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Models, coordinates and losses."""
        tables = {name: one.paper_table() for name, one in self.slices.items()}
        cells = [(name, *row) for name, (_, rows) in tables.items() for row in rows]
        return ("model", *next(iter(tables.values()))[0]), cells

    def to_list(self) -> list[dict[str, Any]]:
        """Plain data for a report's `landscapes`, each with its model's name."""
        return [
            one.to_dict() | {"title": name, "names": [name]}
            for name, one in self.slices.items()
        ]

    def drawn_from(self) -> dict[str, Any]:
        """What the figures are drawn from."""
        return {"landscapes": self.to_list()}

    def whole(self) -> dict[str, Any] | None:
        """What the page is drawn from."""
        first, *_ = names = list(self.slices)
        said = (
            f"The slices are of {', '.join(names)}; loss and network below are those of "
            f"{first}."
        )
        return _page(self[first].provenance, {**self.drawn_from(), "cautions": [said]})

    def _repr_html_(self) -> str:
        return _drawn(self)


def _page(
    provenance: Provenance | None, extras: dict[str, Any]
) -> dict[str, Any] | None:
    return None if provenance is None else Report({}, provenance, extras).to_dict()


def _drawn(result: Tabular) -> str:
    """The figures, for a notebook."""
    from flatgauge.report.drawing import svg
    from flatgauge.report.figures import figures

    drawn = figures({"extras": result.drawn_from()})
    return "".join(svg(figure, name, themed=False) for name, figure in drawn.items())
