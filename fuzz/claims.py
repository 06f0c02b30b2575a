"""Claims of invariance, by one twin a network, and the count of its rescalings."""

from __future__ import annotations

import torch

import flatgauge as fg
from flatgauge.measures.registry import claims_of
from fuzz.draw import Draw
from fuzz.judge import REFUSED, RIGHT, WRONG, Finding, again, near, spread_of
from fuzz.networks import Generated
from fuzz.problems import Problem
from fuzz.reference import Reference
from fuzz.truth import Answer

# What a measure's rounding may be between twins, against one network's own.
TWO_SIDES = 10.0
OUTPUTS = {torch.float64: 1e-8, torch.float32: 1e-3}


def judge_claims(
    draw: Draw,
    problem: Problem,
    reference: Reference,
    objective: fg.Objective,
    report: fg.Report,
    slacks: dict[str, float],
    relative: float,
) -> list[Finding]:
    """Move along one random symmetry, measure again, and compare what is claimed."""
    try:
        group = fg.symmetries(objective)
    except fg.FlatgaugeError as error:
        return [Finding("symmetries", REFUSED, note=str(error))]
    found = [judge_count(group, problem.network)]
    if group.dimension == 0:
        return found
    layers = "layer-rescale" in group.kinds and draw.chance(0.5)
    kinds = {"node-rescale", "layer-rescale"} if layers else {"node-rescale"}
    element = group.random_element(
        seed=draw.between(0, 10**6), kind="layer-rescale" if layers else None
    )
    twin = group.act(objective.model(), element)
    found.append(_same_outputs(problem, reference, twin))
    if found[-1].failed:
        return found
    moved = objective.with_model(twin)
    after = fg.measure(moved)
    for request, one in report.measurements.items():
        other = after[request]
        trusted = one.status.trusted and other.status.trusted
        if not (kinds & claims_of(one)) or not trusted:
            continue
        slack = TWO_SIDES * slacks.get(request, 0.0)
        verdict = _same(request, one, other, slack, relative)
        if verdict.failed and spread_of(one):

            def retry(seed: int, request=request, slack=slack) -> Finding:
                pair = [fg.measure(at, request, seed=seed) for at in (objective, moved)]
                return _same(request, *(at[request] for at in pair), slack, relative)

            verdict = again(verdict, retry)
        found.append(verdict)
    return found


def _same(
    request: str,
    one: fg.Measurement,
    other: fg.Measurement,
    slack: float,
    relative: float,
) -> Finding:
    """Whether twins have the same value, within what both say of their errors."""
    if one.value is None or other.value is None:
        return Finding(f"twin: {request}", REFUSED)
    spread = spread_of(one) + spread_of(other)
    answer = Answer([one.value], slack)
    return near(f"twin: {request}", other.value, answer, 2 * relative, spread)


def judge_count(group: fg.Group, network: Generated) -> Finding:
    """The group's dimension against the generator's count, where it has one."""
    got, want = group.dimension, network.rescalings
    if want is None or got == want:
        return Finding("rescalings", RIGHT, got, want)
    if got > want:
        return Finding("rescalings", WRONG, got, want, "more than there are")
    if group.unsupported:
        operators = ", ".join(sorted({operator for operator, _ in group.unsupported}))
        return Finding("rescalings", REFUSED, got, want, f"not understood: {operators}")
    if not group.complete:
        return Finding("rescalings", REFUSED, got, want, "there may be more")
    return Finding("rescalings", WRONG, got, want, "fewer, and nothing says so")


def judge_audit(objective: fg.Objective) -> Finding:
    """No claim may be violated."""
    try:
        audit = fg.audit(objective, elements=1)
    except fg.FlatgaugeError as error:
        return Finding("audit", REFUSED, note=str(error))
    bad = [f"{row.measure} under {row.kind}: {row.text}" for row in audit.violations]
    return Finding("audit", WRONG if bad else RIGHT, note="; ".join(bad))


def _same_outputs(
    problem: Problem, reference: Reference, twin: torch.nn.Module
) -> Finding:
    with torch.no_grad():
        before = reference.outputs()
        after = Reference(problem, twin).outputs()
    change = float((after - before).abs().max() / before.abs().max().clamp_min(1e-12))
    verdict = RIGHT if change <= OUTPUTS[problem.dtype] else WRONG
    return Finding("twin: outputs", verdict, change)
