"""Which matrices weights are found to be used as."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from flatgauge.uses import Watcher

Shapes = list[tuple[int, ...]]


class Using(nn.Module):
    def __init__(self, run: Callable[..., Tensor], **shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.run = run
        for name, shape in shapes.items():
            draw = torch.randn(shape, generator=torch.Generator().manual_seed(0))
            self.register_parameter(name, nn.Parameter(draw))

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def watch(model: nn.Module, *batches: Tensor) -> Watcher:
    watcher = Watcher({n: p.detach() for n, p in model.named_parameters()})
    for batch in batches:
        watcher.inputs(batch)
        with torch.no_grad(), watcher:
            model(batch)
    return watcher


def shapes(model: nn.Module, *batches: Tensor) -> dict[str, Shapes]:
    """The shapes of the matrices of each parameter that is nothing else."""
    found = watch(model, *batches).described()
    return {
        name: [
            tuple(m.shape) for m in used.matrices(dict(model.named_parameters())[name])
        ]
        for name, used in found.items()
        if used.alone
    }


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
TOKENS = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("run", "shape", "expected"),
    [
        (lambda s, x: x @ s.w, (4, 3), [(4, 3)]),
        (lambda s, x: F.linear(x, s.w) @ s.w, (3, 4), [(3, 4)]),
        (lambda s, x: F.linear(x, s.w[:2]), (5, 4), [(2, 4)]),
        (lambda s, x: x @ s.w[0] @ s.w[1], (2, 4, 4), [(4, 4)] * 2),
        (lambda s, x: x @ s.w.mT.contiguous()[1], (2, 3, 4), [(3, 4)]),
        (lambda s, x: x.expand(3, 5, 4) @ s.w, (3, 4, 2), [(4, 2)] * 3),
        (lambda s, x: torch.einsum("bi,eio->beo", x, s.w), (3, 4, 2), [(4, 6)]),
        (lambda s, x: x @ s.w.view(4, 6), (2, 2, 6), [(4, 6)]),
        (lambda s, x: F.linear(x, -2 * s.w * (s.w.new_ones(3, 1)) + 1), (3, 4), [(3, 4)]),
        (lambda s, x: F.conv1d(x[:, :, None], s.w, groups=2), (6, 2, 1), [(3, 2)] * 2),
        (
            lambda s, x: F.conv_transpose1d(x[:, :, None], s.w, groups=2),
            (4, 3, 2),
            [(2, 3)] * 2,
        ),
        (lambda s, x: F.embedding(torch.tensor([1, 0]), s.w), (3, 4), [(3, 4)]),
        (lambda s, x: x @ torch.cat([s.w, s.w.new_zeros(1, 2)]), (3, 2), [(3, 2)]),
        (lambda s, x: x[:, :3] @ s.w[torch.tensor([2, 0, 1])], (3, 2), [(3, 2)]),
        (lambda s, x: x @ s.w[:8].view(4, 2) @ s.w[8:].view(2, 3), (14,), [(4, 2), (2, 3)]),
    ],
)  # fmt: skip
def test_weights_by_use(run, shape, expected: Shapes):
    assert shapes(Using(run, w=shape), X)["w"] == expected


@pytest.mark.parametrize(
    ("run", "shape", "mixed"),
    [
        (lambda s, x: x @ s.w.as_strided((4, 3), (1, 1)), (6,), True),
        (lambda s, x: x * s.w, (1, 4), False),
        (lambda s, x: x + s.w, (5, 4), False),
        (lambda s, x: x @ torch.tanh(s.w), (4, 3), False),
        (lambda s, x: x @ s.w, (4,), False),
        (lambda s, x: torch.einsum("bi,eio->bo", x, s.w), (3, 4, 2), False),
        (lambda s, x: x @ s.w.expand(4, 3), (1, 3), False),
        (lambda s, x: F.linear(x, s.w) * s.w.square().sum(), (3, 4), False),
    ],
)
def test_what_is_no_matrix(run, shape, mixed: bool):
    model = Using(run, w=shape)
    assert "w" not in shapes(model, X)
    assert watch(model, X).mixed() == (["w"] if mixed else [])


def test_products_of_weights():
    model = Using(lambda s, x: F.linear(x, s.w * s.v), w=(3, 4), v=(3, 4))
    assert watch(model, X).mixed() == ["w", "v"]
    gained = Using(lambda s, x: F.linear(x, s.w * s.g), w=(3, 4), g=(3, 1))
    assert shapes(gained, X) == {"w": [(3, 4)]}
    assert watch(gained, X).mixed() == []
    adapted = Using(
        lambda s, x: F.linear(x, s.w + 0.5 * s.b @ s.a), w=(3, 4), a=(2, 4), b=(3, 2)
    )
    assert shapes(adapted, X) == {"w": [(3, 4)], "a": [(2, 4)], "b": [(3, 2)]}


def test_pruned_and_normalized_weights():
    pruned = nn.Linear(4, 3)
    prune.random_unstructured(pruned, "weight", 0.5)
    assert shapes(pruned, X) == {"weight_orig": [(3, 4)]}
    bounded = parametrizations.spectral_norm(nn.Linear(4, 3)).eval()
    assert shapes(bounded, X) == {"parametrizations.weight.original": [(3, 4)]}
    found = watch(parametrizations.weight_norm(nn.Linear(4, 3)), X).described()
    (used,) = found.values()
    assert not used.alone


def test_experts_are_found_on_every_batch():
    def run(s: Using, x: Tensor) -> Tensor:
        chosen = (x[:, 0] > 0).long()
        return (x[:, None] @ s.w[chosen]).squeeze(1)

    model = Using(run, w=(2, 4, 3))
    low, high = X.abs() * torch.tensor([-1.0, 1, 1, 1]), X.abs()
    assert shapes(model, low, high) == {"w": [(4, 3)] * 2}
    used = watch(model, low).described()["w"]
    assert used.rest.tolist() == list(range(12, 24))


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


def heads(x: Tensor, size: int) -> Tensor:
    return x.unflatten(-1, (-1, size)).transpose(-2, -3)


FUSED = {
    "split": lambda s, x: attention(*(heads(t, 4) for t in (x @ s.w.T).split(8, -1))),
    "transposed": lambda s, x: attention(
        *(heads(t, 4) for t in (x @ s.w.view(8, 24)).chunk(3, -1))
    ),
    "kernel": lambda s, x: F.scaled_dot_product_attention(
        *F.linear(x, s.w).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
    ),
    "biased": lambda s, x: F.scaled_dot_product_attention(
        *(2 * t + 1 for t in (F.linear(x, s.w) + 1).chunk(3, -1))
    ),
}


@pytest.mark.parametrize("name", FUSED)
def test_query_key_and_value_are_told_apart_by_use(name: str):
    assert shapes(Using(FUSED[name], w=(24, 8)), TOKENS)["w"] == [(8, 8)] * 3


def test_query_key_and_value_of_other_sizes():
    def grouped(s: Using, x: Tensor) -> Tensor:
        q, k, v = (heads(t, 4) for t in F.linear(x, s.w).split([8, 4, 4], -1))
        return attention(q, k.repeat_interleave(2, -3), v.repeat_interleave(2, -3))

    assert shapes(Using(grouped, w=(16, 8)), TOKENS)["w"] == [(8, 8), (4, 8), (4, 8)]
    model = Using(grouped, w=(16, 8))
    whole = watch(model, TOKENS).described(apart=False)
    assert len(whole["w"].parts) == 1


@pytest.mark.parametrize("weights", [True, False])
def test_torch_attention(weights: bool):
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    model = Using(lambda s, x: s.layer(x, x, x, need_weights=weights)[0])
    model.layer = layer
    assert shapes(model, TOKENS)["layer.in_proj_weight"] == [(8, 8)] * 3


def test_a_gate_is_no_attention():
    def run(s: Using, x: Tensor) -> Tensor:
        gate, up = F.linear(x, s.w).chunk(2, -1)
        return gate.sigmoid() * up

    assert shapes(Using(run, w=(6, 4)), X) == {"w": [(6, 4)]}
