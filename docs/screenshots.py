"""Take the pictures of a report page: python docs/screenshots.py PAGE.html FOLDER."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# A window of chromium is never narrower than 500 pixels, so the page is in a frame.
FRAME = """<!doctype html><body style="margin:0"><iframe src="{page}"
style="border:0;width:{width}px;height:{height}px"></iframe>"""
PICTURES = {
    "page-1280.png": (1280, 1900, False),
    "page-1280-dark.png": (1280, 1900, True),
    "page-400.png": (400, 2600, False),
}


def take(page: Path, picture: Path, width: int, height: int, dark: bool) -> None:
    browser = shutil.which("chromium") or "google-chrome"
    with tempfile.TemporaryDirectory() as folder:
        frame = Path(folder) / "frame.html"
        frame.write_text(FRAME.format(page=page.as_uri(), width=width, height=height))
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
            "--virtual-time-budget=8000",
            f"--window-size={max(width, 500)},{height}",
            f"--screenshot={picture.resolve()}",
            frame.as_uri(),
        ]
        if dark:
            command.insert(1, "--blink-settings=preferredColorScheme=0")
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> None:
    page, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (width, height, dark) in PICTURES.items():
        take(page, folder / name, width, height, dark)
        print(f"wrote {folder / name}")


if __name__ == "__main__":
    main()
