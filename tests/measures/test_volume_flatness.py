import math
from itertools import pairwise

import pytest
import torch
from support.cases import CASES, known_network
from torch import nn

import flatgauge as fg
from flatgauge.errors import OptionError
from flatgauge.solvers.volume import log_ball_volume
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.permute import permute_units
from flatgauge.symmetry.maps.rescale import rescale_layers

NAME = "volume-flatness"


def run(objective, **options):
    return fg.measure(objective, NAME, options={NAME: options})[NAME]


def scalar_chain(first, second):
    model = nn.Sequential(
        nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False)
    ).double()
    model[0].weight.data.fill_(first)
    model[2].weight.data.fill_(second)
    one = torch.ones(1, 1).double()
    return fg.Objective(
        model, (one, one), lambda out, t: 0.5 * (out - t).square().sum(1)
    )


def star_area(radius, rays=400_000):
    """∫ ½ min(r(φ), R)² dφ from (1, 1), r the first root of (1+rc)(1+rs) = 1 ± 0.2.

    Before t1 or t2 changes its sign, t1 t2 falls through 0.8.
    """
    angle = (torch.arange(rays).double() + 0.5) * 2 * math.pi / rays
    c, s = angle.cos(), angle.sin()
    first = torch.full_like(angle, radius)
    for level in (0.2, -0.2):
        root = ((c + s) ** 2 + 4 * c * s * level).clamp_min(0).sqrt()
        real = (c + s) ** 2 + 4 * c * s * level >= 0
        for sign in (1, -1):
            r = (-(c + s) + sign * root) / (2 * c * s)
            valid = real & (r > 0)
            first = torch.where(valid, torch.minimum(first, r), first)
    return float((0.5 * first**2).mean() * 2 * math.pi)


@pytest.mark.slow
@pytest.mark.parametrize("radius", [0.5, 256.0])
def test_star_shaped_part_of_the_scalar_chain(radius):
    expected = math.log(star_area(radius))
    if radius == 256.0:
        assert math.exp(expected) == pytest.approx(0.679, abs=5e-4)
    found = run(scalar_chain(1.0, 1.0), radius=radius, directions=200)
    assert found.status is fg.Status.ESTIMATED
    assert found.message.startswith("a lower bound")
    assert abs(found.value - expected) < 3 * found.uncertainty + 1e-3
    assert found.details["radius"] == radius


def test_default_radius_is_the_norm_and_the_ball_is_the_most():
    objective = scalar_chain(3.0, 4.0)
    found = run(objective, epsilon=1e9, directions=10)
    assert found.details["radius"] == pytest.approx(5.0)
    assert found.value == pytest.approx(log_ball_volume(2, 5.0), rel=1e-12)
    assert found.details["capped"] == 1.0


def test_orbit_sum_grows_without_bound():
    found = run(known_network("A/ce"), directions=20)
    totals = found.details["orbit_sum"]
    assert [count for count, _ in totals[:3]] == [1, 2, 4]
    for (few, low), (many, high) in pairwise(totals):
        # Every image is at least as large as the first.
        assert high - low >= math.log(many / few) - 1e-9
    assert found.details["orbit_log_determinant"] > 0 or totals[-1][1] > totals[0][1]
    assert "not proved" in found.details["orbit_note"]


def test_orbit_box_is_in_the_set():
    objective = known_network("A/ce")
    found = run(objective, directions=20)
    width = found.details["orbit_box_half_width"]
    random = torch.Generator().manual_seed(9)
    for _ in range(200):
        moved = {
            n: t + width * (2 * torch.rand(t.shape, generator=random).double() - 1)
            for n, t in objective.parameters.items()
        }
        assert objective.at(moved).value() < objective.value() + 0.02


def test_without_a_rescaling_there_is_no_orbit():
    found = run(CASES["tanh"].objective(), directions=4)
    assert found.details["orbit_sum"] is None
    assert "no rescaling" in found.details["orbit_note"]


def test_frozen_tensors_are_held_fixed():
    objective = fg.Objective(
        CASES["mlp"].model(), CASES["mlp"].data(), params=lambda n: n.startswith("0.")
    )
    assert run(objective, directions=4).details["orbit_sum"] is None


def test_permutations_leave_it_alone():
    objective = CASES["mlp"].objective()
    chain = Chain.of(CASES["mlp"].model())
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    twin = objective.at(permute_units(objective.parameters, chain, 0, order))
    before, after = run(objective, directions=15), run(twin, directions=15)
    assert after.value == pytest.approx(before.value, rel=1e-9)
    # Another seed gives another estimate: the agreement above is not a constant's.
    other = fg.measure(objective, NAME, options={NAME: {"directions": 15}}, seed=1)[
        NAME
    ]
    assert other.value != before.value


@pytest.mark.slow
def test_layer_rescaling_moves_it():
    objective = scalar_chain(1.0, 1.0)
    chain = Chain.of(objective.network.model)
    twin = objective.at(rescale_layers(objective.parameters, chain, (8.0, 0.125)))
    before, after = (run(one, radius=0.3, directions=200) for one in (objective, twin))
    assert abs(after.value - before.value) > 0.1 * abs(before.value)
    assert abs(after.value - before.value) > 4 * (
        before.uncertainty + after.uncertainty
    )


def test_too_few_directions():
    found = run(CASES["gpt"].objective(), directions=12)
    assert found.status is fg.Status.NOT_CONVERGED
    assert "raise directions=" in found.message


def test_what_does_not_apply():
    with pytest.raises(OptionError, match="epsilon"):
        run(known_network("A/ce"), epsilon=0.0)
    found = run(known_network("A/ce"), epsilon=1e-300, directions=2)
    assert found.status is fg.Status.NOT_APPLICABLE
    assert "raise epsilon=" in found.message
    zero = run(scalar_chain(0.0, 0.0), directions=2)
    assert zero.status is fg.Status.NOT_APPLICABLE
    assert "radius=" in zero.message
