"""Draw benchmarks/README.md and its plots from the results: python -m benchmarks.page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.figures import draw_figures
from benchmarks.results import FOLDER, SCALE
from benchmarks.scale.tables import read, scale_section

PAGE = Path(__file__).parent / "README.md"
HEAD = """# Benchmarks

Written by `python -m benchmarks.page` from `benchmarks/results/*.json`; `make bench` makes
those. Times are the median over rounds of the time in units of one gradient in the same
round, since machines are noisy; errors are relative to float64. The networks are an MLP
784-512x5-10, LeNet, WRN-16-4 with BatchNorm in eval mode, and a GPT with 4 layers of
width 256, 128 tokens and a vocabulary of 1000, all untrained, with random data; the
samples of the GPT are tokens where they are counted, and sequences in the tables of
memory.
"""
BEFORE_PLOTS = (
    tables.target_table,
    tables.product_tables,
    tables.route_table,
    tables.diagonal_table,
    tables.eigenvalue_table,
    tables.trace_table,
    tables.default_set_tables,
)
AFTER_PLOTS = (
    tables.growth_table,
    tables.memory_table,
    tables.budget_table,
    tables.processes_table,
    tables.sharded_table,
)


def section(found: dict[str, Any], device: str) -> list[str]:
    lines = heading(found["machine"])
    if "note" in found:
        lines += [f"*{found['note']}*", ""]
    for table in BEFORE_PLOTS:
        lines += table(found, device)
    plots = draw_figures(found, device)
    if plots:
        lines += ["### Growth", ""]
    for file, caption in plots.items():
        lines += [f"![{caption.split('.')[0]}](figures/{file})", "", caption, ""]
    for table in AFTER_PLOTS:
        lines += table(found, device)
    if found.get("failures"):
        lines += ["### Not measured", ""]
        lines += [f"- {label}: `{why}`" for label, why in found["failures"].items()]
    return lines


def heading(machine: dict[str, Any]) -> list[str]:
    name = machine["gpu"] or f"{machine['threads']} CPU threads"
    known = versions(machine)
    return [f"## {name}", "", f"{known}. Processor: {machine['processor']}.", ""]


def versions(machine: dict[str, Any]) -> str:
    found = {
        "flatgauge": machine["flatgauge"],
        "torch": machine["torch"],
        "CUDA": machine.get("cuda"),
        "Python": machine["python"],
        **machine.get("peers", {}),
    }
    return ", ".join(f"{key} {value}" for key, value in found.items() if value)


def at_scale(folder: Path) -> list[str]:
    """The section on networks at the size people use, if any part is stored."""
    parts, machines = read(folder)
    lines = scale_section(parts)
    if not lines:
        return []
    where = dict.fromkeys(f"{m['gpu'] or 'CPU'}, {versions(m)}." for m in machines)
    return ["", "## At the size people use", "", *where, "", *lines]


def main() -> None:
    lines = HEAD.splitlines()
    for path in sorted(FOLDER.glob("*.json")):
        lines += ["", *section(json.loads(path.read_text()), path.stem)]
    lines += at_scale(SCALE)
    PAGE.write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
