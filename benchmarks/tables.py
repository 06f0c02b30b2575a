"""The tables of the page, one function for each part of the results."""

from __future__ import annotations

from benchmarks.cells import (
    NONE,
    Found,
    columns,
    describe,
    duration,
    failed,
    mib,
    peak_cell,
    rows,
    speed_up,
    status,
    with_error,
)
from benchmarks.targets import targets


def target_table(found: Found, device: str) -> list[str]:
    cells = [
        [one.what, one.bound, one.measured, "yes" if one.met else "**no**"]
        for one in targets(found, device)
    ]
    if not cells:
        return []
    head = ["target", "bound", "measured", "met"]
    return ["### Targets", "", *rows(head, cells)]


def product_tables(found: Found, device: str) -> list[str]:
    products = found.get("products", [])
    if not products:
        return []
    packages = columns(products, "gradients", "failures", without=("gradient",))
    times = [
        [
            describe(one),
            duration(one["seconds"]["gradient"]),
            *(with_error(one, package, ".2f") for package in packages),
        ]
        for one in products
    ]
    others = [package for package in packages if package != "flatgauge"]
    faster = [
        [describe(one), *(speed_up(one, package) for package in others)]
        for one in products
    ]
    return [
        "### One Hessian product, in gradients (relative error)",
        "",
        *rows(["network", "a gradient", *packages], times),
        "### How many times faster we are",
        "",
        "In brackets where the other product is wrong.",
        "",
        *rows(["network", *others], faster),
        *failed(products),
    ]


def route_table(found: Found, device: str) -> list[str]:
    products = found.get("products", [])
    if not products:
        return []
    cells = [
        [
            f"{one['network']}, {one['precision']}",
            one["route"],
            duration(one["first product"]),
            "; ".join(f"{n} {duration(s)}" for n, s in one["candidates"].items())
            or "not tried: it would not pay",
            "; ".join(
                f"{n} {NONE + ' failed' if e is None else format(e, '.0e')}"
                for n, e in one["disagreement"].items()
                if n != "double-backward"
            )
            or NONE,
        ]
        for one in products
    ]
    head = ["network", "route chosen", "first product, choice included"]
    head += [
        "one batch by each candidate",
        "disagreement with double backward, float64",
    ]
    return ["### Routes", "", *rows(head, cells)]


def diagonal_table(found: Found, device: str) -> list[str]:
    diagonals = found.get("diagonal", [])
    if not diagonals:
        return []
    names = columns(diagonals, "gradients", "failures", without=("gradient", "check"))
    cells = [
        [
            describe(one),
            *(with_error(one, name, ".1f") for name in names),
            f"{one['gradients']['check']:.1f}",
        ]
        for one in diagonals
    ]
    wide = [
        difference
        for one in diagonals
        for difference in one.get("difference in float64", {}).values()
    ]
    most = max(wide, default=0.0)
    witness = f"In float64, BackPACK's diagonals and ours differ by {most:.0e} at most."
    return [
        "### The exact diagonal of the Hessian (K = 10), in gradients (relative error)",
        "",
        *rows(["network", *names, "check of the precondition, once"], cells),
        *([witness, ""] if wide else []),
        *failed(diagonals),
    ]


def eigenvalue_table(found: Found, device: str) -> list[str]:
    if not found.get("eigenvalue"):
        return []
    cells = []
    for one in found["eigenvalue"]:
        ours, seconds = one["flatgauge"], one["seconds"]
        theirs = seconds.get("PyHessian")
        errors = one.get("PyHessian errors")
        cells.append(
            [
                f"{one['precision']}, batches of {one['batch']}",
                f"{duration(seconds['flatgauge'])}, {ours['products']} products",
                NONE if theirs is None else duration(theirs),
                NONE if theirs is None else f"{theirs / seconds['flatgauge']:.1f}",
                f"{ours['error']:.1e}",
                f"{ours['residual']:.1e}",
                f"{ours['bound']:.1e}",
                f"{min(errors):.1e} to {max(errors):.1e}" if errors else NONE,
            ]
        )
    head = ["precision and batches", "flatgauge", "PyHessian", "times faster"]
    head += ["our error", "our residual", "our bound", "their error"]
    title = "### The top eigenvalue of the MLP to 1e-3, 10,000 samples"
    return [title, "", *rows(head, cells)]


