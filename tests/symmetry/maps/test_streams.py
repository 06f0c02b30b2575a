"""Rotations of residual streams under root-mean-square norms, found in any network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.errors import SymmetryError
from flatgauge.measures.registry import claims_of
from flatgauge.symmetry.capture import read
from flatgauge.symmetry.graph import Example
from flatgauge.symmetry.maps.head_matrices import random_orthogonal
from flatgauge.symmetry.maps.streams import rotate_stream
from flatgauge.symmetry.streams import streams
from flatgauge.twins import families


class Written(nn.Module):
    """A root-mean-square norm, operation by operation, as transformers write it."""

    def __init__(self, offset: float = 0.0) -> None:
        super().__init__()
        self.weight, self.offset = nn.Parameter(torch.ones(6)), offset

    def forward(self, x: Tensor) -> Tensor:
        length = x.pow(2).mean(-1, keepdim=True) + 1e-5
        return (self.weight + self.offset) * (x * torch.rsqrt(length)).type_as(x)


class Residual(nn.Module):
    """An embedding, two blocks that add to the stream, and a head that may be tied."""

    def __init__(self, norm=lambda: nn.RMSNorm(6), tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.norms = nn.ModuleList(norm() for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(6, 5) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(5, 6) for _ in range(2))
        self.head = nn.Linear(6, 7, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = 2.0 * self.embedding(tokens)
        for norm, up, down in zip(self.norms, self.up, self.down, strict=False):
            x = x + down(torch.tanh(up(norm(x))))
        return self.head(self.norms[2](x)).mean(1)


class Peeked(Residual):
    """One coordinate of the stream is looked at by itself."""

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) + self.embedding(tokens)[..., :1].mean(1)


CASES = {
    "torch's": (Residual, 6),
    "tied": (lambda: Residual(tied=True), 5),
    "written out": (lambda: Residual(Written), 6),
    "gains of 1 + w": (lambda: Residual(lambda: Written(1.0)), 6),
    "without gains": (
        lambda: Residual(lambda: nn.RMSNorm(6, elementwise_affine=False)), 6
    ),
    "layer norms": (lambda: Residual(lambda: nn.LayerNorm(6)), None),
    "a coordinate by itself": (Peeked, None),
}  # fmt: skip
TOKENS = torch.arange(20).reshape(4, 5) % 7


def prepared(name: str):
    torch.manual_seed(0)
    model = CASES[name][0]().double()
    graph = read(model, Example((TOKENS,), {}, lambda result: result)).graph
    return model, {n: t.detach() for n, t in model.named_parameters()}, streams(graph)


@pytest.mark.parametrize("name", CASES)
def test_a_stream_is_found_with_all_that_writes_and_reads_it(name):
    _, tensors, found = prepared(name)
    if CASES[name][1] is None:
        assert found == []
        return
    (stream,) = found
    assert stream.width == 6
    reads_and_writes = {n for n in tensors if "norm" not in n and "up" not in n}
    rotated = reads_and_writes | {"up.0.weight", "up.1.weight"}
    assert set(stream.axes) == rotated
    assert stream.gains == {n for n in tensors if "norm" in n}


@pytest.mark.parametrize("gain", [-1.5, 0.3, 1.0])
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[1]])
def test_rotations_keep_the_function(name, gain):
    model, tensors, (stream,) = prepared(name)
    for one in stream.gains:
        tensors[one] = torch.full_like(tensors[one], gain)

    def outputs(given):
        return torch.func.functional_call(model, given, (TOKENS,))

    before = outputs(tensors)
    for seed in range(3):
        moved = rotate_stream(tensors, stream, random_orthogonal(6, seed))
        change = outputs(moved) - before
        assert float(change.norm()) < 1e-13 * float(before.norm())
        for one in ("embedding.weight", "up.1.weight", "down.0.weight"):
            astray = outputs({**moved, one: tensors[one]}) - before
            assert float(astray.norm()) > 1e-3 * float(before.norm())


def test_unequal_gains_and_other_matrices_are_refused():
    _, tensors, (stream,) = prepared("torch's")
    with pytest.raises(SymmetryError, match="orthogonal"):
        rotate_stream(tensors, stream, 2 * torch.eye(6).double())
    tensors["norms.0.weight"] = tensors["norms.0.weight"].clone()
    tensors["norms.0.weight"][0] = 2.0
    with pytest.raises(SymmetryError, match="gains"):
        rotate_stream(tensors, stream, random_orthogonal(6, 0))


@pytest.mark.parametrize(
    ("name", "claimed"),
    [
        ("fisher-rao-norm", True),
        ("spectral-norm-product", True),
        ("normalized-sharpness", False),
    ],
)
def test_claims(name, claimed):
    model, *_ = prepared("torch's")
    objective = fg.Objective(model, (TOKENS, torch.arange(4)))
    (family,) = (one for one in families(objective) if one.kind == "stream-rotation")
    twin = family.twin(seed=1)
    assert twin.change < 1e-13
    before, after = (fg.measure(o, name)[name] for o in (objective, twin.objective))
    assert before.value is not None
    assert after.value is not None
    assert (abs(after.value - before.value) < 1e-9 * abs(before.value)) == claimed
    assert ("stream-rotation" in claims_of(before)) == claimed


def test_trained_gains_have_no_rotation():
    model, *_ = prepared("torch's")
    with torch.no_grad():
        model.norms[1].weight[0] = 1.5
    objective = fg.Objective(model, (TOKENS, torch.arange(4)))
    assert "stream-rotation" not in {one.kind for one in families(objective)}
