from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flatgauge.uses.places import Memory, Places

SHAPE = (4, 6, 3)
STEPS = {
    "transpose": lambda t: t.transpose(0, -1),
    "permute": lambda t: t.permute(*reversed(range(t.ndim))),
    "first half": lambda t: t[: max(1, t.shape[0] // 2)],
    "every second": lambda t: t[..., ::2],
    "last": lambda t: t[-1] if t.ndim > 1 else t,
    "flatten": lambda t: t.flatten(),
    "in pairs": lambda t: t.reshape(2, -1) if t.numel() % 2 == 0 else t,
    "copy": lambda t: t.clone(memory_format=torch.contiguous_format),
    "broadcast": lambda t: t.expand(2, *t.shape),
}


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=5))
def test_memory_tells_the_entries_of_any_view_or_copy(steps: list[str]):
    count = torch.Size(SHAPE).numel()
    tensor = torch.arange(100, 100 + count).reshape(SHAPE)
    memory = Memory.whole(count, 100)
    for step in steps:
        before, tensor = tensor, STEPS[step](tensor)
        if not _same_memory(before, tensor):
            places = memory.seen_by(before)
            copied = Places.of(STEPS[step](places.numbers()))
            memory = Memory.behind(tensor, copied)
            dense = Memory.dense(tensor, places) if step == "copy" else None
            memory = dense or memory
        assert torch.equal(memory.seen_by(tensor).numbers(), tensor)


def _same_memory(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def test_a_transposed_copy_needs_no_table():
    tensor = torch.arange(12).reshape(3, 4)
    copied = tensor.t().contiguous()
    memory = Memory.behind(copied, Memory.whole(12, 0).seen_by(tensor.t()))
    assert memory.cut.table is None
    assert torch.equal(memory.seen_by(copied[1:]).numbers(), copied[1:])


def test_what_lies_around_a_view_that_crosses_rows():
    tensor = torch.arange(24).reshape(3, 8)
    memory = Memory(Places((3, 8), (0, 1)))
    rows = tensor[1:].reshape(4, 4)
    assert memory.affine(rows) is None
    assert set(memory.around(rows).numbers().flatten().tolist()) == set(range(8))
    single = memory.around(tensor[1, 2:5])
    assert single.numbers().flatten().tolist() == [2, 3, 4]
