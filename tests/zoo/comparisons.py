"""Numbers of the default set beside what they should be."""

from __future__ import annotations

from typing import Any

import flatgauge as fg
from fuzz.judge import near, spread_of
from fuzz.truth import NORMALIZED, Answer, Truth
from zoo.layers import norm_of, plain_layers, sharpness_of
from zoo.reference import Reference


def compared(
    request: str,
    found: fg.Measurement,
    truth: Truth,
    reference: Reference,
    relative: float,
) -> list[Any]:
    """The verdict on a number, the number, and what it should have been."""
    if found.value is None or not found.status.trusted:
        return ["not compared", found.value, None]
    if found.measure in ("normalized-sharpness", "spectral-norm-product"):
        return _by_layer(request, found, truth, reference, relative)
    answer = _answer(found, truth, reference)
    if answer is None:
        return ["not compared", found.value, None]
    judged = near(request, found.value, answer, relative, spread_of(found))
    return [judged.verdict, found.value, answer.values[0]]


def _by_layer(
    request: str,
    found: fg.Measurement,
    truth: Truth,
    reference: Reference,
    relative: float,
) -> list[Any]:
    """The first plain layer whose part is wrong, else the last."""
    last: list[Any] = ["not compared", found.value, None]
    for name in plain_layers(reference):
        if name not in found.details["layers"]:
            continue
        if found.measure == "normalized-sharpness":
            got, answer = sharpness_of(found, name, truth, _loss_of(found))
        else:
            got, answer = norm_of(found, name, reference.params[name].detach())
        judged = near(f"{request} of {name}", got, answer, relative, spread_of(found))
        last = [judged.verdict, got, answer.values[0]]
        if judged.failed:
            return [*last, name]
    return last


def _loss_of(found: fg.Measurement) -> str:
    return NORMALIZED if found.loss == NORMALIZED else "own"


def _answer(found: fg.Measurement, truth: Truth, reference: Reference) -> Answer | None:
    if found.measure == "hessian-trace":
        return truth.trace()
    if found.measure == "hessian-spectral-norm":
        return truth.extremes("euclidean")
    if found.measure == "riemannian-spectral-norm":
        return truth.extremes(found.options["metric"])
    if found.measure == "matrix-normalized-sharpness":
        return truth.matrix_sharpness(_loss_of(found))
    if found.measure == "fisher-rao-norm" and reference.rows_are_few:
        return truth.fisher_rao(found.options["diagonal"])
    return None
