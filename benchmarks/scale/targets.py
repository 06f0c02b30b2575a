"""What we set out to reach at the size people use."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.scale import derived
from benchmarks.scale.case import Found
from benchmarks.scale.derived import Measured
from benchmarks.scale.jobs import LIMITED
from benchmarks.targets import GIB, Target, at_least, at_most

OVERHEAD = 0.25
SOLVER_ERROR = 1e-3
# PyHessian's call as it is by default, and run until it is right.
FASTER_THAN_DEFAULT = ("ResNet-50",)
FASTER_THAN_RIGHT = ("ViT-B/16", "GPT-2 124M")
TRACE_PRODUCTS, LEAST_PROBES, MORE = 64, 8, 1.2
ESTIMATED = 0.10
SQUARE_ROOT_PROBES = ("ResNet-50",)
GRADIENTS, BALANCING = 60, 5.0
HESSIAN_PROBES = 30
DEFAULT_SET = {
    "ResNet-50": 30.0,
    "ViT-B/16": 90.0,
    "GPT-2 124M": 150.0,
    "Llama 1.1B": 420.0,
}
PEAK = {"Llama 1.1B": 120.0}
SLOWER = 1.5


def scale_targets(found: Measured) -> list[Target]:
    """Those of one network that there are measurements for."""
    return [
        *_overheads(found),
        *_eigenvalue(found),
        *_trace(found),
        *_sharpness(found),
        *_default_set(found),
    ]


def _overheads(found: Measured) -> Iterator[Target]:
    names = {"eigenvalue": "hessian-spectral-norm", "trace": "hessian-trace"}
    for row, name in names.items():
        share = derived.overhead(found, row)
        if share is not None:
            yield Target(
                f"{found.network}: `{name}`, time beyond its products",
                f"at most {OVERHEAD:.0%} of theirs",
                f"{share:.0%}",
                share <= OVERHEAD,
            )


def _eigenvalue(found: Measured) -> Iterator[Target]:
    error = derived.solver_error(found)
    if error is not None:
        yield Target(
            f"{found.network}: largest eigenvalue, error of the solver",
            f"at most {SOLVER_ERROR:.0e}",
            f"{error:.1e}",
            error <= SOLVER_ERROR,
        )
    ours, theirs = found.number("eigenvalue"), derived.their_default(found)
    if ours is None:
        return
    if found.network in FASTER_THAN_DEFAULT and theirs is not None:
        what = f"{found.network}: largest eigenvalue, times faster than PyHessian"
        yield at_least(what, theirs.seconds / derived.total(ours), 1.0)
    if found.network in FASTER_THAN_RIGHT:
        what = (
            f"{found.network}: largest eigenvalue, times faster than PyHessian run "
            "until it is right to 1e-3"
        )
        right, never = derived.their_right(found), derived.never_right(found)
        if right is not None:
            yield at_least(what, right.seconds / derived.total(ours), 1.0)
        elif never is not None:
            said = f"it does not get there in {never} products"
            yield Target(what, "at least 1", said, True)


def _trace(found: Measured) -> Iterator[Target]:
    call, plain = found.number("trace"), derived.plain(found)
    if call is None or plain is None or call["status"] == "EXACT":
        return
    what = f"{found.network}: `hessian-trace`, products"
    enough = max(MORE * plain.needed, LEAST_PROBES)
    taken = call["products"]
    if enough <= TRACE_PRODUCTS:
        bound = (
            f"{LEAST_PROBES} to {enough:.0f}: perfect knowledge needs {plain.needed}"
        )
        met = LEAST_PROBES <= taken <= enough
        yield Target(what, bound, str(taken), met)
        return
    spread = (call["uncertainty"] or 0.0) / abs(call["result"])
    right = "ESTIMATED" if spread <= ESTIMATED else "NOT_CONVERGED"
    yield Target(
        what,
        f"{LEAST_PROBES} to {TRACE_PRODUCTS}, since 2 % would take {plain.needed}; "
        f"estimated up to {ESTIMATED:.0%}, not converged beyond",
        f"{taken}, {call['status'].lower().replace('_', ' ')}, ± {spread:.0%}",
        LEAST_PROBES <= taken <= TRACE_PRODUCTS and call["status"] == right,
    )


def _sharpness(found: Measured) -> Iterator[Target]:
    gradient, product = found.seconds("gradient"), found.seconds("product")
    if gradient is None or product is None:
        return
    by_roots = {"sharpness, ggn": "`normalized-sharpness[curvature=ggn]`"}
    if found.network in SQUARE_ROOT_PROBES:
        by_roots["sharpness"] = "`normalized-sharpness`"
    for name, what in by_roots.items():
        call = found.number(name)
        if call is not None:
            most = GRADIENTS * gradient + BALANCING
            said = f"{found.network}: {what}, seconds"
            yield Target(
                said,
                f"at most {GRADIENTS} gradients + {BALANCING:g} s, {most:.1f}",
                f"{call['seconds']:.2f}",
                call["seconds"] <= most,
            )
    call = found.number("sharpness")
    if call is not None and call["details"].get("method") == "hutchinson":
        most = (1 + OVERHEAD) * HESSIAN_PROBES * product
        own = call["seconds"] - call["balancing"]
        yield Target(
            f"{found.network}: `normalized-sharpness` without balancing, seconds",
            f"at most {HESSIAN_PROBES} products + {OVERHEAD:.0%}, {most:.1f}, and biased",
            f"{own:.2f}, {call['status'].lower().replace('_', ' ')}",
            own <= most and call["status"] == "BIASED",
        )


def _default_set(found: Measured) -> Iterator[Target]:
    call = found.row("default set")
    if call is None or found.network not in DEFAULT_SET:
        return
    what = f"{found.network}: default set"
    failed = [k for k, one in call["measures"].items() if one["status"] == "FAILED"]
    yield at_most(f"{what}, seconds", call["seconds"], DEFAULT_SET[found.network])
    yield Target(
        f"{what}, measures that failed", "none", ", ".join(failed) or "none", not failed
    )
    if found.network in PEAK and "peak" in call:
        yield at_most(f"{what}, peak GiB", call["peak"] / GIB, PEAK[found.network])


def limit_targets(limited: Measured, own: Measured | None) -> Iterator[Target]:
    """How much slower each row is within a limit, and whether it stays within."""
    for row in limited.rows:
        if not row["contestant"].endswith(LIMITED):
            continue
        name = row["contestant"].removesuffix(LIMITED)
        what = f"{limited.network}: {name} within {row.get('limit', 'the limit')}"
        failure = limited.unfinished().get(row["contestant"])
        if failure:
            yield Target(what, "runs", "failed", False)
            continue
        free = derived.unlimited(limited, own, name)
        if free is not None:
            slower = row["seconds"] / free["seconds"]
            yield at_most(f"{what}, times slower", slower, SLOWER)
        if "peak" in row:
            yield at_most(f"{what}, peak GiB", row["peak"] / GIB, gib(row))


def gib(row: Found) -> float:
    return float(row["limit"].removesuffix("GiB"))
