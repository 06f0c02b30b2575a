"""What processes tell each other."""

from __future__ import annotations

import pickle

import pytest
import torch
from support import shared_work

from flatgauge.errors import OptionError
from flatgauge.ranks import ALONE, ranks_of


def test_what_ranks_do(pair):
    first, second = pair(shared_work.basics)
    assert first["apart"] == 0
    assert second.pop("apart") == 1
    first.pop("apart")
    for found in (first, second):
        added = found.pop("added")
        assert torch.equal(added["a"], torch.ones(2))
        assert added["b"] == (1, 0.5, None)
        assert isinstance(added["b"][0], int)
        assert found == {
            "gathered": [0, 1],
            "agreed": 0,
            "given": 1,
            "least": 4,
            "big": 2.0 * (2**20 + 1),
            "none": torch.Size([0]),
            "world": 2,
        }


def test_an_error_of_one_is_raised_on_all(pair):
    for one in pair.outcomes(shared_work.raising, (1,)):
        assert one.kind == "DataError"
        assert one.text == "rank 1: there is no such file: look for it."


def test_the_same_error_of_all_names_no_rank(pair):
    for one in pair.outcomes(shared_work.raising, (0, 1)):
        assert one.text == "there is no such file: look for it."


def test_nothing_is_exchanged_while_each_works_by_itself(pair):
    for one in pair.outcomes(shared_work.talking_apart):
        assert "while each works by itself" in one.text


def test_other_turns_are_seen(pair):
    for one in pair.outcomes(shared_work.out_of_step):
        assert one.kind == "ProcessGroupError"
        assert "same order" in one.text


def test_without_a_group_there_is_one_process():
    assert ranks_of(None) is ALONE
    assert ranks_of(False) is ALONE
    assert pickle.loads(pickle.dumps(ALONE)).count == 1


def test_anything_else_than_a_group_is_refused(monkeypatch):
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    with pytest.raises(OptionError, match="process_group= is 'gloo'"):
        ranks_of("gloo")
