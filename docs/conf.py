"""Sphinx: python -m sphinx -W --keep-going -b html docs docs/_build/html"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from flatgauge.version import __version__

HERE = Path(__file__).parent
# What the examples print; the pages include it.
PRINTED = HERE / "_build" / "printed"

project = "flatgauge"
author = "The flatgauge authors"
copyright = author
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "invariance_table.md", "algorithm1_table.md"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_title = f"flatgauge {__version__}"
html_show_copyright = False
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_numpy_docstring = False
napoleon_attr_annotations = False


def run_examples(app: object) -> None:
    """Run every example; one that fails stops the build."""
    PRINTED.mkdir(parents=True, exist_ok=True)
    for script in sorted((HERE / "examples").glob("*.py")):
        done = subprocess.run(
            [sys.executable, "-W", "error", str(script)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )
        if done.returncode:
            raise RuntimeError(f"{script.name} failed:\n{done.stderr}")
        (PRINTED / f"{script.stem}.txt").write_text(done.stdout, encoding="utf-8")


def plain_bars(app, what, name, thing, options, lines: list[str]) -> None:
    """|W| in a docstring is a magnitude, not a substitution."""
    lines[:] = [
        line if line.lstrip().startswith(">>>") else line.replace("|", "\\|")
        for line in lines
    ]


def setup(app) -> None:
    app.connect("builder-inited", run_examples)
    app.connect("autodoc-process-docstring", plain_bars, priority=600)
