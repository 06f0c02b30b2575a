import torch

from flatgauge.solvers.directions import random_directions
from flatgauge.vectors import norm

SPACE = {"a": torch.zeros(3, 2).double(), "b": torch.zeros(4).double()}


def test_uniform_on_the_sphere():
    found = random_directions(SPACE, 4000, seed=0)
    assert all(abs(float(norm(one)) - 1) < 1e-12 for one in found)
    flat = torch.stack([torch.cat([t.reshape(-1) for t in d.values()]) for d in found])
    moments = flat.T @ flat / len(found)
    # An entry of the second moments has a standard error of at most 0.003.
    assert (moments - torch.eye(10).double() / 10).abs().max() < 0.012


def test_directions_follow_a_permutation_and_not_a_scale():
    point = {"a": torch.randn(3, 2).double(), "b": torch.randn(4).double()}
    swap = torch.tensor([2, 0, 1])
    moved = {"a": 7 * point["a"][swap], "b": point["b"]}
    (before,) = random_directions(SPACE, 1, 0, order=point)
    (after,) = random_directions(SPACE, 1, 0, order=moved)
    assert torch.equal(before["a"][swap], after["a"])
    (plain,) = random_directions(SPACE, 1, 0)
    assert sorted(plain["a"].reshape(-1).tolist()) == sorted(
        before["a"].reshape(-1).tolist()
    )
