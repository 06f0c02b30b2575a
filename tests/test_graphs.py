"""Batches that do not split into samples: nodes and edges of graphs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import flatgauge as fg
from flatgauge.results import Status

DIAGONAL = "fisher-rao-norm[diagonal=True]"


@dataclass
class Graphs:
    """Three graphs with 7 nodes and 12 edges in all."""

    nodes: Tensor
    edges: Tensor
    owner: Tensor
    classes: Tensor


def graphs(seed: int) -> Graphs:
    random = torch.Generator().manual_seed(seed)
    return Graphs(
        torch.randn(7, 4, generator=random).double(),
        torch.randint(0, 7, (2, 12), generator=random),
        torch.tensor([0, 0, 1, 1, 1, 2, 2]),
        torch.randint(0, 3, (3,), generator=random),
    )


class GraphNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, nodes: Tensor, edges: Tensor, owner: Tensor) -> Tensor:
        h = self.first(nodes)
        h = torch.relu(h + torch.zeros_like(h).index_add(0, edges[1], h[edges[0]]))
        whole = h.new_zeros(3, h.shape[1]).index_add(0, owner, h)
        return self.last(whole)


def called(model, batch):
    return model(batch.nodes, batch.edges, batch.owner)


def as_tensors() -> fg.Objective:
    data = [graphs(seed) for seed in (0, 1)]
    pairs = [((one.nodes, one.edges, one.owner), one.classes) for one in data]
    return fg.Objective(GraphNetwork().double(), pairs)


def as_objects(reduction: str) -> fg.Objective:
    return fg.Objective(
        GraphNetwork().double(),
        [graphs(seed) for seed in (0, 1)],
        lambda out, batch: cross_entropy(out, batch.classes, reduction=reduction),
        forward=called,
    )


def as_pairs() -> fg.Objective:
    data = [graphs(seed) for seed in (0, 1)]
    return fg.Objective(
        GraphNetwork().double(),
        [(one, one.classes) for one in data],
        forward=lambda model, batch: called(model, batch[0]),
    )


def squared_gradients() -> dict[str, Tensor]:
    """The mean over all six graphs, one backward each."""
    model = GraphNetwork().double()
    total = [torch.zeros_like(p) for p in model.parameters()]
    for seed in (0, 1):
        batch = graphs(seed)
        losses = cross_entropy(called(model, batch), batch.classes, reduction="none")
        for one in losses:
            slopes = torch.autograd.grad(one, [*model.parameters()], retain_graph=True)
            total = [t + s.square() / 6 for t, s in zip(total, slopes, strict=True)]
    weighed = zip(model.named_parameters(), total, strict=True)
    return {name: (p.detach().square() * t).sum() for (name, p), t in weighed}


@pytest.mark.parametrize("build", [as_tensors, as_pairs, partial(as_objects, "none")])
def test_samples_are_what_the_loss_says(build):
    objective = build()
    assert (objective.coupled, objective.sample_count) == (False, 6)
    found = fg.measure(objective, DIAGONAL)[DIAGONAL]
    assert found.status is Status.EXACT
    expected = squared_gradients()
    for name, share in found.details["layers"].items():
        assert share == pytest.approx(float(expected[name]), rel=1e-10)


def test_a_mean_over_graphs_says_nothing_of_samples():
    objective = as_objects("mean")
    assert objective.coupled
    found = fg.measure(objective, "fisher-rao-norm", "hessian-trace")
    assert found["fisher-rao-norm"].status is Status.NOT_APPLICABLE
    assert "one value per sample" in found["fisher-rao-norm"].message
    each = fg.measure(as_objects("none"), "hessian-trace")["hessian-trace"]
    assert found["hessian-trace"].value == pytest.approx(each.value, rel=1e-10)


def test_a_bound_needs_samples_that_are_known_to_be_independent():
    found = fg.measure(as_tensors(), "pac-bayes-bound")["pac-bayes-bound"]
    assert found.status is Status.NOT_APPLICABLE
    assert "does not split into samples" in found.message


@pytest.mark.parametrize("build", [as_tensors, as_pairs])
def test_symmetries_of_a_graph_network(build):
    assert fg.symmetries(build()).dimension == 6
