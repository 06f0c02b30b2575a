"""Sphinx: python -m sphinx -W --keep-going -b html docs docs/_build/html"""

from __future__ import annotations

import os
import re
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
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# What the tutorial shows is stored in it; a test runs it again.
nb_execution_mode = "off"
exclude_patterns = ["_build", "invariance_table.md", "algorithm1_table.md"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_title = f"flatgauge {__version__}"
html_show_copyright = False
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
# Longer signatures have a line for each argument.
maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_attr_annotations = True


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


def plain_signs(app, what, name, thing, options, lines: list[str]) -> None:
    """|W| in a docstring is no substitution, and "*points" no emphasis."""
    lines[:] = [
        line
        if line.lstrip().startswith(">>>")
        else re.sub(r"(\||(?<=['\"])\*)", r"\\\1", line)
        for line in lines
    ]


def setup(app) -> None:
    app.connect("builder-inited", run_examples)
    app.connect("autodoc-process-docstring", plain_signs, priority=600)
