"""Draw benchmarks/README.md from the results: python -m benchmarks.page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
HEAD = """# Benchmarks

Written by `python -m benchmarks.page` from `benchmarks/results/*.json`; `make bench` makes
those. Times are the median over rounds of the time in units of one gradient in the same
round, since machines are noisy; errors are relative to float64 double backward.
"""


def rows(head: list[str], cells: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in cells] + [""]


def section(found: dict[str, Any]) -> list[str]:
    machine = found["machine"]
    name = machine["gpu"] or f"{machine['threads']} CPU threads"
    lines = [
        f"## {name}, torch {machine['torch']}, flatgauge {machine['flatgauge']}",
        "",
    ]
    products = found.get("products", [])
    if products:
        lines += ["### One Hessian product, in gradients (relative error)", ""]
        packages = [p for p in products[0]["gradients"] if p != "gradient"]
        cells = [
            [
                f"{one['network']}, {one['samples']} rows, {one['precision']}",
                *(
                    f"{one['gradients'][p]:.2f} ({one['error'].get(p, float('nan')):.0e})"
                    if p in one["gradients"]
                    else "failed"
                    for p in packages
                ),
            ]
            for one in products
        ]
        lines += rows(["network", *packages], cells)
    if found.get("diagonal"):
        lines += ["### The exact diagonal of the Hessian (K = 10), in gradients", ""]
        lines += rows(
            ["network", "exact diagonal", "check of the precondition, once"],
            [
                [
                    f"{one['network']}, {one['samples']} samples",
                    f"{one['gradients']['exact diagonal']:.1f}",
                    f"{one['gradients']['check']:.1f}",
                ]
                for one in found["diagonal"]
            ],
        )
    if found.get("eigenvalue"):
        lines += ["### A certified top eigenvalue of the MLP, 10,000 samples", ""]
        lines += rows(
            [
                "precision",
                "flatgauge s",
                "PyHessian s",
                "our error",
                "our bound",
                "their error",
            ],
            [
                [
                    one["precision"],
                    f"{one['seconds']['flatgauge']:.3g}",
                    f"{one['seconds'].get('PyHessian', float('nan')):.3g}",
                    f"{one['flatgauge']['error']:.1e}",
                    f"{one['flatgauge']['bound']:.1e}",
                    f"{one['PyHessian error'] or float('nan'):.1e}",
                ]
                for one in found["eigenvalue"]
            ],
        )
    for one in found.get("default set", []):
        lines += [
            f"### The default set on {one['network']}, {one['samples']} samples: "
            f"{one['gradients']:.0f} gradients",
            "",
        ]
        shares = sorted(one["shares"].items(), key=lambda item: -item[1])
        lines += rows(
            ["measure", "share of the time"], [[k, f"{v:.1%}"] for k, v in shares]
        )
    if found.get("growth"):
        lines += ["### Growth with the number of samples", ""]
        lines += rows(
            [
                "network",
                "samples",
                "budget MiB",
                "s a product",
                "peak MiB",
                "graphs kept",
            ],
            [
                [
                    one["network"],
                    str(one["samples"]),
                    f"{one['budget'] / 2**20:.0f}",
                    f"{one['seconds']:.3f}",
                    f"{one['peak'] / 2**20:.0f}",
                    "yes" if one["kept"] else "no",
                ]
                for one in found["growth"]
            ],
        )
    return lines


def main() -> None:
    lines = HEAD.splitlines()
    for path in sorted((HERE / "results").glob("*.json")):
        lines += ["", *section(json.loads(path.read_text()))]
    (HERE / "README.md").write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
