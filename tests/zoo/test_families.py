"""Twenty of transformers' families go through the zoo; the list is whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zoo.checks import check
from zoo.registry import SOURCES, every_network
from zoo.verdicts import RIGHT, notes, verdict

FAMILIES = (
    "gpt2", "gpt_neox", "bloom", "opt", "llama", "qwen3", "gemma2", "olmo2", "phi3",
    "mixtral", "mamba", "bert", "deberta_v2", "modernbert", "xlnet", "t5", "bart", "vit",
    "deit", "resnet",
)  # fmt: skip
PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
def test_everything_works_on_a_family(family):
    pytest.importorskip("transformers")
    row = check(every_network()[f"transformers/{family}"])
    assert verdict(row) == RIGHT, notes(row)
    assert row["wrong_claim_caught"]


def test_the_list_is_long_enough():
    sources = [one.source for one in every_network().values()]
    assert {name: sources.count(name) >= 50 for name in SOURCES} == dict.fromkeys(
        SOURCES, True
    )
    assert len(sources) >= 229


def test_the_page_has_a_row_for_every_network():
    shown = set(re.findall(r"^\| (\S+) \|", PAGE.read_text(), re.MULTILINE))
    assert {
        name.partition("/")[2].replace("_", r"\_") for name in every_network()
    } <= shown
