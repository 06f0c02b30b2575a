"""`python -m papers.run [NAME ...]`: the experiments of every paper in turn."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from flatgauge.errors import OptionError
from papers.runner import ROOT, command_line, guarded, work


def main(argv: Sequence[str] | None = None) -> int:
    """Run the named papers, or all of them; 1 if something failed."""
    parser = command_line("python -m papers.run")
    parser.description = "The experiments of every paper in turn."
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as dinh2017")
    options = parser.parse_args(argv)
    return guarded(lambda: _all(options))


def _all(options: argparse.Namespace) -> int:
    known = sorted(path.parent.name for path in ROOT.glob("*/run.py"))
    for name in options.names:
        if name not in known:
            raise OptionError(
                f"there is no paper '{name}' here: use {', '.join(known)}."
            )
    return max((_one(name, options) for name in options.names or known), default=0)


def _one(name: str, options: argparse.Namespace) -> int:
    out = options.out / name if options.out else None
    paper = importlib.import_module(f"papers.{name}.run").PAPER
    return work(paper, argparse.Namespace(**{**vars(options), "out": out}))


if __name__ == "__main__":
    sys.exit(main())
