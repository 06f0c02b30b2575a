"""Make the pictures of the gallery again: python docs/generate_gallery.py

The commands are those of gallery.md, run in a folder of their own.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PICTURES = HERE / "gallery"


def commands() -> list[list[str]]:
    """The command lines on the page, as words."""
    page = (HERE / "gallery.md").read_text(encoding="utf-8")
    return [shlex.split(line) for line in re.findall(r"^flatgauge .*$", page, re.M)]


def draw(folder: Path) -> list[Path]:
    """Train, and run every command; the pictures that are there then."""
    shutil.copy(PICTURES / "net.py", folder)
    for words in [["net.py"], *(["-m", *one] for one in commands())]:
        subprocess.run([sys.executable, *words], cwd=folder, check=True)
    return sorted(folder.glob("*.svg"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for picture in draw(Path(folder)):
            shutil.copy(picture, PICTURES)


if __name__ == "__main__":
    main()
