"""The rows of each part, the most important first, within the minutes of a call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.job import Job
from benchmarks.networks import Network
from benchmarks.results import Results
from benchmarks.scale import ours, theirs
from benchmarks.scale.case import Case, Found, Note, Row, measure_row
from benchmarks.scale.networks import SCALED, TINY, built
from benchmarks.scale.trained import NAME, trained
from benchmarks.timing import free

PREFIX = "scale:"
MEMORY, TRAINED, TINY_PART = "scale:memory", "scale:trained", "scale:tiny"
PARTS = (*(PREFIX + name for name in SCALED), TRAINED, MEMORY, TINY_PART)
LIMITED = ", limited"
# What PyHessian takes at its peak, which is what we may take there.
LIMITS = {"resnet50": "12.6GiB", "vit": "16.2GiB", "gpt2": "20.8GiB"}
TINY_LIMIT = "1GiB"

SETTLED = Row("product", ours.product, 15)
ROWS = (
    Row("gradient", ours.gradient, 10),
    SETTLED,
    Row("eigenvalue", ours.eigenvalue, 40),
    Row("trace", ours.trace, 70),
    Row("default set", ours.default_set, 180),
    Row("sharpness", ours.sharpness, 50),
    Row("sharpness, ggn", partial(ours.sharpness, option="curvature=ggn"), 50),
    Row("PyHessian eigenvalue", theirs.eigenvalue, 250),
    Row("PyHessian trace", theirs.trace, 150),
    Row("plain probes", ours.plain_probes, 70),
    Row("long run", ours.long_run, 110),
    Row("eigenvalue", partial(ours.eigenvalue, precision="ieee"), 150, "ieee"),
)
ROW_NAMES = tuple(dict.fromkeys(row.name for row in ROWS))
# Where one call does not hold all rows, these come first.
FIRST = {"llama": ("gradient", "product", "default set", "sharpness, ggn")}


@dataclass(frozen=True)
class Call:
    """One call: where the rows go, which are wanted, and the time there is for them."""

    results: Results
    device: str
    seconds: float
    started: float
    rows: tuple[str, ...] = ()
    missing: bool = False
    data: Path | None = None

    @property
    def precision(self) -> str:
        return "tf32" if self.device == "cuda" else "ieee"

    def wanted(self, part: str, row: Row, network: str) -> bool:
        """Whether a row was asked for, or is missing where those alone are."""
        if row.precision == self.precision:  # it is another row already
            return False
        if self.rows and row.name.removesuffix(LIMITED) not in self.rows:
            return False
        key = network, row.precision or self.precision, row.name
        return not self.missing or not any(
            (one["network"], one["precision"], one["contestant"]) == key
            for one in self.results.rows(part)
            if not one.get("unfinished") and "error" not in one
        )

    def fits(self, part: str, row: Row, network: str) -> bool:
        """Whether the row ends within the call, as far as the products tell."""
        known = [
            one["seconds"]
            for one in self.results.rows(part)
            if one["network"] == network
            and one["contestant"].removesuffix(LIMITED) == SETTLED.name
            and "seconds" in one
        ]
        left = self.seconds - (time.perf_counter() - self.started)
        return left > row.products * max(known, default=0.0)


def scale_jobs(part: str, call: Call) -> Iterator[Job]:
    """The rows of a part, one by one: a row is chosen when those before it are known."""
    name = part.removeprefix(PREFIX)
    if part == TRAINED:
        return _on_trained(call)
    if part == MEMORY:
        return _limited(part, {key: SCALED[key] for key in LIMITS}, LIMITS, call)
    if part == TINY_PART:
        return _on_tiny(call)
    first = FIRST.get(name, ())
    rows = sorted(ROWS, key=lambda row: row.name not in first)
    return _rows(part, SCALED[name], rows, call)


def _rows(part: str, network: Network, rows: list[Row], call: Call) -> Iterator[Job]:
    """Rows on one network, which is built when the first of them is."""
    wanted = [row for row in rows if call.wanted(part, row, network.name)]
    if wanted:
        yield from _on_case(part, _case(network, call), wanted, call)


def _on_case(part: str, case: Case, rows: list[Row], call: Call) -> Iterator[Job]:
    def note(found: Found) -> None:
        call.results.add(part, found)

    for row in rows:
        if call.fits(part, row, case.name):
            yield _job(part, case, row, note)
        else:
            print(f"{part}, {case.name}, {row.name}: left for another call", flush=True)


def _job(part: str, case: Case, row: Row, note: Note) -> Job:
    run = partial(measure_row, row, case, note)
    return Job(part, case.name, row.precision or case.precision, run, row.name)


def _case(network: Network, call: Call) -> Case:
    model = built(network, call.device)
    batches = network.batches(call.device)
    return Case(network.name, model, batches, call.device, call.precision)


def _on_trained(call: Call) -> Iterator[Job]:
    """All rows in one call: the next one would train another network."""
    model, batches, found = trained(call.data, call.device)
    call.results.clear(TRAINED)
    free(call.device)
    case = Case(NAME, model, batches, call.device, call.precision)
    training = Row("training", lambda case, note: found, 0)
    rows = [row for row in ROWS if call.wanted(TRAINED, row, NAME)]
    yield from _on_case(TRAINED, case, [training, *rows], call)


def _on_tiny(call: Call) -> Iterator[Job]:
    for network in TINY.values():
        yield from _rows(TINY_PART, network, list(ROWS), call)
    yield from _limited(TINY_PART, TINY, dict.fromkeys(TINY, TINY_LIMIT), call)


def _limited(
    part: str, networks: dict[str, Network], limits: dict[str, str], call: Call
) -> Iterator[Job]:
    """Products and eigenvalues with and without the limit, then default sets within it.

    A default set without it is among the rows of the network's own part.
    """
    for name, network in networks.items():
        unlimited = [SETTLED, ROWS[2]] if part == MEMORY else []
        within = _within(limits[name])
        yield from _rows(part, network, [*unlimited, *within[:2]], call)
    for name, network in networks.items():
        yield from _rows(part, network, _within(limits[name])[2:], call)


def _within(limit: str) -> list[Row]:
    runs = {
        "product": (ours.product, 15),
        "eigenvalue": (ours.eigenvalue, 40),
        "default set": (ours.default_set, 180),
    }
    return [
        Row(f"{name}{LIMITED}", partial(_run_within, run, limit), products)
        for name, (run, products) in runs.items()
    ]


def _run_within(run, limit: str, case: Case, note: Note) -> Found:
    return {"limit": limit, **run(case, note, memory=limit)}
