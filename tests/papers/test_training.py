from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.small_nets import mlp, params_of
from torch import nn

from flatgauge.errors import ModelError, OptionError, VectorError
from flatgauge.vectors import generator
from papers.points import with_parameters
from papers.stacked import forward
from papers.training import Goal, Stack, train


def small_lenet(bias: bool = True) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=bias),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 2, stride=(1, 2), bias=bias),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8, 5, bias=bias),
        nn.Sequential(nn.ReLU(), nn.Linear(5, 3, bias=bias)),
    )


def without_biases() -> nn.Sequential:
    return small_lenet(bias=False)


def some_data(
    count: int = 22, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    random = generator(0)
    inputs = torch.randn(count, 1, 8, 8, generator=random, dtype=dtype)
    return inputs, torch.randint(3, (count,), generator=random)


def trained(build=small_lenet, seeds=(1, 2, 3), epochs=5, **options) -> Stack:
    inputs, targets = options.pop("data", None) or some_data()
    return train(
        build,
        inputs,
        targets,
        seeds=seeds,
        epochs=epochs,
        batch_size=8,
        learning_rate=1e-2,
        **options,
    )


def distance(stack: Stack, other: Stack, index: int, at: int) -> float:
    return max(
        float((values[index] - other.parameters[name][at]).abs().max())
        for name, values in stack.parameters.items()
    )


@pytest.mark.parametrize("build", [small_lenet, without_biases])
def test_outputs_are_those_of_each_network(build):
    inputs, _ = some_data()
    stack = trained(build, epochs=1)
    own = inputs.expand(3, *inputs.shape)
    outputs = forward(stack.model, stack.parameters, own)
    for index in range(3):
        expected = stack.unstack(index)(inputs)
        torch.testing.assert_close(outputs[index], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("build", [small_lenet, without_biases])
def test_together_is_as_alone(build):
    together = trained(build)
    for index, seed in enumerate((1, 2, 3)):
        alone = trained(build, seeds=(seed,))
        assert distance(together, alone, index, 0) < 1e-10
    assert distance(together, together, 0, 1) > 1e-2


def test_as_a_plain_loop_with_torchs_own_layers():
    inputs, targets = some_data()
    found = trained(seeds=(7,), epochs=3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        network = small_lenet().double()
        order = generator(int(torch.randint(2**62, ())))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(3):
        for rows in torch.randperm(22, generator=order).split(8):
            optimizer.zero_grad()
            F.cross_entropy(network(inputs[rows]), targets[rows]).backward()
            optimizer.step()
    for name, parameter in network.named_parameters():
        close = found.parameters[name][0]
        torch.testing.assert_close(close, parameter.detach(), rtol=1e-9, atol=1e-11)


def test_the_same_seeds_give_the_same_bits_and_leave_the_random_state_alone():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    first, again = trained(), trained()
    assert torch.equal(before, torch.random.get_rng_state())
    assert first.history == again.history
    for name, values in first.parameters.items():
        assert torch.equal(values, again.parameters[name])


def test_losses_and_accuracies():
    inputs, targets = some_data()
    stack = trained(every=3)
    losses, accuracies = stack.evaluate(inputs, targets)
    assert [entry["epoch"] for entry in stack.history] == [3, 5]
    assert stack.history[-1] == {"epoch": 5, "loss": losses, "accuracy": accuracies}
    for index in range(len(stack)):
        outputs = stack.unstack(index)(inputs).detach()
        assert losses[index] == pytest.approx(float(F.cross_entropy(outputs, targets)))
        right = (outputs.argmax(1) == targets).double().mean()
        assert accuracies[index] == pytest.approx(float(right))
    assert stack.epochs == [5, 5, 5]
    assert stack.reached is None


def test_each_network_is_taken_where_it_first_meets_the_goal():
    free = trained(epochs=60)
    limit = 0.5
    first = [
        next(e["epoch"] for e in free.history if e["loss"][index] < limit)
        for index in range(3)
    ]
    assert len(set(first)) > 1
    stopped = trained(epochs=60, goal=Goal(accuracy=0.0, loss=limit))
    assert stopped.epochs == first
    assert stopped.reached == [True] * 3
    assert stopped.history[-1]["epoch"] == max(first)
    for index, epoch in enumerate(first):
        then = trained(epochs=epoch)
        assert distance(stopped, then, index, index) == 0.0


def test_a_network_that_never_meets_the_goal_is_taken_at_the_end():
    found = trained(epochs=2, goal=Goal(accuracy=1.0, loss=1e-9))
    assert found.reached == [False] * 3
    assert found.epochs == [2, 2, 2]
    assert distance(found, trained(epochs=2), 1, 1) == 0.0


def test_unstacked_networks_share_nothing():
    stack = trained(epochs=1)
    network = stack.unstack(0)
    kept = stack.parameters["0.weight"].clone()
    with torch.no_grad():
        network[0].weight.zero_()
    assert torch.equal(stack.parameters["0.weight"], kept)
    assert float(stack.unstack(0)[0].weight.detach().abs().sum()) > 0


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding=1)), "padded"),
        (lambda: nn.Sequential(nn.Flatten(), nn.LayerNorm(64)), "LayerNorm"),
        (lambda: nn.Sequential(nn.BatchNorm2d(1)), "buffers"),
    ],
)
def test_what_a_stack_cannot_hold(network, message):
    with pytest.raises(ModelError, match=message):
        trained(network, epochs=1)


def test_nothing_to_train():
    with pytest.raises(OptionError, match="there must be a seed"):
        trained(seeds=())


@pytest.mark.gpu
@pytest.mark.parametrize("build", [small_lenet, without_biases])
def test_a_cuda_graph_trains_as_the_eager_step_and_as_the_cpu(build):
    data = tuple(tensor.cuda() for tensor in some_data())
    recorded = trained(build, epochs=10, data=data)
    eager = trained(build, epochs=10, data=data, graph=False)
    on_cpu = trained(build, epochs=10)
    for name, values in recorded.parameters.items():
        close = {"rtol": 1e-8, "atol": 1e-9}
        torch.testing.assert_close(values, eager.parameters[name], **close)
        torch.testing.assert_close(values.cpu(), on_cpu.parameters[name], **close)


def test_with_parameters_shares_nothing():
    net = mlp([2, 3, 1], seed=0)
    point = params_of(net)
    twin = with_parameters(net, {"0.weight": point["0.weight"] * 2})
    assert torch.equal(twin[0].weight, net[0].weight * 2)
    assert torch.equal(twin[2].weight, net[2].weight)
    with torch.no_grad():
        twin[2].weight.zero_()
    assert bool(net[2].weight.all())


@pytest.mark.parametrize(
    "params", [{"nowhere": torch.zeros(1)}, {"0.bias": torch.zeros(7)}]
)
def test_with_parameters_refuses_strangers(params):
    with pytest.raises(VectorError, match="named_parameters"):
        with_parameters(mlp([2, 3, 1], seed=0), params)


def test_networks_may_have_targets_of_their_own():
    inputs, targets = some_data()
    own = torch.stack([targets, targets.flip(0), targets])
    together = trained(data=(inputs, own))
    for index, labels in enumerate(own):
        alone = trained(seeds=(index + 1,), data=(inputs, labels))
        assert distance(together, alone, index, 0) < 1e-10
        loss, accuracy = alone.evaluate(inputs, labels)
        losses, accuracies = together.evaluate(inputs, own)
        assert losses[index] == pytest.approx(loss[0], rel=1e-10)
        assert accuracies[index] == accuracy[0]
