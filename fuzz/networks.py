"""A random network: a stem, a few parts, a head, and what the generator knows of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fuzz import dense, shared
from fuzz.draw import Draw
from fuzz.parts import Part, Use, collect
from fuzz.sequences import Attention, Recurrent, TimeFirst, Tokens
from fuzz.stems import Convolutions, DoesNotFit, Stem, Vector
from fuzz.unsound import unsound

STEMS: list[tuple[float, type[Stem]]] = [
    (6, Vector), (2, Convolutions), (1, Tokens), (1, Recurrent), (1, Attention),
    (1, TimeFirst),
]  # fmt: skip
PARTS: list[tuple[float, type[Part]]] = [
    (6, dense.Dense), (1.5, dense.Branches), (1.5, dense.Residual), (0.7, dense.Gain),
    (1.5, dense.Norm), (0.7, dense.MaxOut), (0.7, dense.WeightNorm),
    (0.7, dense.Masked), (0.7, dense.LowRank), (1, dense.InPlace), (0.4, dense.Lower),
    (0.3, dense.Again), (0.5, dense.Folded), (0.5, dense.Nested), (1.5, shared.Sliced),
    (1, shared.Stacked), (1.5, shared.Heads), (0.5, shared.Viewed),
    (0.7, shared.Shared), (1, shared.Transposed), (0.5, shared.Mixed),
    (0.7, shared.SoftExperts), (2, shared.Experts), (1, shared.Sleeping),
]  # fmt: skip
UNSOUND = 0.06
MOST_PARAMETERS = 110


class Network(nn.Module):
    """The generated model: raw inputs to class scores or regression outputs."""

    def __init__(self, stem: Stem, parts: list[Part], head: nn.Linear):
        super().__init__()
        self.stem, self.head = stem, head
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        raw = x.to(h.dtype).flatten(1)
        if self.stem.by_token:
            raw = raw.repeat_interleave(h.shape[1], 0)
            h = h.flatten(0, 1)
        for part in self.parts:
            h = part(h, raw)
        y = self.head(h)
        return y.unflatten(0, (x.shape[0], -1)) if self.stem.by_token else y


@dataclass
class Generated:
    """A network, and what is known of it.

    `rescalings` is the number of independent rescalings of hidden units, or None.
    """

    model: Network
    uses: dict[str, Use]
    rescalings: int | None
    sound: bool
    rounded: bool
    coupled: bool
    words: str


def generate(draw: Draw, outputs: int) -> Generated:
    """A network of at most `MOST_PARAMETERS` parameters."""
    while True:
        # Modules draw from the global generator when they are made.
        try:
            with torch.random.fork_rng(devices=[]):
                found = _attempt(draw, outputs)
        except DoesNotFit:
            continue
        count = sum(p.numel() for p in found.model.parameters())
        if 4 <= count <= MOST_PARAMETERS:
            return found


def _attempt(draw: Draw, outputs: int) -> Generated:
    stem = draw.weighted(STEMS)(draw)
    parts: list[Part] = []
    width = stem.width
    for _ in range(draw.between(0, 3)):
        part = draw.weighted(PARTS)(draw, width, draw.between(1, 4))
        parts.append(part)
        width = part.width
    if draw.chance(UNSOUND):
        parts.append(unsound(draw, width, draw.between(2, 3)))
        width = parts[-1].width
    head = nn.Linear(width, outputs, bias=draw.chance(0.7))
    model = Network(stem, parts, head).double()
    draw.fill(model, gain=draw.one_of((0.7, 1.0, 1.5)))
    words = [stem.facts.label, *(part.facts.label for part in parts)]
    words += _special(draw, model)
    facts = [
        ("stem", stem.facts),
        *((f"parts.{i}", part.facts) for i, part in enumerate(parts)),
    ]
    uses = [*collect(facts), Use("head.weight")]
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    every = [one for _, one in facts]
    return Generated(
        model,
        {use.name: use for use in uses if use.name in trained},
        _rescalings(model),
        all(one.sound for one in every),
        any(one.rounded for one in every),
        any(one.coupled for one in every),
        " | ".join(words),
    )


def _special(draw: Draw, model: Network) -> list[str]:
    """A head of zeros, frozen parameters, saturated weights."""
    words = []
    with torch.no_grad():
        if draw.chance(0.05):
            model.head.weight.zero_()
            words.append("head of zeros")
        if draw.chance(0.1):
            for parameter in model.parameters():
                parameter.mul_(draw.uniform(1.0, 3.0))
            words.append("large weights")
    names = [name for name, _ in model.named_parameters()]
    if len(names) > 2 and draw.chance(0.1):
        frozen = draw.one_of(names[:-1])
        dict(model.named_parameters())[frozen].requires_grad_(False)
        words.append(f"{frozen} frozen")
    return words


def _rescalings(model: Network) -> int | None:
    """Units between parts that both sides can rescale, and those inside the parts."""
    count = 0
    before = model.stem.facts
    for part in model.parts:
        facts = part.facts
        if before.inner is None or facts.inner is None:
            return None
        count += before.inner + (before.units if before.opens and facts.absorbs else 0)
        before = facts
    if before.inner is None:
        return None
    return count + before.inner + (before.units if before.opens else 0)
