"""Processes that the tests of this folder share."""

from __future__ import annotations

import pytest
from support.processes import Processes


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """Two processes of one group; what a test leaves broken, it does not use them for."""
    both = Processes(2, tmp_path_factory.mktemp("pair"))
    yield both
    both.close()


@pytest.fixture
def own_pair(tmp_path):
    """Two processes for one test."""
    both = Processes(2, tmp_path)
    yield both
    both.close()
