from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import flatgauge as fg
from flatgauge.errors import OptionError, VectorError
from flatgauge.landscapes import landscape
from flatgauge.vectors import gaussian, generator


def chain(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)]
    return nn.Sequential(*layers).double()


def data() -> tuple[torch.Tensor, torch.Tensor]:
    random = generator(1)
    inputs = torch.randn(12, 3, generator=random, dtype=torch.float64)
    return inputs, torch.randint(0, 3, (12,), generator=random)


def rescaled(model: nn.Sequential, first: float, second: float) -> nn.Sequential:
    """The same function: layers times first, second / first, 1 / second."""
    twin = chain()
    twin.load_state_dict(model.state_dict())
    state = twin.state_dict()
    for index, total in ((0, first), (2, second), (4, 1.0)):
        before = {0: 1.0, 2: first, 4: second}[index]
        state[f"{index}.weight"].mul_(total / before)
        state[f"{index}.bias"].mul_(total)
    return twin


def quadratic() -> tuple[fg.Objective, torch.Tensor]:
    """L(w) = w H w / 2 at a chosen point, as the mean squared error of a linear map."""
    inputs = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64)
    model = nn.Linear(2, 1, bias=False).double()
    model.weight.data = torch.tensor([[0.5, -2.0]], dtype=torch.float64)
    targets = torch.zeros(2, 1, dtype=torch.float64)
    return fg.Objective(model, (inputs, targets), loss="mse"), inputs.T @ inputs


@pytest.mark.parametrize("normalize", ["layer", "filter", "none"])
@pytest.mark.parametrize("directions", ["random", "eigenvectors"])
@pytest.mark.parametrize("dimensions", [1, 2])
def test_the_middle_is_the_objective_itself(normalize, directions, dimensions):
    objective = fg.Objective(chain(), data())
    found = landscape(objective, normalize, directions, points=3, dimensions=dimensions)
    assert found.losses.shape == (3,) * dimensions
    middle = found.losses[(1,) * dimensions].item()
    assert middle == pytest.approx(objective.value(), rel=1e-13)
    assert [axis[1].item() for axis in found.axes] == [0.0] * dimensions


def test_layer_normalized_curves_do_not_see_layer_rescaling():
    model = chain()
    twin = rescaled(model, 7.0, 0.2)
    inputs, _ = data()
    assert torch.allclose(model(inputs), twin(inputs), rtol=1e-12)
    mine, theirs = fg.Objective(model, data()), fg.Objective(twin, data())
    for normalize, moved in (("layer", False), ("none", True)):
        curves = [
            landscape(one, normalize, points=9, seed=3).losses for one in (mine, theirs)
        ]
        assert torch.allclose(*curves, rtol=1e-10) is not moved


def test_filters_take_the_norm_of_their_row():
    objective = fg.Objective(chain(), data())
    direction = gaussian(objective.parameters, generator(5))
    found = landscape(objective, "filter", [direction], points=2, span=0.5)
    moved = {}
    for name, tensor in objective.parameters.items():
        v = direction[name]
        if tensor.ndim == 1:
            unit = v * tensor.norm() / v.norm()
        else:
            unit = torch.stack(
                [b * a.norm() / b.norm() for a, b in zip(tensor, v, strict=True)]
            )
        moved[name] = tensor + 0.5 * unit
    expected = objective.at(moved).value()
    assert found.losses[1].item() == pytest.approx(expected, rel=1e-12)


def test_a_quadratic_gives_a_parabola():
    objective, hessian = quadratic()
    direction = torch.tensor([[2.0, 1.0]], dtype=torch.float64)
    found = landscape(objective, "none", [{"weight": direction}], points=11, span=3.0)
    w, v = objective.parameters["weight"][0], direction[0]
    for t, loss in zip(found.axes[0].tolist(), found.losses.tolist(), strict=True):
        point = w + t * v
        assert loss == pytest.approx(float(point @ hessian @ point) / 2, rel=1e-12)


