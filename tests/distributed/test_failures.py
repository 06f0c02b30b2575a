"""No process waits for ever for one that failed."""

from __future__ import annotations

import pytest
from support import shared_work
from support.processes import Gone

import flatgauge as fg


def test_another_model_is_seen(pair):
    for one in pair.outcomes(shared_work.other_model):
        assert one.kind == "ModelError"
        assert "'2.weight' is not the same on rank 1 as on rank 0" in one.text


def test_a_forward_that_fails_at_first(pair):
    for one in pair.outcomes(shared_work.failing, "at first"):
        assert one.kind == "ModelError"
        assert one.text.startswith("rank 1: the model failed on batch")
        assert "a cosmic ray" in one.text


def test_a_forward_that_fails_in_the_middle(pair):
    first, second = pair(shared_work.failing, "later")
    assert first == second
    assert "a cosmic ray" in first[1]
    known = shared_work.fg.Objective(*shared_work.problem("mlp")[:2]).value()
    assert pair(shared_work.still_there) == pytest.approx([known, known])


def test_a_call_on_one_rank_only(own_pair):
    first, second = own_pair.outcomes(shared_work.on_the_first_only)
    assert second is None
    assert first.kind == "ProcessGroupError"
    assert "called on some ranks only? Pass process_group=False" in first.text


def test_a_process_that_is_killed(own_pair, tmp_path):
    first, second = own_pair.outcomes(shared_work.dying, str(tmp_path), seconds=60.0)
    assert isinstance(second, Gone)
    assert first.kind == "ProcessGroupError"
    assert "another process of the 2 ended or does not answer" in first.text
    # What was finished by then.
    kept = fg.Report.from_json(tmp_path / "0.json")
    assert kept["hessian-trace"].status.trusted
    assert len(kept.measurements) == 2


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("requests", "what is asked of measure() is not the same"),
        ("seed", "what is asked of measure() is not the same"),
        ("vector", "a vector to be multiplied is not the same"),
        ("point", "the point of at() is not the same"),
    ],
)
def test_what_differs_between_ranks_is_named(pair, what, words):
    for one in pair.outcomes(shared_work.other_arguments, what):
        assert one.kind == "OptionError"
        assert f"{words} on rank 1 as on rank 0" in one.text


def test_a_callback_that_fails_on_one_rank(pair):
    for one in pair.outcomes(shared_work.callback_fails, seconds=60.0):
        assert one.kind == "OSError"
        assert one.text == "rank 0: the disk is full"


def test_what_cannot_be_sent(pair):
    kinds = {one.kind for one in pair.outcomes(shared_work.not_picklable, seconds=60.0)}
    assert len(kinds) == 1
    assert kinds <= {"PicklingError", "AttributeError"}


def test_ddp_inside_of_a_model_is_refused(pair):
    for one in pair.outcomes(shared_work.nested_ddp):
        assert "'inner' in model= is DistributedDataParallel" in one.text


def test_a_rank_that_fails_by_itself_does_not_keep_others_waiting(own_pair):
    for one in own_pair.outcomes(shared_work.alone_in_trouble, seconds=60.0):
        assert one.kind == "ProcessGroupError"
