"""Draw the imports and list the rooms: python docs/generate_architecture.py

The layers are those of `pyproject.toml`, which `make lint` enforces; the lines are the
imports of the source, less those that follow from others.
"""

from __future__ import annotations

import ast
import re
import tomllib
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "flatgauge"
PICTURE = ROOT / "docs" / "architecture.svg"
TABLE = ROOT / "docs" / "architecture_rooms.md"
WIDTH, ROW, HEIGHT = 1000, 62, 26

Edges = dict[str, set[str]]


def layers() -> list[list[str]]:
    """The rooms from top to bottom, those of one layer together."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = [
        one
        for one in settings["tool"]["importlinter"]["contracts"]
        if one["type"] == "layers"
    ]
    return [re.findall(r"\w+", layer) for layer in contract["layers"]]


def imports() -> Edges:
    """Which room imports which, as far as a path through others does not say so."""
    graph = grimp.build_graph("flatgauge", cache_dir=None)
    rooms = [room for layer in layers() for room in layer]
    below: Edges = {room: set() for room in rooms}
    for importer in graph.modules:
        one = importer.removeprefix("flatgauge").lstrip(".").split(".")[0]
        for imported in graph.find_modules_directly_imported_by(importer):
            other = imported.removeprefix("flatgauge").lstrip(".").split(".")[0]
            # Upwards goes Report.to_html alone, which imports its page late.
            if {one, other} <= set(rooms) and rooms.index(one) < rooms.index(other):
                below[one].add(other)
    reached: Edges = {}
    for room in reversed(rooms):
        reached[room] = below[room].union(*(reached[one] for one in below[room]))
    return {
        room: {
            one
            for one in below[room]
            if not any(one in reached[other] for other in below[room])
        }
        for room in rooms
    }


def purpose(room: str) -> str:
    """The first sentence of a room's docstring."""
    folder = SOURCE / room / "__init__.py"
    path = folder if folder.exists() else SOURCE / f"{room}.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def table() -> str:
    """One line a layer, from top to bottom, with what each of its rooms is for."""
    lines = ["| room | what it is |", "|---|---|"]
    for layer in layers():
        for room in sorted(layer):
            slash = "/" if (SOURCE / room).is_dir() else ".py"
            lines.append(f"| `{room}{slash}` | {purpose(room)} |")
    return "\n".join(lines) + "\n"


def picture() -> str:
    """Boxes in rows, one for each layer, and the imports between them."""
    rows = layers()
    place: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        for index, room in enumerate(row):
            across = WIDTH * (index + 1) / (len(row) + 1)
            # Rows of one are moved aside by turns, so that lines pass them.
            aside = 60 * (number % 3 - 1) if len(row) == 1 else 0
            place[room] = (across + aside, ROW * number + ROW / 2)
    lines, boxes = [], []
    for room, others in imports().items():
        x, y = place[room]
        for other in sorted(others):
            to_x, to_y = place[other]
            start, end = y + HEIGHT / 2, to_y - HEIGHT / 2
            bend = (start + end) / 2
            lines.append(
                f'<path d="M{x:.0f} {start:.0f} C{x:.0f} {bend:.0f} {to_x:.0f} '
                f'{bend:.0f} {to_x:.0f} {end:.0f}"/>'
            )
    for room, (x, y) in place.items():
        wide = 9 * len(room) + 18
        boxes.append(
            f'<g><title>{escape(purpose(room))}</title><rect x="{x - wide / 2:.0f}" '
            f'y="{y - HEIGHT / 2:.0f}" width="{wide}" height="{HEIGHT}" rx="5"/>'
            f'<text x="{x:.0f}" y="{y + 5:.0f}">{room}</text></g>'
        )
    style = (
        "path{fill:none;stroke:#8aa;stroke-opacity:.6}"
        "rect{fill:#eef3f6;stroke:#456}"
        "text{font:14px monospace;text-anchor:middle;fill:#123}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {ROW * len(rows)}">'
    return "\n".join([head, f"<style>{style}</style>", *lines, *boxes, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    TABLE.write_text(table(), encoding="utf-8")
