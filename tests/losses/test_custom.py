from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from flatgauge.errors import LossError
from flatgauge.losses import CallableLoss
from flatgauge.vectors import generator


class TestCallable:
    """A user's function of outputs and targets."""

    def test_a_mean_counts_for_its_samples(self):
        loss = CallableLoss(lambda f, y: F.mse_loss(f, y))
        total, count = loss.total(torch.full((4, 2), 3.0), torch.zeros(4, 2))
        assert (float(total), count) == (36.0, 4)

    def test_a_mean_over_tokens_counts_for_the_valid_ones(self):
        targets = torch.tensor([[0, -100, 1], [2, 1, -100]])
        outputs = torch.randn(2, 4, 3, generator=generator(0))
        loss = CallableLoss(F.cross_entropy)
        total, count = loss.total(outputs, targets)
        assert count == 4
        expected = F.cross_entropy(outputs, targets, reduction="sum")
        assert float(total) == pytest.approx(float(expected), rel=1e-6)

    def test_values_are_summed(self):
        loss = CallableLoss(lambda f, y: (f - y).square().sum(1))
        total, count = loss.total(torch.full((4, 2), 3.0), torch.zeros(4, 2))
        assert (float(total), count) == (72.0, 4)

    def test_one_value_a_sample_for_token_outputs(self):
        loss = CallableLoss(
            lambda f, y: F.cross_entropy(f, y, reduction="none").mean(1)
        )
        _, count = loss.total(torch.randn(2, 4, 3), torch.zeros(2, 3).long())
        assert count == 2

    @pytest.mark.parametrize(
        ("outputs", "targets", "expected"),
        [
            (torch.zeros(5, 2), (torch.zeros(5), torch.zeros(5)), 5),
            ({"a": torch.zeros(5, 2)}, None, 5),
            (torch.tensor(1.0), {"x": torch.zeros(6, 2)}, 6),
            (torch.tensor(1.0), [torch.tensor(0.0), torch.zeros(7)], 7),
            (torch.tensor(1.0), None, 1),
        ],
    )
    def test_samples_are_counted_inside_nested_values(self, outputs, targets, expected):
        loss = CallableLoss(lambda f, y: torch.tensor(2.0))
        assert loss.total(outputs, targets)[1] == expected

    def test_nothing_valid_adds_nothing(self):
        targets = torch.full((2, 3), -100)
        total, count = CallableLoss(F.cross_entropy).total(
            torch.randn(2, 4, 3), targets
        )
        assert (float(total), count) == (0.0, 0)

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            (torch.zeros(3, 2), r"returned shape \(3, 2\) for a batch of 3"),
            (torch.zeros(5), r"returned shape \(5,\)"),
            (1.5, "returned float, not a floating tensor"),
            (torch.tensor(1), "returned Tensor, not a floating tensor"),
            (None, "returned NoneType"),
        ],
    )
    def test_wrong_shapes_are_refused(self, value, words):
        def constant(outputs, targets):
            return value

        with pytest.raises(LossError, match=f"'constant' {words}"):
            CallableLoss(constant).total(torch.zeros(3, 2), torch.zeros(3, 2))

    def test_failures_are_told_with_the_shapes(self):
        loss = CallableLoss(lambda f, y: (f - y).mean())
        with pytest.raises(LossError, match=r"failed on .*\[\(3, 2\), \(4, 5\)\]"):
            loss.total(torch.zeros(3, 2), torch.zeros(4, 5))
