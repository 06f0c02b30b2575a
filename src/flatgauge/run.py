"""The one path from a request to a report."""

from __future__ import annotations

import ast
import hashlib
import math
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import torch

from flatgauge.errors import (
    FlatgaugeError,
    NotConvergedError,
    OptionError,
    OutOfMemoryError,
)
from flatgauge.measures.registry import MeasureInfo, Outcome, find_measure
from flatgauge.measures.workbench import NotApplicable, Workbench
from flatgauge.objective import Objective
from flatgauge.results import Cost, Measurement, Provenance, Report, Status, plain
from flatgauge.vectors import size
from flatgauge.version import __version__

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
REPORT_IT = "if it is not your model that raises this, please report it"
REQUEST = re.compile(r"(?P<name>[^\[\]]+)(?:\[(?P<options>[^\[\]]*)\])?")

Progress = Callable[[str, int, int], None]


def measure(
    objective: Objective,
    *requests: str | Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    strict: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Measure an objective.

    Args:
        objective: model, data, loss and the point.
        requests: names of measures, or "name[option=value,...]", one by one or in
            lists; the default set if none is given. Each result is keyed by the string
            that asked for it.
        options: options by measure name.
        seed: for every random draw.
        strict: raise where a number did not converge, does not apply or failed.
        progress: called with (request, index, count) before each measure.

    Returns:
        A `Report`. An error inside one measure makes it FAILED, with the error in its
        message, and leaves the others as they are.

    Raises:
        OptionError: for unknown measures and options, and for values of another type or
            out of their range, before anything is computed.
        NotConvergedError: under `strict`.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> report = measure(Objective(model, data, loss="mse"), "hessian-trace")
    >>> round(report["hessian-trace"].value, 9)
    10.0
    """
    plans = {one: _plan(one, options or {}) for one in asked_for(requests)}
    _check_names(options or {}, plans)
    work = Workbench(objective, seed)
    provenance = describe(objective, seed)
    found: dict[str, Measurement] = {}
    for index, (request, (info, chosen)) in enumerate(plans.items()):
        if progress is not None:
            progress(request, index, len(plans))
        found[request] = _measure_one(work, info, chosen, provenance)
        if strict and not found[request].status.trusted:
            raise NotConvergedError(f"{request}: {found[request].message}")
    return Report(found, provenance, {"measures": catalogue(found)})


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
            "invariant_to": sorted(claims_of(one)),
        }
    return entries


def claims_of(found: Measurement) -> frozenset[str]:
    """What this very number claims to be invariant to."""
    seen = str(found.details.get("loss", found.provenance.loss))
    return find_measure(found.measure).invariant_to(found.options, seen)


def _measure_one(
    work: Workbench, info: MeasureInfo, options: dict[str, Any], provenance: Provenance
) -> Measurement:
    started, before = time.perf_counter(), work.counts()
    outcome = _outcome(work, info, options)
    cost = Cost(
        time.perf_counter() - started,
        work.products - sum(before),
        plain(work.routes_since(before)),
    )
    return Measurement(
        measure=info.name,
        value=outcome.value,
        status=outcome.status,
        message=outcome.message,
        uncertainty=outcome.uncertainty,
        details=plain(outcome.details),
        options=plain(options),
        cost=cost,
        provenance=provenance,
    )


def _outcome(work: Workbench, info: MeasureInfo, options: dict[str, Any]) -> Outcome:
    """What the measure says; what breaks inside it is its own affair."""
    try:
        found = info.function(work, **options)
    except (OptionError, OutOfMemoryError) as error:
        return Outcome(None, Status.FAILED, str(error))
    except (NotApplicable, FlatgaugeError) as reason:
        return Outcome(None, Status.NOT_APPLICABLE, str(reason))
    except Exception as error:
        return Outcome(None, Status.FAILED, _in_words(error))
    if found.value is not None and not math.isfinite(found.value):
        message = f"It came out as {found.value}, which is no result: {REPORT_IT}."
        return Outcome(None, Status.FAILED, message, details=found.details)
    return found


def _in_words(error: Exception) -> str:
    """The first line of an error from elsewhere, and what to do about it."""
    first = next(iter(str(error).strip().splitlines()), "")
    said = f"{type(error).__name__}: {first}".rstrip(": ")
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return f"{said} - use smaller batches, or fewer parameters with params=."
    return f"{said} - {REPORT_IT}."


def _plan(
    request: str, options: Mapping[str, Mapping[str, Any]]
) -> tuple[MeasureInfo, dict[str, Any]]:
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


def _check_names(
    options: Mapping[str, Mapping[str, Any]],
    plans: Mapping[str, tuple[MeasureInfo, dict[str, Any]]],
) -> None:
    asked = {info.name for info, _ in plans.values()}
    for name in options:
        find_measure(name)
        if name not in asked:
            raise OptionError(
                f"options= names '{name}', which was not asked for: add it to the "
                "measures, or leave its options out."
            )


def describe(objective: Objective, seed: int) -> Provenance:
    """What a number was measured on."""
    device = objective.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return Provenance(
        flatgauge=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        device=name,
        dtype=str(objective.dtype).removeprefix("torch."),
        model=type(objective.network.model).__name__,
        parameters=size(objective.parameters),
        fingerprint=objective.once("fingerprint", lambda: _fingerprint(objective)),
        loss=objective.loss.name,
        loss_value=objective.value(),
        mode=objective.network.mode,
        samples=objective.sample_count,
        batches=objective.batch_count,
        seed=seed,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        derivatives=objective.derivatives,
        coupled=objective.coupled,
        batch_sizes=_sizes(objective.batch_sizes) if objective.coupled else "",
    )


def _fingerprint(objective: Objective) -> str:
    """The beginning of a SHA-256 of names and parameters."""
    digest = hashlib.sha256()
    for key, tensor in objective.parameters.items():
        digest.update(key.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]


def _sizes(sizes: tuple[int, ...]) -> str:
    """The sizes of batches in their order, such as "3 × 16, 1 × 2"."""
    runs = [(len(list(run)), size) for size, run in groupby(sizes)]
    return ", ".join(f"{count} × {size}" for count, size in runs)