def trace_table(found: Found, device: str) -> list[str]:
    traces = found.get("trace", [])
    if not traces:
        return []
    names = columns(traces, "gradients", "failures", without=("gradient",))
    cells = []
    for one in traces:
        note = one["notes"]["flatgauge"][-1]
        spread = note["standard error"] / abs(one["values"]["flatgauge"][-1])
        how = ", ".join(dict.fromkeys([note["method"], status(note["status"])]))
        if spread:
            how += f", {note['products']} products, standard error {spread:.1%}"
        cells.append(
            [
                describe(one) + ("" if one["truth"] is not None else " *"),
                *(with_error(one, name, ".0f") for name in names),
                how,
            ]
        )
    return [
        "### The trace to 2 %, in gradients (relative error)",
        "",
        "Everyone's own call, set-up included; errors are the root mean square over "
        "runs with different seeds, against the exact trace in float64. * No exact "
        "trace is known: the difference from our estimate, which has the standard "
        "error given.",
        "",
        *rows(["network", *names, "how we did it"], cells),
        *failed(traces),
    ]


def default_set_tables(found: Found, device: str) -> list[str]:
    lines = []
    for one in found.get("default set", []):
        shares = sorted(one["shares"].items(), key=lambda item: -item[1])
        statuses = one.get("statuses", {})
        rest = 1 - sum(one["shares"].values())
        lines += [
            f"### The default set on {one['network']}, {one['samples']} samples, "
            f"{one['precision']}: {one['gradients']:.0f} gradients, "
            f"{one['seconds']:.0f} s",
            "",
            *rows(
                ["measure", "share of the time", "status"],
                [
                    *(
                        [k, f"{v:.1%}", status(statuses.get(k, NONE))]
                        for k, v in shares
                    ),
                    ["the rest", f"{rest:.1%}", NONE],
                ],
            ),
        ]
    return lines


def growth_table(found: Found, device: str) -> list[str]:
    grown = [one for one in found.get("growth", []) if "peak" in one]
    if not grown:
        return []
    cells = [
        [
            one["network"],
            one["contestant"],
            f"{one['axis']} {one['value']}",
            f"{one['parameters']:,}",
            duration(one["seconds"]),
            f"{one['gradients']:.2f}",
            mib(one["peak"]),
            one.get("route", NONE),
        ]
        for one in grown
    ]
    head = ["network", "what", "at", "parameters", "time", "gradients", "peak MiB"]
    table = rows([*head, "route"], cells)
    return [
        "<details><summary>All the numbers of these plots</summary>",
        "",
        *table,
        "</details>",
        "",
    ]


def memory_table(found: Found, device: str) -> list[str]:
    measured = found.get("memory", [])
    if not measured:
        return []
    names = columns(measured, "peak", "failures")
    cells = [
        [describe(one), *(peak_cell(one, name) for name in names)] for one in measured
    ]
    return [
        "### Peak memory over the baseline, MiB (held between products)",
        "",
        "The baseline holds the model and the data. On a CPU it is the resident memory "
        "of a process of its own, the allocator's slack included.",
        "",
        *rows(["network", *names], cells),
        *failed(measured),
    ]


def budget_table(found: Found, device: str) -> list[str]:
    if not found.get("budget"):
        return []
    cells = [
        [
            f"{one['network']}, {one['value']} sequences",
            *(
                mib(one[key])
                for key in ("budget", "gradient", "peak", "held", "everything kept")
            ),
            one["route"],
        ]
        for one in found["budget"]
    ]
    head = ["network", "budget MiB", "peak of a gradient", "peak of products", "held"]
    head += ["peak if everything were kept", "route"]
    return ["### A memory budget", "", *rows(head, cells)]


def processes_table(found: Found, device: str) -> list[str]:
    if not found.get("processes"):
        return []
    cells = [
        [
            one["network"],
            f"{one['seconds']['one']:.3g}",
            f"{one['seconds']['all']:.3g}",
            f"{one['ratio']:.2f}",
        ]
        for one in found["processes"]
    ]
    head = ["network", "one process s", "two processes s", "ratio"]
    text = "A product with all of the data; every process has one thread."
    return ["### Several processes", "", text, "", *rows(head, cells)]


def sharded_table(found: Found, device: str) -> list[str]:
    if not found.get("sharded"):
        return []
    one = found["sharded"][-1]
    whole = 4 * one["parameters"]
    peaks = {int(count): by_step for count, by_step in one["bytes"].items()}
    cells = [
        [step, *(f"{by_step[step] / whole:.2f}" for by_step in peaks.values())]
        for step in next(iter(peaks.values()))
    ]
    head = ["peak of a process, in models", *(f"{n} processes" for n in peaks)]
    text = (
        f"A model of {one['parameters'] / 1e6:.1f} M parameters in 16 blocks, sharded by "
        "FSDP2 and never whole in a process; the eigenvalue takes 12 products."
    )
    return ["### Sharded models", "", text, "", *rows(head, cells)]
