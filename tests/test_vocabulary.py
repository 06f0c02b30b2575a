from __future__ import annotations

import copy
import json
import pickle

import pytest

from flatgauge.vocabulary import Kind, Status, Verdict


@pytest.mark.parametrize("word", [*Kind, *Verdict])
def test_words_are_plain_strings_to_everybody_else(word):
    plain = word.value
    assert word == plain
    assert {plain: 1}[word] == {word: 1}[plain] == 1
    assert str(word) == f"{word}" == plain
    assert repr([word]) == repr([plain])
    assert json.dumps(word) == json.dumps(plain)
    assert pickle.loads(pickle.dumps(word)) is copy.deepcopy(word) is word


def test_every_kind_says_what_is_moved():
    assert all(kind.text.endswith(".") for kind in Kind)
    assert len({kind.text for kind in Kind}) == len(Kind)


def test_statuses():
    assert [one.name for one in Status if one.trusted] == [
        "EXACT",
        "CONVERGED",
        "ESTIMATED",
    ]
    assert Status.NOT_APPLICABLE.word == "not applicable"
    for one in Status:
        assert Status(one.value) is one
        assert one.value.endswith(".")
        assert one.mark
