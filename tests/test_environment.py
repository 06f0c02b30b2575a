"""The pinned environment can be installed with every Python that the project allows."""

from __future__ import annotations

import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent
PINS = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize("pin", PINS, ids=lambda pin: pin.name)
def test_pins_allow_the_oldest_python(pin):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=") + ".0"
    found = distribution(pin.name)
    if not pin.specifier.contains(found.version, prereleases=True):
        pytest.skip(f"{found.version} is installed")
    assert oldest in SpecifierSet(found.metadata["Requires-Python"] or "")
