"""The page's section on networks at the size people use, from whatever parts there are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from benchmarks.cells import NONE, duration, rows, status
from benchmarks.scale import derived
from benchmarks.scale.case import Found
from benchmarks.scale.derived import Measured
from benchmarks.scale.jobs import LIMITED, MEMORY, PARTS, TINY_PART
from benchmarks.scale.ours import PLAIN_PROBES
from benchmarks.scale.targets import limit_targets, scale_targets
from benchmarks.scale.theirs import MOST_PRODUCTS
from benchmarks.targets import GIB
from flatgauge.tables import format_value

Parts = dict[str, list[Found]]
INTRODUCTION = f"""ResNet-50 and ViT-B/16 of torchvision with 4 batches of 64 and of 32
random images of 224 x 224, GPT-2 124M and a Llama of 1.1 billion parameters of
transformers (22 layers of width 2048) with 4 batches of 8 and of 2 sequences of 512 random
tokens, untrained, in eval mode; and WRN-16-8, trained on CIFAR-10, with 4 batches of 256 of
its training images. All are float32 on one GPU, in TF32 unless another precision is named.

Every row starts from a fresh objective, whose set-up is timed by itself. A product is the
median of five after the first ones. "Beyond its products" is the time of a call less its
products at that price, in units of them. The error of the solver is its distance from a
long run (tolerance 1e-6, up to 100 products, another start) at the same precision; that of
TF32 is the distance of that run from the same eigenvalue in IEEE float32. Plain probes are
{PLAIN_PROBES} products with random signs: their variance tells how many Hutchinson's estimate
would need for a standard error of 2 % if it knew that variance from the start. PyHessian
multiplies with the same data and precision; its run is recorded product by product, so
that it tells both where its default call stops (tolerance 1e-3) and when its value first
was right to 1e-3, if ever, in {MOST_PRODUCTS} products: right is the eigenvalue of largest
magnitude, which its power iteration goes to, positive or negative. Peaks are torch's
allocations, the model and the data included.""".splitlines()


def read(folder: Path) -> tuple[Parts, list[Found]]:
    """The rows of all parts but the tiny one, and the machines that made them."""
    parts: Parts = {}
    machines: list[Found] = []
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        machines.append(found["machine"])
        parts |= {key: found[key] for key in PARTS if key in found}
    parts.pop(TINY_PART, None)
    return parts, machines


def scale_section(parts: Parts) -> list[str]:
    """The section, without its heading; nothing if there is no part."""
    own = [
        network
        for part in PARTS
        if part != MEMORY
        for network in derived.by_network(parts.get(part, [])).values()
    ]
    limited = list(derived.by_network(parts.get(MEMORY, [])).values())
    if not own and not limited:
        return []
    named = {one.network: one for one in own}
    cells = [
        [one.what, one.bound, one.measured, "yes" if one.met else "**no**"]
        for one in [
            *(target for found in own for target in scale_targets(found)),
            *(t for one in limited for t in limit_targets(one, named.get(one.network))),
        ]
    ]
    head = ["target", "bound", "measured", "met"]
    return [
        *INTRODUCTION,
        "",
        *(["#### Targets", "", *rows(head, cells)] if cells else []),
        *_table("One product", PRODUCT, own),
        *_table("The largest eigenvalue", EIGENVALUE, own),
        *_table("The largest eigenvalue by PyHessian", THEIRS, own),
        *_table("The trace", TRACE, own),
        *_table("Normalized sharpness", SHARPNESS, own),
        *_default_sets(own),
        *_within_limits(limited, named),
        *_not_measured([*own, *limited]),
    ]


Cell = Callable[[Measured], str]


def _table(title: str, columns: dict[str, Cell], several: list[Measured]) -> list[str]:
    cells = [
        [one.network, *(cell(one) for cell in columns.values())] for one in several
    ]
    told = [row for row in cells if set(row[1:]) != {NONE}]
    if not told:
        return []
    return [f"#### {title}", "", *rows(["network", *columns], told)]


def of(name: str, say: Callable[[Found], str], precision: str | None = None) -> Cell:
    """A cell made from one row, where that ended."""

    def cell(found: Measured) -> str:
        row = found.row(name, precision)
        return NONE if row is None else say(row)

    return cell


def peak(name: str) -> Cell:
    return of(name, lambda row: f"{row['peak'] / GIB:.1f}" if "peak" in row else NONE)


def seconds(key: str) -> Callable[[Found], str]:
    return lambda row: duration(row[key])


def known(value: float | None, style: str) -> str:
    return NONE if value is None else format(value, style)


def result(row: Found) -> str:
    if row.get("result") is None:
        return status(row["status"])
    shown = format_value(row["result"], row["uncertainty"])
    return f"{shown}, {status(row['status'])}"


def per_gradient(name: str) -> Cell:
    def cell(found: Measured) -> str:
        taken, unit = found.seconds(name), found.seconds("gradient")
        return NONE if taken is None or not unit else f"{taken / unit:.1f}"

    return cell


def _their_call(found: Measured) -> str:
    call = derived.their_default(found)
    if call is None:
        return NONE
    return f"{duration(call.seconds)}, {call.products} products"


def _their_value(found: Measured) -> str:
    call, error = derived.their_default(found), derived.their_error(found)
    if call is None:
        return NONE
    return f"{call.value:.4g} ({known(error, '.1e')})"


def _their_right(found: Measured) -> str:
    right, never = derived.their_right(found), derived.never_right(found)
    if right is not None:
        return f"{duration(right.seconds)}, {right.products} products"
    return NONE if never is None else f"not in {never} products"


def _both_ends(row: Found) -> str:
    if row.get("result") is None:
        return status(row["status"])
    return f"{row['result']:.5g} and {row['details']['smallest']:.5g}"


def _plain(found: Measured) -> str:
    probes = derived.plain(found)
    if probes is None:
        return NONE
    return f"{format_value(probes.mean, probes.error)}, 2 % takes {probes.needed}"


def _their_trace(row: Found) -> str:
    values = row["values"]
    mean = sum(values) / len(values)
    return f"{mean:.4g} in {duration(row['seconds'][-1])}, {len(values)} probes"


def _sharpness(row: Found) -> str:
    return f"{duration(row['seconds'])}, of which {duration(row['balancing'])}"


PRODUCT: dict[str, Cell] = {
    "parameters": of("gradient", lambda row: f"{row['parameters']:,}"),
    "samples": of("gradient", lambda row: f"{row['samples']:,}"),
    "set-up": of("gradient", seconds("set-up")),
    "a gradient": of("gradient", seconds("seconds")),
    "first product": of("product", seconds("first")),
    "a product": of("product", seconds("seconds")),
    "gradients": per_gradient("product"),
    "peak GiB, gradient": peak("gradient"),
    "peak GiB, product": peak("product"),
}
EIGENVALUE: dict[str, Cell] = {
    "call": of("eigenvalue", seconds("seconds")),
    "set-up": of("eigenvalue", seconds("set-up")),
    "products": of("eigenvalue", lambda row: str(row["products"])),
    "beyond its products": lambda one: known(
        derived.overhead(one, "eigenvalue"), ".0%"
    ),
    "value ± bound": of("eigenvalue", result),
    "error of the solver": lambda one: known(derived.solver_error(one), ".1e"),
    "error of TF32": lambda one: known(derived.precision_error(one), ".1e"),
    "IEEE": of("eigenvalue", result, "ieee"),
    "peak GiB": peak("eigenvalue"),
}
THEIRS: dict[str, Cell] = {
    "its default call": _their_call,
    "its value (error)": _their_value,
    "until right to 1e-3": _their_right,
    "both ends of the spectrum, long run": of("long run", _both_ends),
    "peak GiB": peak("PyHessian eigenvalue"),
}
TRACE: dict[str, Cell] = {
    "call": of("trace", seconds("seconds")),
    "products": of("trace", lambda row: str(row["products"])),
    "beyond its products": lambda one: known(derived.overhead(one, "trace"), ".0%"),
    "value": of("trace", result),
    f"{PLAIN_PROBES} plain probes": _plain,
    "PyHessian's default call": of("PyHessian trace", _their_trace),
    "peak GiB": peak("trace"),
    "peak GiB, PyHessian": peak("PyHessian trace"),
}
SHARPNESS: dict[str, Cell] = {
    "call, of which balancing": of("sharpness", _sharpness),
    "gradients": per_gradient("sharpness"),
    "value": of("sharpness", result),
    "peak GiB": peak("sharpness"),
    "Gauss-Newton: call, of which balancing": of("sharpness, ggn", _sharpness),
    "Gauss-Newton: gradients": per_gradient("sharpness, ggn"),
    "Gauss-Newton: value": of("sharpness, ggn", result),
    "Gauss-Newton: peak GiB": peak("sharpness, ggn"),
}


def _default_sets(several: list[Measured]) -> list[str]:
    sets = {one.network: one.row("default set") for one in several}
    told = {name: row for name, row in sets.items() if row is not None}
    if not told:
        return []
    names = dict.fromkeys(key for row in told.values() for key in row["measures"])
    cells = [["all", *(duration(row["seconds"]) for row in told.values())]]
    cells += [
        [f"`{name}`", *(_share(row["measures"].get(name)) for row in told.values())]
        for name in names
    ]
    highest = [
        f"{row['peak'] / GIB:.1f}" if "peak" in row else NONE for row in told.values()
    ]
    cells += [["peak GiB", *highest]]
    return ["#### The default set", "", *rows(["measure", *told], cells)]


def _share(one: Found | None) -> str:
    return (
        NONE
        if one is None
        else f"{duration(one['own seconds'])}, {status(one['status'])}"
    )


def _within_limits(several: list[Measured], own: dict[str, Measured]) -> list[str]:
    cells = []
    for one in several:
        for row in one.rows:
            if not row["contestant"].endswith(LIMITED) or "seconds" not in row:
                continue
            name = row["contestant"].removesuffix(LIMITED)
            free = derived.unlimited(one, own.get(one.network), name)
            cells.append(
                [
                    f"{one.network}: {name}",
                    row["limit"],
                    duration(row["seconds"]),
                    NONE if free is None else duration(free["seconds"]),
                    NONE if free is None else f"{row['seconds'] / free['seconds']:.2f}",
                    *(
                        f"{some['peak'] / GIB:.1f}" if some and "peak" in some else NONE
                        for some in (row, free)
                    ),
                ]
            )
    if not cells:
        return []
    head = ["what", "limit", "within it", "without", "times slower"]
    head += ["peak GiB within it", "peak GiB without"]
    return ["#### Within PyHessian's memory", "", *rows(head, cells)]


def _not_measured(several: list[Measured]) -> list[str]:
    lines = [
        f"- {one.network}, {name}: `{why.replace('`', '')}`"
        for one in several
        for name, why in one.unfinished().items()
    ]
    return ["#### Not measured", "", *lines, ""] if lines else []
