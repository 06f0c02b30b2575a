"""The public calls about the objective, its curvature and its spectrum."""

from __future__ import annotations

import torch
from torch import Tensor

import flatgauge as fg
from contract.claims import (
    STANDARD_ERRORS,
    Call,
    Claim,
    Claims,
    flat,
    named,
    probe,
    same_refusal,
)
from contract.subjects import Subject, rows_of

METHODS = ("auto", "exact", "probes", "basis", "hutchinson", "finite-difference")


def objective(subject: Subject) -> Claims:
    one, truth = subject.objective, subject.truth
    yield Claim("value", one.value(), truth.value)
    yield Claim("gradient", flat(one.gradient(), subject), truth.gradient)
    change = 0.01 * probe(subject)
    moved = one.at(named(truth.point + change, one, subject))
    yield Claim("value elsewhere", moved.value(), truth.loss_at(change))
    yield Claim("value here again", one.value(), truth.value)
    scaled, right = (
        o.with_loss("normalized-cross-entropy") for o in (one, subject.reference)
    )
    yield Claim("normalized loss", scaled.value(), right.value())
    own = one.model().double().cpu()
    yield Claim("outputs of model()", rows_of(own(truth.x)), truth.outputs)


def products(kind: type, matrix: str, *options: str) -> Call:
    def call(subject: Subject) -> Claims:
        truth = getattr(subject.truth, matrix)
        size = float(torch.linalg.matrix_norm(truth, 2))
        for option in options:
            operator = kind(subject.objective, option)
            # Several of them: on a GPU the later ones are replays.
            for seed in range(3):
                vectors = [probe(subject, seed + shift) for shift in range(1 + seed)]
                images = operator @ [
                    named(one, subject.objective, subject) for one in vectors
                ]
                for vector, image in zip(vectors, images, strict=True):
                    what = f"{option} product {seed}"
                    reach = size * float(vector.norm())
                    yield Claim(what, flat(image, subject), truth @ vector, 0.0, reach)
            assert operator.objective is subject.objective
        dense = kind(subject.objective, options[0]).to_dense()
        assert list(subject.objective.parameters) == subject.truth.names
        off = dense.double().cpu() - truth
        yield Claim("dense", float(torch.linalg.matrix_norm(off, 2)), 0.0, 0.0, size)

    return call


def hessian_diagonal(subject: Subject) -> Claims:
    truth = subject.truth.hessian.diagonal()
    for method in METHODS:
        if method == "finite-difference" and subject.precision != "float64":
            # Its step is part of its definition, and so is what rounding makes of it.
            continue
        both = same_refusal(lambda o, m=method: fg.hessian_diagonal(o, m), subject)
        if both is None:
            continue
        found, right = both
        assert found.exact == right.exact
        target = flat(right.values, subject) if method == "finite-difference" else truth
        allowed = 0.0
        if found.uncertainty is not None:
            allowed = STANDARD_ERRORS * float(flat(found.uncertainty, subject).norm())
        yield Claim(method, flat(found.values, subject), target, allowed)


def gauss_newton_diagonal(subject: Subject) -> Claims:
    truth = subject.truth.gauss_newton.diagonal()
    for method in ("auto", "exact", "probes"):
        found = fg.gauss_newton_diagonal(subject.objective, method)
        allowed = 0.0
        if found.uncertainty is not None:
            allowed = STANDARD_ERRORS * float(flat(found.uncertainty, subject).norm())
        yield Claim(method, flat(found.values, subject), truth, allowed)


def spectral_density(subject: Subject) -> Claims:
    found, truth = fg.spectral_density(subject.objective, steps=30), subject.truth
    yield from moments(found, truth.eigenvalues)


def moments(found, eigenvalues: Tensor) -> Claims:
    for power in (1, 2):
        mean, error = found.moment(power)
        right = float((eigenvalues**power).mean())
        reach = float((eigenvalues.abs() ** power).mean())
        yield Claim(f"moment {power}", mean, right, STANDARD_ERRORS * error, reach)


def top_eigenvalues(subject: Subject) -> Claims:
    yield from largest(fg.top_eigenvalues(subject.objective, k=3), subject)


def largest(found, subject: Subject, smallest: bool = False) -> Claims:
    # Under TF32 the rounding of products may be above the tolerance, which is said.
    assert found.status.trusted or subject.precision == "tf32", found.message
    right = subject.truth.eigenvalues
    reach = float(right.abs().max())
    order = right if smallest else right.flip(0)
    for index, value in enumerate(found.values):
        what = f"{'smallest' if smallest else 'largest'} eigenvalue {index}"
        yield Claim(what, value, float(order[index]), found.error_bounds[index], reach)


def measure_spectrum(subject: Subject) -> Claims:
    found = fg.measure_spectrum(subject.objective, k=2, steps=40)
    yield from largest(found.largest, subject)
    yield from largest(found.smallest, subject, smallest=True)
    yield from moments(found.density, subject.truth.eigenvalues)
