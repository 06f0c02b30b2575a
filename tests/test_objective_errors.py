from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from support.fifty import Table, X, Y, batches, net
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import flatgauge as fg
from flatgauge.errors import (
    DataError,
    LossError,
    ModelError,
    NonFiniteError,
    NotDeterministicError,
)


class TestBadInput:
    """One sentence each, and nothing changed."""

    def test_nan_weights(self):
        model = net()
        model[2].bias.data[1] = float("nan")
        with pytest.raises(
            NonFiniteError, match=r"'2.bias' has NaN.*load a checkpoint"
        ):
            fg.Objective(model, (X, Y))

    def test_a_loss_that_is_not_finite_names_its_batch(self):
        parts = batches(20, 20, 10)
        parts[1][0][3, 1] = float("inf")
        try:
            with pytest.raises(NonFiniteError, match="loss of batch 1 is nan"):
                fg.Objective(net(), parts)
        finally:
            parts[1][0][3, 1] = 0.0

    def test_a_derivative_that_is_not_finite_names_the_parameter(self):
        class Root(nn.Linear):
            def forward(self, x):
                return super().forward(x * 0).abs().sqrt()

        model = Root(4, 3, bias=False).double()
        objective = fg.Objective(model, (X, Y))
        with pytest.raises(NonFiniteError, match="gradient with respect to 'weight'"):
            objective.gradient()
        with pytest.raises(NonFiniteError, match=r"Hessian product .* 'weight'"):
            fg.Hessian(objective) @ objective.parameters

    @pytest.mark.parametrize("data", [[], (X[:0], Y[:0]), DataLoader([])])
    def test_empty_data(self, data):
        with pytest.raises(DataError, match="no sample with a valid target"):
            fg.Objective(net(), data)

    def test_all_targets_ignored(self):
        with pytest.raises(DataError, match="valid target"):
            fg.Objective(net(), (X, torch.full((50,), -100)))

    def test_one_shot_data(self):
        with pytest.raises(DataError, match="only once"):
            fg.Objective(net(), iter(batches(25, 25)))

    def test_data_that_run_out(self):
        class Once:
            def __init__(self):
                self.inner = iter(batches(25, 25))

            def __iter__(self):
                return self.inner

        with pytest.raises(NotDeterministicError, match="50 and 0 samples"):
            fg.Objective(net(), Once())

    def test_data_that_grow(self):
        class Growing:
            count = 0

            def __iter__(self):
                self.count += 1
                return iter(batches(25, 25)[: self.count])

        with pytest.raises(
            NotDeterministicError, match="25 and 50 samples in 1 and 2 batches"
        ):
            fg.Objective(net(), Growing())

    def test_outputs_that_do_not_fit(self):
        with pytest.raises(LossError, match="a target is 3, but the model has 3"):
            fg.Objective(net(), (X, Y + 1))
        with pytest.raises(LossError, match="targets of the outputs' shape"):
            fg.Objective(net(), (X, Y.double()), "mse")
        with pytest.raises(LossError, match=r"returned shape \(50, 3\)"):
            fg.Objective(net(), (X, Y), lambda f, y: f)

    def test_in_place_operations_that_break_derivatives(self):
        class Broken(nn.Linear):
            def forward(self, x):
                h = super().forward(x).sigmoid()
                return h.mul_(2)

        with pytest.raises(ModelError, match="without changing its input in place"):
            fg.Objective(Broken(4, 3).double(), (X, Y))


class TestDeterminism:
    """Two passes must agree."""

    def test_dropout_in_train_mode(self):
        model = nn.Sequential(net(), nn.Dropout(0.5))
        assert fg.Objective(model, (X, Y)).value() > 0
        with pytest.raises(NotDeterministicError, match="set dropout to 0"):
            fg.Objective(model, (X, Y), mode="train")

    @pytest.mark.parametrize("source", ["torch", "numpy", "python"])
    def test_random_augmentation(self, source):
        draws = {
            "torch": lambda: float(torch.rand(())),
            "numpy": np.random.rand,
            "python": random.random,
        }

        class Augmented(Table):
            def __getitem__(self, index):
                return X[index] + draws[source](), Y[index]

        with pytest.raises(NotDeterministicError, match="random augmentation"):
            fg.Objective(net(), Augmented(), batch_size=16)

    @pytest.mark.parametrize("own", [False, True])
    def test_shuffling_under_batch_statistics(self, own):
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
        options = {"generator": torch.Generator().manual_seed(0)} if own else {}
        loader = DataLoader(TensorDataset(X, Y), 16, shuffle=True, **options)
        assert fg.Objective(model, loader).value() > 0
        with pytest.raises(NotDeterministicError, match="stop shuffling"):
            fg.Objective(model, loader, mode="train")
        ordered = DataLoader(TensorDataset(X, Y), 16)
        assert fg.Objective(model, ordered, mode="train").value() > 0

    def test_rounding_of_a_tiny_loss_is_no_randomness(self):
        """Losses near 0 carry the rounding of large scores, and are accepted."""

        class Wobble(nn.Linear):
            def forward(self, x):
                noise = 1 + (torch.rand(1) - 0.5) * 2e-7
                return super().forward(x) * noise

        model = Wobble(2, 3, bias=False)
        model.weight.data = torch.tensor([[14.0, 0.0], [0.0, 14.0], [0.0, 0.0]])
        data = (torch.eye(2), torch.tensor([0, 1]))
        assert fg.Objective(model, data).value() < 1e-5
        data = (torch.eye(2), torch.tensor([[14.0, 0, 0], [0, 14.0, 0]]))
        assert fg.Objective(model, data, "mse").value() < 1e-10


def test_tensors_that_are_not_dense():
    x, y = torch.eye(3), torch.zeros(3, 2)
    ragged = torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged
    )
    for inputs in (x.to_sparse(), ragged):
        for data in ((inputs, y), [(inputs, y)]):
            with pytest.raises(DataError, match="not dense"):
                fg.Objective(nn.Linear(3, 2), data, loss="mse")


def test_complex_targets():
    data = (torch.eye(3), torch.ones(3, 2) * 1j)
    with pytest.raises(LossError, match="complex"):
        fg.Objective(nn.Linear(3, 2), data, loss="mse")
