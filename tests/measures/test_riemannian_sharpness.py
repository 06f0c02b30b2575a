import pytest
import torch
from support.cases import CASES, known, known_network
from torch import nn

import flatgauge as fg
from flatgauge.errors import OptionError
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.permute import permute_units
from flatgauge.symmetry.maps.rescale import rescale_layers, rescale_nodes

NAME = "riemannian-sharpness"
METRICS = {"layer": "layer-rescale", "node": "node-rescale"}


def run(objective, **options):
    return fg.measure(objective, NAME, options={NAME: options})[NAME]


@pytest.mark.parametrize("case", ["A/ce", "B/ce"])
@pytest.mark.parametrize("metric", METRICS)
def test_quadratic_approximation(case, metric):
    objective = known_network(case)
    found = run(objective, metric=metric, tol=1e-12)
    top = known(case, f"riem_{metric}_lmax")
    expected = top * 1e-6 / (2 * (1 + objective.value()))
    assert found.details["quadratic"] == pytest.approx(expected, rel=1e-10)
    assert found.status is fg.Status.CONVERGED


def test_at_a_minimum_it_tends_to_the_quadratic_approximation():
    model = nn.Sequential(
        nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False)
    ).double()
    model[0].weight.data.fill_(2.0)
    model[2].weight.data.fill_(0.5)
    one = torch.ones(1, 1).double()
    objective = fg.Objective(
        model, (one, one), lambda out, t: 0.5 * (out - t).square().sum(1)
    )
    found = run(objective, epsilon=1e-4)
    assert found.details["quadratic"] == pytest.approx(1e-8, rel=1e-9)
    assert found.value == pytest.approx(1e-8, rel=1e-3)
    # In whitened coordinates L = ½((1+a)(1+b) − 1)², largest on the ball at a = b.
    exact = run(objective, epsilon=0.1)
    side = 0.1 / 2**0.5
    assert exact.value == pytest.approx(0.5 * ((1 + side) ** 2 - 1) ** 2, rel=1e-10)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["mlp", "lenet", "resnet", "attention"])
def test_rescalings_leave_it_alone(name, metric):
    objective = CASES[name].objective()
    group = fg.symmetries(objective, batchnorm="parameters")
    before = run(objective, metric=metric)
    for seed in range(2):
        element = group.random_element(seed, 0.5, METRICS[metric])
        twin = objective.at(group.act(objective.parameters, element))
        after = run(twin, metric=metric)
        assert after.value == pytest.approx(before.value, rel=1e-9)


@pytest.mark.parametrize("metric", METRICS)
def test_powers_of_two_change_nothing(metric):
    objective = known_network("A/ce")
    chain = Chain.of(objective.network.model)
    twin = objective.at(rescale_layers(objective.parameters, chain, (8.0, 0.125)))
    expected = run(objective, metric=metric).value
    assert run(twin, metric=metric).value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("epsilon", [1e-3, 0.02])
def test_permutations_leave_it_alone(metric, epsilon):
    objective = CASES["lenet"].objective()
    chain = Chain.of(CASES["lenet"].model())
    before = run(objective, metric=metric, epsilon=epsilon)
    assert before.status is fg.Status.CONVERGED
    for seed in range(2):
        params, random = objective.parameters, torch.Generator().manual_seed(seed)
        for layer in range(len(chain) - 1):
            units = params[chain.layers[layer].weight].shape[0]
            order = torch.randperm(units, generator=random)
            params = permute_units(params, chain, layer, order)
        after = run(objective.at(params), metric=metric, epsilon=epsilon)
        assert after.value == pytest.approx(before.value, rel=1e-9)


@pytest.mark.parametrize("metric", METRICS)
def test_shifts_of_the_output_leave_the_centred_one_alone(metric):
    objective = known_network("B/ce")
    *_, weight, bias = objective.parameters
    row = torch.tensor([0.5, -1.0]).double()
    twin = objective.at(
        {
            **objective.parameters,
            weight: objective.parameters[weight] + row,
            bias: objective.parameters[bias] + 2.0,
        }
    )
    options = {"metric": metric, "epsilon": 0.05}
    before, after = (run(o, center_output=True, **options) for o in (objective, twin))
    assert after.value == pytest.approx(before.value, rel=1e-9)
    assert run(twin, **options).value > 1.1 * run(objective, **options).value


def test_the_scale_of_the_output_under_the_normalized_loss():
    objective = known_network("A/ce").with_loss("normalized-cross-entropy")
    twin = objective.at({n: 3 * t for n, t in objective.parameters.items()})
    assert run(twin).value == pytest.approx(run(objective).value, rel=1e-9)


def test_node_rescaling_moves_the_layer_metric():
    objective = known_network("A/ce")
    chain = Chain.of(objective.network.model)
    scales = [torch.tensor([8.0, 1.0, 0.125]).double()]
    twin = objective.at(rescale_nodes(objective.parameters, chain, scales))
    assert run(twin).value > 1.1 * run(objective).value
    node = [run(o, metric="node").value for o in (objective, twin)]
    assert node[0] == pytest.approx(node[1], rel=1e-12)


def test_zero_tensors_drop_out():
    model = CASES["mlp"].model()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    objective = fg.Objective(model, CASES["mlp"].data())
    for metric in METRICS:
        found = run(objective, metric=metric)
        assert found.status is fg.Status.CONVERGED
        assert found.details["layers"]["0.bias"] < 1e-9


def test_too_few_steps_and_wrong_options():
    found = run(known_network("B/ce"), epsilon=0.3, steps=1)
    assert found.status is fg.Status.NOT_CONVERGED
    assert "raise steps=" in found.message
    with pytest.raises(OptionError, match="use 'layer' or 'node'"):
        run(known_network("A/ce"), metric="euclidean")


def test_deterministic_given_the_seed():
    objective = known_network("B/ce")
    first, again = run(objective), run(objective)
    assert again.value == pytest.approx(first.value, rel=1e-12)
    assert again.details.keys() == first.details.keys()


@pytest.mark.parametrize("metric", METRICS)
def test_under_the_normalized_loss_scaled_outputs_leave_it_alone(metric):
    objective = CASES["mlp"].objective("normalized-cross-entropy")
    name = f"{NAME}[metric={metric}]"
    found = fg.audit(objective, name, elements=1, sharpen_by=None)
    assert found.base[name].loss == "normalized-cross-entropy"
    rows = {row.kind: row for row in found.audit_rows}
    assert rows["output-scale"].claimed
    assert rows["output-scale"].verdict == "holds"
