"""Checks of the library as users have it, without the type checks of the test run.

Those refuse arguments of a wrong type before flatgauge can, and draw from Python's
random state. test_plain.py runs this file in a process of its own.
"""

from __future__ import annotations

import random
import sys
from functools import partial

import numpy as np
import pytest
import torch
from support.untouched import disturb, global_state, model_state
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import flatgauge as fg
from flatgauge.errors import (
    DataError,
    LossError,
    ModelError,
    OptionError,
    VectorError,
)
from flatgauge.integrations.monitor import FlatnessMonitor

X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 0, 1, 2])


class Noisy(nn.Module):
    """Draws from every generator, and fails when it is told to."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)
        self.calls_left = [10**6]
        self.error = RuntimeError

    def __deepcopy__(self, memo):
        twin = Noisy()
        twin.load_state_dict(self.state_dict())
        twin.calls_left, twin.error = self.calls_left, self.error
        return twin

    def forward(self, x):
        disturb()
        self.calls_left[0] -= 1
        if self.calls_left[0] < 0:
            raise self.error("stopped")
        return self.norm(self.linear(x))


def everything(objective: fg.Objective) -> None:
    vector = objective.gradient()
    for operator in (fg.Hessian, fg.GaussNewton, fg.Fisher):
        operator(objective) @ vector
    fg.hessian_diagonal(objective)
    fg.hessian_diagonal(objective, "hutchinson", probes=2)
    objective.at(vector).value()


def test_a_monitor_changes_nothing():
    model = Noisy()
    monitor = FlatnessMonitor((X, Y), every=1, share=0.99)
    monitor.start()
    monitor._started -= 1e6
    before = model_state(model), global_state(), random.getstate()
    assert monitor(model, 1)
    assert (model_state(model), global_state(), random.getstate()) == before


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("calls", [0, 1, 3, 7, 12, 20])
def test_nothing_is_changed(error, calls):
    if error is None and calls:
        pytest.skip("one run without an error is enough")
    torch.manual_seed(0)
    random.seed(0)
    model = Noisy()
    model.linear.weight.grad = torch.ones(3, 2)
    model.linear.bias.requires_grad_(False)
    model.norm.eval()
    model.register_forward_hook(lambda *_: None)
    own = torch.Generator().manual_seed(1)
    loader = DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True, generator=own)
    before = model_state(model), global_state(), random.getstate()
    own_before = own.get_state()
    if error is None:
        everything(fg.Objective(model, loader))
    else:
        model.calls_left, model.error = [calls], error
        expected = KeyboardInterrupt if error is KeyboardInterrupt else ModelError
        with pytest.raises(expected, match="stopped"):
            everything(fg.Objective(model, loader))
    assert model_state(model) == before[0]
    assert global_state() == before[1]
    assert random.getstate() == before[2]
    assert torch.equal(own.get_state(), own_before)


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: fg.Objective("net", (X, Y)), ModelError, "model= is str"),
        (lambda: fg.Objective(nn.Linear(2, 3), 7), DataError, "data= is int"),
        (lambda: fg.Objective(nn.Linear(2, 3), (X, Y), 7), LossError, "loss= is int"),
        (
            lambda: fg.Objective(nn.Linear(2, 3), (X, Y), mode=None),
            OptionError,
            "mode= is 'None'",
        ),
        (
            lambda: fg.compare([nn.Linear(2, 3), nn.Linear(2, 3)]),
            OptionError,
            "'1' is Linear: give an Objective",
        ),
        (lambda: fg.series("net", (X, Y), "run"), ModelError, "model= is str"),
        *(
            (
                partial(fg.series, nn.Linear(2, 3), (X, Y), given),
                ModelError,
                rf"named by {kind}: give paths",
            )
            for given, kind in (
                (3, "int"),
                (None, "NoneType"),
                ([1], "int"),
                ([{"weight": X}], "dict"),
                ({"run": {"weight": X}}, "dict"),
            )
        ),
    ],
)
def test_arguments_of_a_wrong_type(build, error, words):
    with pytest.raises(error, match=words):
        build()


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        (torch.zeros(9), "a vector is Tensor: give a mapping"),
        (torch.tensor(0.0), "a vector is Tensor"),
        ([torch.zeros(9)], "a vector is Tensor"),
        ({"weight": np.zeros((3, 2)), "bias": np.zeros(3)}, "'weight' is ndarray"),
        ({"weight": 1.0, "bias": 2.0}, "'weight' is float"),
    ],
)
def test_vectors_of_a_wrong_type(vector, words):
    objective = fg.Objective(nn.Linear(2, 3), (X, Y))
    with pytest.raises(VectorError, match=words):
        fg.Hessian(objective) @ vector
    if not isinstance(vector, list):
        with pytest.raises(VectorError, match=words):
            objective.at(vector)


@pytest.mark.parametrize("requests", [(3,), (["hessian-trace", None],)])
def test_requests_that_are_no_names(requests):
    objective = fg.Objective(nn.Linear(2, 3), (X, Y))
    two = {"a": objective, "b": objective}
    for run in (fg.measure, fg.audit):
        with pytest.raises(OptionError, match="give names of measures"):
            run(objective, *requests)
    with pytest.raises(OptionError, match="give names of measures"):
        fg.compare(two, *requests)


def test_only_torch_numpy_and_scipy_are_imported():
    heavy = {
        "typer",
        "rich",
        "jinja2",
        "matplotlib",
        "pandas",
        "sklearn",
        "jaxtyping",
        "transformers",
    }
    code = (
        "import sys; sys.modules['jaxtyping'] = None; import flatgauge; "
        f"print(sorted({heavy!r} & set(sys.modules) - {{'jaxtyping'}}))"
    )
    import subprocess

    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
