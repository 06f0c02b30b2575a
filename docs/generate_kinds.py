"""Write the tables of kinds of symmetry: python docs/generate_kinds.py

Which measure claims not to move under which kind, and which kinds are found in which
architecture: each is tried on a small network, whose outputs must stay.
"""

from __future__ import annotations

from pathlib import Path

import torch
from networks import (
    CLASSES,
    Gated,
    LowRank,
    Residual,
    Transformer,
    convolutional,
    mlp,
    normal,
    normalized,
    seeded,
)
from torch import nn

import flatgauge as fg
from flatgauge.twins import families
from flatgauge.vocabulary import Kind

PAGE = Path(__file__).parent / "kinds_table.md"
# Options under which a measure claims more, or less, than by default.
VARIANTS: dict[str, list[dict[str, object]]] = {
    "fisher-rao-norm": [{}, {"diagonal": True}],
    "normalized-sharpness": [{}, {"center_output": True}],
    "riemannian-spectral-norm": [{"metric": "layer"}, {"metric": "node"}],
    "riemannian-sharpness": [{"metric": "layer"}, {"metric": "node"}],
}
LOSS = "cross-entropy"
NETWORKS = {
    "ReLU network": (lambda: mlp(3, 6, 5, CLASSES), (3,)),
    "tanh network": (lambda: mlp(3, 6, 5, CLASSES, activation=nn.Tanh), (3,)),
    "convolutions": (convolutional, (1, 6, 6)),
    "batch norm": (lambda: normalized(1e-5), (3,)),
    "transformer with layer norms": (Transformer, (5, 6)),
    "gated transformer with RMS norms": (Gated, (5, 6)),
    "residual stream, RMS norms": (Residual, (3,)),
    "LoRA": (LowRank, (3,)),
}


def rows() -> list[list[str]]:
    """A row for each measure and variant: its name, then a mark for each kind."""
    found = []
    for info in fg.list_measures():
        for options in VARIANTS.get(info.name, [{}]):
            claims = info.invariant_to(options, LOSS)
            inside = ",".join(f"{key}={value}" for key, value in options.items())
            name = f"`{info.name}[{inside}]`" if inside else f"`{info.name}`"
            found.append([name, *("✓" if kind in claims else "" for kind in Kind)])
    return found


def found_in(build, shape: tuple[int, ...]) -> set[str]:
    """The kinds that a network is shown to have, up to eps or exactly."""
    objective = fg.Objective(
        seeded(build), (normal(8, *shape), torch.arange(8) % CLASSES)
    )
    kinds = set()
    for family in families(objective):
        twin = family.twin(seed=1)
        assert twin.holds or not family.exact, (family.kind, twin.miss)
        if family.exact:
            kinds.add(family.kind)
    return kinds


def architectures() -> list[list[str]]:
    """A row for each architecture: its name, then a mark for each kind."""
    found = {name: found_in(*how) for name, how in NETWORKS.items()}
    return [
        [name, *("✓" if kind in kinds else "" for kind in Kind)]
        for name, kinds in found.items()
    ]


def table(what: str, lines: list[list[str]]) -> list[str]:
    """A table with a column for each kind."""
    return [
        f"| {what} | "
        + " | ".join(kind.replace("-", "\u2011") for kind in Kind)
        + " |",
        "|---" * (len(Kind) + 1) + "|",
        *("| " + " | ".join(line) + " |" for line in lines),
    ]


def page() -> str:
    """What each kind moves, and the two tables."""
    return "\n".join(
        [
            "<!-- Written by docs/generate_kinds.py; do not edit. -->",
            "",
            "| kind | what is done |",
            "|---|---|",
            *(f"| `{kind}` | {kind.text} |" for kind in Kind),
            "",
            *table("measure", rows()),
            "",
            *table("architecture", architectures()),
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
