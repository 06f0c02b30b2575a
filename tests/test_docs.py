"""The documentation: its examples run, its tables are true, its references exist."""

from __future__ import annotations

import html
import importlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.cases import CASES

import flatgauge as fg

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    """A function that imports a script of the documentation."""
    monkeypatch.syspath_prepend(str(DOCS))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


def assert_same(found: str, expected: str, rounding: float = 0.0) -> None:
    """The same text, with numbers that agree to the digits that are printed."""
    assert NUMBER.split(found) == NUMBER.split(expected)
    for one, other in zip(NUMBER.findall(found), NUMBER.findall(expected), strict=True):
        pair = float(one), float(other)
        assert math.isclose(*pair, rel_tol=0.02, abs_tol=rounding), pair


def run(path: Path) -> str:
    # In a process of its own: examples register measures, rules and operators.
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path: Path):
    assert run(path).strip()


def test_every_example_is_on_a_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    for path in EXAMPLES:
        assert f"_build/printed/{path.stem}.txt" in pages, path.name


@pytest.mark.slow
def test_the_ten_lines_of_the_readme_run(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(code, {"model": CASES["mlp"].model(), "loader": [CASES["mlp"].data()]})
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "audit.svg"}


def test_the_committed_table_has_every_mark(script):
    expected = script("generate_invariance").EXPECTED
    text = (DOCS / "invariance_table.md").read_text(encoding="utf-8")
    first = text.split("\n\n")[1]
    rows = [line.strip("|").split("|") for line in first.splitlines()][2:]
    found = {row[0].strip(): [cell.strip()[0] for cell in row[1:]] for row in rows}
    signs = {"y": "✓", "a": "✓", "n": "✗", "-": "–"}
    for row, marks in expected.items():
        assert found[row] == [signs[mark] for mark in marks.replace(" ", "")], row


def test_the_committed_kinds_are_those_claimed(script):
    text = (DOCS / "kinds_table.md").read_text(encoding="utf-8")
    for row in script("generate_kinds").rows():
        assert "| " + " | ".join(row) + " |" in text, row[0]


@pytest.mark.slow
def test_the_committed_kinds_are_those_found(script):
    text = (DOCS / "kinds_table.md").read_text(encoding="utf-8")
    assert script("generate_kinds").page() == text


@pytest.mark.parametrize("page", ["mathematics.md", "theorems.md", "which_measure.md"])
def test_checks_that_pages_name_exist(page: str):
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")
    )
    text = (DOCS / page).read_text(encoding="utf-8")
    names = set(re.findall(r"`(test_\w+)`", text))
    assert names
    for name in names:
        assert f"def {name}(" in sources, name
    for path in re.findall(r"`(?:tests/)?((?:\w+/)*test_\w+\.py)`", text):
        places = (ROOT / "tests" / path, ROOT / "tests" / "symmetry" / path)
        assert any(place.exists() for place in places), path


def test_the_api_page_has_every_public_name():
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    public = {name for name in fg.__all__ if not name.startswith("_")}
    # Those of modules that are named have another dot.
    described = set(re.findall(r"auto\w+:: flatgauge\.(\w+)(?![\w.])", text))
    assert public == described


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("generate_invariance", "invariance_table.md"),
        ("generate_algorithm1", "algorithm1_table.md"),
    ],
)
def test_generated_tables_are_up_to_date(script, name: str, page: str):
    committed = (DOCS / page).read_text(encoding="utf-8")
    assert_same(script(name).page(), committed)


def printed(notebook: Path) -> str:
    """What the cells of a notebook have shown, as text."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    shown = [output for cell in cells for output in cell.get("outputs", [])]
    texts = [one.get("text") or one["data"]["text/plain"] for one in shown]
    return "\n".join("".join(text) for text in texts)


@pytest.mark.slow
def test_the_tutorial_shows_what_it_gives(tmp_path: Path):
    pytest.importorskip("nbclient")
    path, again = DOCS / "tutorial.ipynb", tmp_path / "tutorial.ipynb"
    # In a process of its own: Jupyter's warnings are not ours.
    code = (
        "import sys, nbclient, nbformat; notebook = nbformat.read(sys.argv[1], 4);"
        "nbclient.execute(notebook, timeout=300); nbformat.write(notebook, sys.argv[2])"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPYTHONDIR": str(tmp_path)}
    command = [sys.executable, "-c", code, path, again]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert_same(printed(again), printed(path), rounding=1e-12)


def test_the_gallery_has_a_picture_for_every_command(script):
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\(gallery/([\w-]+\.svg)\)", page))
    assert shown == {path.name for path in (DOCS / "gallery").glob("*.svg")}
    for words in script("generate_gallery").commands():
        stem = Path(words[words.index("--out") + 1]).stem
        assert any(name.startswith(stem) for name in shown), stem


@pytest.mark.slow
def test_the_gallery_can_be_drawn_again(script, tmp_path: Path):
    names = {path.name for path in script("generate_gallery").draw(tmp_path)}
    assert names == {path.name for path in (DOCS / "gallery").glob("*.svg")}


@pytest.mark.slow
def test_the_theorems_can_be_drawn(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "import generate_theorems; generate_theorems.draw(Path(sys.argv[2]))"
    )
    picture = tmp_path / "theorems.svg"
    subprocess.run([sys.executable, "-c", code, DOCS, picture], check=True)
    assert picture.stat().st_size > 1000


@pytest.mark.slow
def test_the_documentation_builds_without_warnings(tmp_path: Path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", tmp_path / "trees", DOCS, tmp_path / "html"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "html" / "api.html").read_text(encoding="utf-8")
    plain = html.unescape(re.sub(r"<[^>]*>|\s+", "", reference))
    assert "value()→float" in plain
    assert "objective:Objective,*requests:str|Sequence[str]" in plain


def test_the_architecture_is_drawn_from_the_source(script):
    made = script("generate_architecture")
    again = "run python docs/generate_architecture.py"
    assert made.PICTURE.read_text(encoding="utf-8") == made.picture(), again
    assert made.TABLE.read_text(encoding="utf-8") == made.table(), again


def test_what_the_architecture_names_exists():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "flatgauge"
    steps = re.findall(r"`([\w/]+\.py)` `(\w+)`", text)
    assert len(steps) > 12
    for path, name in steps:
        found = (source / path).read_text(encoding="utf-8")
        assert re.search(rf"(def|class) {name}\b", found), (path, name)
    for path in re.findall(r"`([\w/]+(?:\.py|/))`", text):
        assert (source / path).exists(), path
