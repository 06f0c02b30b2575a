from __future__ import annotations

from collections import UserDict, namedtuple

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from flatgauge.data import Batches, few_samples, leading_size, samples_in, take
from flatgauge.errors import DataError

X, Y = torch.arange(14.0).reshape(7, 2), torch.arange(7)
Pair = namedtuple("Pair", "inputs targets")


def batches(data, batch_size=None, any_batch=False, dtype=torch.float64):
    return Batches(
        data,
        batch_size=batch_size,
        device=torch.device("cpu"),
        dtype=dtype,
        any_batch=any_batch,
    )


def sizes(data, **options) -> list[int]:
    source = batches(data, **options)
    first = [len(batch.targets) for batch in source]
    assert first == [len(batch.targets) for batch in source]
    return first


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


@pytest.mark.parametrize(
    ("data", "batch_size", "expected"),
    [
        ((X, Y), None, [7]),
        ((X, Y), 3, [3, 3, 1]),
        ((X, Y), 100, [7]),
        (TensorDataset(X, Y), 3, [3, 3, 1]),
        (Stream(), 4, [4, 3]),
        (DataLoader(TensorDataset(X, Y), batch_size=5), None, [5, 2]),
        ([(X[:2], Y[:2]), [X[2:], Y[2:]]], None, [2, 5]),
        (((X[:2], Y[:2]), (X[2:], Y[2:])), None, [2, 5]),
        ([Pair(X, Y)], None, [7]),
        ([{"x": X, "labels": Y}], None, [7]),
        ([UserDict(x=X, labels=Y)], None, [7]),
        (((X, {"again": X}), Y), 4, [4, 3]),
    ],
)
def test_many_kinds_of_data(data, batch_size, expected):
    assert sizes(data, batch_size=batch_size) == expected


def test_floating_tensors_are_converted_and_others_kept():
    batch = next(iter(batches([({"x": X, "mask": Y > 1, "name": "one"}, Y)])))
    assert batch.inputs["x"].dtype == torch.float64
    assert batch.inputs["mask"].dtype == torch.bool
    assert batch.inputs["name"] == "one"
    assert batch.targets.dtype == torch.int64
    assert X.dtype == torch.float32


def test_labels_are_taken_out_of_a_mapping():
    batch = next(iter(batches([{"x": X, "labels": Y}])))
    assert list(batch.inputs) == ["x"]
    assert list(batch.whole) == ["x", "labels"]
    assert torch.equal(batch.targets, Y)


def test_batches_without_targets_are_their_own():
    batch = next(iter(batches([(X, X, X)], any_batch=True)))
    assert batch.targets is batch.whole
    assert len(batch.inputs) == 3
    assert sizes([X[:4], X[4:]], any_batch=True) == [4, 3]


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (X, {}, r"bare tensors: give the pair \(inputs, targets\)"),
        ([X, Y], {}, "bare tensors"),
        (TensorDataset(X, Y), {}, "is a Dataset: pass batch_size="),
        ([(X, Y)], {"batch_size": 2}, "comes in batches already"),
        (DataLoader(TensorDataset(X, Y)), {"batch_size": 2}, "comes in batches"),
        ({"x": X, "labels": Y}, {}, "data= is dict: give a DataLoader"),
        ("digits", {}, "data= is str"),
        (7, {}, "data= is int"),
        ((b for b in [(X, Y)]), {}, r"read only once: give a list"),
        (zip([X], [Y], strict=True), {}, r"read only once"),
        ((X, Y[:3]), {}, r"inputs have \[7\] samples and targets 3"),
        (((X, X[:2]), Y), {}, r"\[2, 7\]"),
        ((X, torch.tensor(1)), {}, "targets 0"),
        ((X, Y), {"batch_size": 0}, "batch_size= is 0: give a positive number"),
    ],
)
def test_data_that_are_refused(data, options, words):
    with pytest.raises(DataError, match=words):
        batches(data, **options)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (X, r"batch 0 is a Tensor: give pairs \(inputs, targets\)"),
        ((X, X, Y), "a tuple of length 3"),
        ({"x": X, "label": Y}, r"keys \['label', 'x'\].*'labels'"),
        (object(), "is a object"),
    ],
)
def test_batches_that_are_refused(batch, words):
    with pytest.raises(DataError, match=words):
        list(batches([batch, object()]))


def test_looking_at_a_loader_draws_no_random_numbers():
    loader = DataLoader(TensorDataset(X, Y), batch_size=2, shuffle=True)
    state = torch.get_rng_state()
    batches(loader)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("batch", "leading", "samples"),
    [
        ((X, Y), 7, 7),
        ((X[:0], Y[:0]), 0, 0),
        ((X, Y[:3]), None, None),
        ((X, Y.sum()), None, None),
        ({"x": X, "names": ["one"], "labels": Y}, 7, None),
        ({"x": 1, "labels": None}, None, None),
    ],
)
def test_samples_are_counted_where_all_tensors_have_one_entry_each(
    batch, leading, samples
):
    found = next(iter(batches([batch], any_batch=True)))
    assert leading_size(found.whole) == leading
    assert samples_in(found) == samples
    few = few_samples(found, 2)
    assert leading_size(few.whole) == (None if leading is None else min(leading, 2))


@pytest.mark.parametrize("index", [slice(1, 3), [1, 2], torch.tensor([1, 2])])
def test_some_samples_are_taken_from_every_tensor(index):
    found = take(next(iter(batches([{"x": X, "labels": Y}]))), index)
    assert torch.equal(found.inputs["x"], X[1:3].double())
    assert torch.equal(found.whole["labels"], Y[1:3])
    assert torch.equal(found.targets, Y[1:3])