def test_along_an_eigenvector_the_curvature_is_the_eigenvalue():
    objective, hessian = quadratic()
    whitened = float(objective.parameters["weight"].norm()) ** 2 * hessian
    for normalize, matrix in (("none", hessian), ("layer", whitened)):
        found = landscape(objective, normalize, "eigenvectors", points=3)
        left, middle, right = found.losses.tolist()
        largest = torch.linalg.eigvalsh(matrix)[-1].item()
        assert left + right - 2 * middle == pytest.approx(largest, rel=1e-5)
        assert found.eigenvalues[0] == pytest.approx(largest, rel=1e-5)


def test_between_checkpoints_it_ends_at_both():
    one, other = (fg.Objective(chain(seed), data()) for seed in (0, 1))
    found = landscape(one, directions=other, points=5)
    assert found.axes[0].tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert found.losses[0].item() == pytest.approx(one.value(), rel=1e-13)
    assert found.losses[-1].item() == pytest.approx(other.value(), rel=1e-12)
    beyond = landscape(one, directions=other.parameters, points=4, span=3.0)
    assert beyond.axes[0].tolist() == [-1.0, 0.0, 1.0, 2.0]
    assert beyond.losses[1].item() == pytest.approx(one.value(), rel=1e-13)


def test_different_buffers_are_refused_between_checkpoints():
    def model(seed):
        torch.manual_seed(seed)
        norm = nn.BatchNorm1d(3)
        norm.running_mean = torch.randn(3)
        return nn.Sequential(nn.Linear(3, 3), norm).double()

    one, other = (fg.Objective(model(seed), data()) for seed in (0, 1))
    with pytest.raises(OptionError, match=r"buffer '1\.running_mean'.*mode='train'"):
        landscape(one, directions=other)
    one, other = (fg.Objective(model(s), data(), mode="train") for s in (0, 1))
    found = landscape(one, directions=other, points=3)
    assert found.losses[-1].item() == pytest.approx(other.value(), rel=1e-12)


def test_seeds_decide_and_the_global_state_is_left_alone():
    objective = fg.Objective(chain(), data())
    state = torch.get_rng_state()
    first, again, other = (
        landscape(objective, points=3, seed=seed).losses for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_losses_that_overflow_become_none():
    objective, _ = quadratic()
    found = landscape(objective, points=3, span=1e200)
    assert math.isnan(found.losses[0])
    left, middle, right = found.to_dict()["losses"]
    assert left is right is None
    assert middle == pytest.approx(objective.value(), rel=1e-13)


def test_progress_is_told_of_every_point():
    objective, _ = quadratic()
    seen = []
    landscape(
        objective,
        points=3,
        dimensions=2,
        progress=lambda what, index, count: seen.append((index, count)),
    )
    assert seen == [(index, 9) for index in range(9)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"normalize": "rows"}, "normalize= is 'rows'"),
        ({"directions": "upwards"}, "directions= is 'upwards'"),
        ({"directions": []}, "0 directions were given for 1 dimensions"),
        ({"dimensions": 3}, "dimensions= is 3"),
        ({"points": 1}, "points= is 1"),
        ({"span": -1.0}, r"span= is -1\.0"),
        ({"span": math.inf}, "span= is inf"),
    ],
)
def test_bad_arguments_are_told_in_a_sentence(arguments, message):
    objective, _ = quadratic()
    with pytest.raises(OptionError, match=message):
        landscape(objective, **arguments)


def test_a_line_has_no_second_dimension():
    objective, _ = quadratic()
    with pytest.raises(OptionError, match="span a line"):
        landscape(objective, directions=objective.parameters, dimensions=2)


def test_directions_must_fit():
    objective, _ = quadratic()
    with pytest.raises(VectorError, match="missing 'weight'"):
        landscape(objective, directions=[{"other": torch.zeros(1)}])
