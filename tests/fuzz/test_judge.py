"""What the fuzzer must not let pass: each wrong thing is put in on purpose."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial, wraps

import torch

import flatgauge as fg
from flatgauge.measures import registry
from fuzz.claims import judge_count
from fuzz.judge import REFUSED, RIGHT, UNTRUSTED, WRONG
from fuzz.one import check
from fuzz.problems import problem

MEASURES = {one.name: one for one in registry.list_measures()}
# The run-time type checks of the test run draw from it.
PYTHONS = "Python's random state"


def simple(index: int) -> bool:
    one = problem(0, index)
    plain = one.words.startswith("vector") and "dense" in one.words
    named = one.loss.given in ("cross-entropy", "mse") and not one.coupled
    usual = one.network.rescalings and one.dtype == torch.float64
    parts = type(one.network.model.parts[0]).__name__ if one.network.model.parts else ""
    return bool(
        plain
        and named
        and usual
        and parts == "Dense"
        and len(one.network.model.parts) == 1
    )


SIMPLE = next(index for index in range(140, 2000) if index % 50 and simple(index))


def failures(result) -> dict[str, str]:
    return {
        one.what: one.note
        for one in result.findings
        if one.failed and one.note != PYTHONS
    }


def spoil(monkeypatch, name: str, change):
    """Let a measure return something else than it found."""
    info = MEASURES[name]

    @wraps(info.function)
    def spoiled(work, **options):
        return change(info.function(work, **options))

    monkeypatch.setitem(registry._REGISTERED, name, replace(info, function=spoiled))


def test_a_plain_network_passes_with_every_number_judged():
    result = check(0, SIMPLE)
    assert not failures(result)
    verdicts = {one.what: one.verdict for one in result.findings}
    for what in (
        "value", "gradient", "hessian product", "hessian-trace", "rescalings",
        "hessian-spectral-norm", "matrix-normalized-sharpness", "normalized-sharpness",
        "fisher-rao-norm", "fisher-rao-norm[diagonal=True]", "spectral-norm-product",
        "riemannian-spectral-norm[metric=layer]", "twin: outputs",
        "riemannian-spectral-norm[metric=node]", "twin: normalized-sharpness",
    ):  # fmt: skip
        assert verdicts[what] == RIGHT, what


def test_what_is_a_little_wrong_is_caught(monkeypatch):
    def off(found):
        torch.rand(1)
        return replace(found, value=found.value * (1 + 1e-5))

    def bold(found):
        return replace(found, value=found.value + 2 * found.uncertainty + 1e-3)

    names = [
        "hessian-trace", "matrix-normalized-sharpness", "normalized-sharpness",
        "fisher-rao-norm", "spectral-norm-product",
    ]  # fmt: skip
    for name in names:
        spoil(monkeypatch, name, off)
    spoil(monkeypatch, "hessian-spectral-norm", bold)
    found = failures(check(0, SIMPLE))
    assert {*names, "hessian-spectral-norm"} <= set(found)
    assert "riemannian-spectral-norm[metric=node]" not in found
    assert found["touched"].startswith("torch's random state")


def test_what_is_not_trusted_or_refused_passes(monkeypatch):
    def refuse(found):
        raise fg.FlatgaugeError("not here")

    status = fg.Status.NOT_CONVERGED
    spoil(
        monkeypatch,
        "hessian-trace",
        lambda found: replace(found, value=7.0, status=status),
    )
    spoil(monkeypatch, "spectral-norm-product", refuse)
    result = check(0, SIMPLE)
    assert not failures(result)
    verdicts = {one.what: one.verdict for one in result.findings}
    assert verdicts["hessian-trace"] == UNTRUSTED
    assert verdicts["spectral-norm-product"] == REFUSED


def test_a_claim_that_does_not_hold_is_caught(monkeypatch):
    claims = replace(
        MEASURES["hessian-trace"],
        claims=lambda options, loss: {"layer-rescale", "node-rescale"},
    )
    monkeypatch.setitem(registry._REGISTERED, "hessian-trace", claims)
    assert set(failures(check(0, SIMPLE))) == {"twin: hessian-trace"}


def test_a_foreign_error_is_caught(monkeypatch):
    def foreign(found):
        raise ZeroDivisionError("one over nothing")

    spoil(monkeypatch, "hessian-trace", foreign)
    note = failures(check(0, SIMPLE))["foreign error"]
    assert "ZeroDivisionError: one over nothing" in note


def test_a_trusted_number_of_an_unsound_network_is_caught(monkeypatch):
    monkeypatch.setattr(fg, "Objective", partial(_as_given, fg.Objective))
    index = next(i for i in range(1, 300) if "x · x.detach()" in problem(0, i).words)
    assert failures(check(0, index))["unsound"].startswith("trusted: hessian-trace")


def _as_given(objective, *arguments, **options):
    """Where autograd is taken at its word."""
    known = inspect.signature(objective).parameters
    more = {"derivatives": "as given"} if "derivatives" in known else {}
    return objective(*arguments, **options, **more)


def test_a_wrong_count_of_rescalings_is_caught():
    one = problem(0, SIMPLE)
    group = fg.symmetries(one.network.model, one.batches[0][0])
    assert judge_count(group, one.network).verdict == RIGHT
    for step in (-1, 1):
        other = replace(one.network, rescalings=one.network.rescalings + step)
        assert judge_count(group, other).verdict == WRONG
