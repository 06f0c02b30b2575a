import pytest
import torch
from support.cases import CASES, KNOWN, known, known_network
from torch import nn

import flatgauge as fg
from flatgauge.errors import NotConvergedError, OptionError
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.permute import permute_units

NAME = "epsilon-sharpness"
EXACT = KNOWN["closed_forms"]["eps_sharpness_exact eps=0.1 at (2,1/2)"]


def scalar_chain(first, second):
    """y = t2 relu(t1 x) at x = 1 with target 1 and loss ½(y − 1)²."""
    model = nn.Sequential(
        nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False)
    ).double()
    model[0].weight.data.fill_(first)
    model[2].weight.data.fill_(second)
    one = torch.ones(1, 1).double()
    return fg.Objective(
        model, (one, one), lambda out, t: 0.5 * (out - t).square().sum(1)
    )


def run(objective, **options):
    return fg.measure(objective, NAME, options={NAME: options})[NAME]


def permuted(objective, chain, seed=0):
    params, random = objective.parameters, torch.Generator().manual_seed(seed)
    for layer in range(len(chain) - 1):
        units = params[chain.layers[layer].weight].shape[0]
        order = torch.randperm(units, generator=random)
        params = permute_units(params, chain, layer, order)
    return objective.at(params)


def test_exact_value_of_the_scalar_chain():
    found = run(scalar_chain(2.0, 0.5), epsilon=0.1)
    assert found.status is fg.Status.CONVERGED
    assert found.value == pytest.approx(float(EXACT["value"]), rel=1e-10)
    assert found.details["quadratic"] == pytest.approx(EXACT["second_order"], rel=1e-10)
    assert "lower bound of the maximum" in found.message
    assert found.value == max(found.details["losses"])


@pytest.mark.parametrize("case", ["A/ce", "B/ce"])
def test_quadratic_approximation(case):
    found = run(known_network(case), tol=1e-12)
    expected = known(case, "eps_sharp_2nd_eps1e-3")
    assert found.details["quadratic"] == pytest.approx(expected, rel=1e-10)


def test_no_point_of_a_dense_sample_is_higher():
    objective = known_network("A/ce")
    found = run(objective, epsilon=0.3)
    random = torch.Generator().manual_seed(0)
    for _ in range(300):
        step = {
            n: torch.randn(t.shape, generator=random, dtype=t.dtype)
            for n, t in objective.parameters.items()
        }
        length = sum(float(s.square().sum()) for s in step.values()) ** 0.5
        moved = {n: t + 0.3 / length * step[n] for n, t in objective.parameters.items()}
        assert objective.at(moved).value() <= found.details["largest_loss"]


@pytest.mark.parametrize("epsilon", [1e-3, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_permutations_leave_it_alone(epsilon, seed):
    objective = CASES["mlp"].objective()
    twin = permuted(objective, Chain.of(CASES["mlp"].model()), seed)
    before, after = run(objective, epsilon=epsilon), run(twin, epsilon=epsilon)
    assert before.status is fg.Status.CONVERGED
    assert after.value == pytest.approx(before.value, rel=1e-9)


def test_rescaling_a_layer_moves_it():
    before = run(scalar_chain(2.0, 0.5))
    after = run(scalar_chain(20.0, 0.05))
    assert after.value > 10 * before.value


def test_too_few_steps():
    found = run(known_network("B/ce"), epsilon=0.3, steps=1)
    assert found.status is fg.Status.NOT_CONVERGED
    assert "raise steps=" in found.message
    with pytest.raises(NotConvergedError):
        fg.measure(
            known_network("B/ce"),
            NAME,
            options={NAME: {"epsilon": 0.3, "steps": 1}},
            strict=True,
        )


def test_a_rise_that_rounding_hides():
    found = run(known_network("A/ce"), epsilon=1e-15)
    assert found.status is fg.Status.NOT_CONVERGED
    assert "raise epsilon=" in found.message
    assert found.value >= 0


def test_a_flat_function_has_none():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(-1.0)
    # All hidden units are dead, and stay so in the ball; only the last bias is felt.
    data = (torch.ones(1, 2), torch.zeros(1, dtype=torch.int64))
    objective = fg.Objective(model.double(), data, params=lambda n: n != "2.bias")
    found = run(objective)
    assert found.value == 0.0
    assert found.status is fg.Status.CONVERGED


def test_a_ball_too_large_for_the_loss():
    objective = fg.Objective(
        nn.Linear(2, 1).double(), (torch.ones(1, 2), torch.ones(1, 1)), "mse"
    )
    found = run(objective, epsilon=1e200)
    assert found.status is fg.Status.NOT_APPLICABLE
    assert "smaller ball" in found.message


def test_options_are_checked():
    with pytest.raises(OptionError, match=r"epsilon= is .* give a positive"):
        run(known_network("A/ce"), epsilon=-1.0)
