from __future__ import annotations

import math
from itertools import islice

import pytest
import torch
import torch.nn.functional as F
from support.cases import KNOWN

from flatgauge.errors import LossError
from flatgauge.losses import NAMED, resolve_loss
from flatgauge.vectors import generator

FORMS = KNOWN["closed_forms"]
CLASSIFICATION = ["cross-entropy", "normalized-cross-entropy"]


def example(name: str, classes: int, count: int = 5, seed: int = 0):
    random = torch.Generator().manual_seed(seed)
    outputs = torch.randn(count, classes, generator=random, dtype=torch.float64) * 2
    if name == "mse":
        return outputs, torch.randn(count, classes, generator=random).double()
    return outputs, torch.randint(0, classes, (count,), generator=random)


def hessians(loss, rows) -> torch.Tensor:
    """∇²_f ℓ of each row by differentiating its value twice."""
    found = []
    for index in range(rows.outputs.shape[0]):

        def value(f, index=index):
            one = type(rows)(f[None], rows.targets[index : index + 1], rows.samples[:1])
            return loss.values(one)[0]

        found.append(torch.autograd.functional.hessian(value, rows.outputs[index]))
    return torch.stack(found)


@pytest.mark.parametrize("logits", [(1, 2, -0.5), (10, 13, 5.5)])
@pytest.mark.parametrize("label", [0, 1, 2])
def test_normalized_cross_entropy_known_answers(logits, label):
    loss = resolve_loss("normalized-cross-entropy")
    outputs = torch.tensor([logits], dtype=torch.float64)
    total, count = loss.total(outputs, torch.tensor([label]))
    expected = float(FORMS["nCE(20) logits (1,2,-1/2)"][str(label)])
    assert count == 1
    assert float(total) == pytest.approx(expected, rel=1e-12)


def test_normalized_cross_entropy_has_a_lower_bound():
    one_hot = torch.eye(10, dtype=torch.float64)[:1] * 1e3
    total, _ = resolve_loss("normalized-cross-entropy").total(
        one_hot, torch.tensor([0])
    )
    key = "nCE lower bound K=10: ln(1+9 exp(-10/3))"
    assert float(total) == pytest.approx(float(FORMS[key]), rel=1e-12)


@pytest.mark.parametrize("classes", [3, 4, 7, 40])
@pytest.mark.parametrize("name", [*CLASSIFICATION, "mse"])
def test_hessian_columns_are_the_hessian(name, classes):
    loss = NAMED[name]()
    rows = loss.rows(*example(name, classes))
    columns, signs = loss.hessian_columns(rows)
    built = torch.einsum("mkr,mr,mlr->mkl", columns, signs, columns)
    assert set(signs.unique().tolist()) <= {-1.0, 1.0}
    torch.testing.assert_close(built, hessians(loss, rows), rtol=0, atol=1e-13)


@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("name", ["cross-entropy", "mse"])
def test_hessian_columns_of_few_outputs(name, classes):
    loss = NAMED[name]()
    rows = loss.rows(*example(name, classes))
    columns, signs = loss.hessian_columns(rows)
    built = torch.einsum("mkr,mr,mlr->mkl", columns, signs, columns)
    torch.testing.assert_close(built, hessians(loss, rows), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("cross-entropy", 4),
        ("normalized-cross-entropy", 4),
        ("normalized-cross-entropy", 300),
        ("mse", 4),
    ],
)
def test_hessian_probes_are_unbiased(name, classes):
    loss = NAMED[name]()
    rows = loss.rows(*example(name, classes, count=2))
    random, draws = generator(0), 4000 if classes < 10 else 1500
    total = torch.zeros(2, classes, classes, dtype=torch.float64)
    squares = torch.zeros_like(total)
    for plus, minus in islice(loss.hessian_probes(rows, random), draws):
        share = plus[:, :, None] * plus[:, None, :]
        if minus is not None:
            share = share - minus[:, :, None] * minus[:, None, :]
        total += share
        squares += share**2
    mean = total / draws
    error = ((squares / draws - mean**2).clamp_min(0) / draws).sqrt()
    distance = (mean - hessians(loss, rows)).abs()
    assert bool((distance <= 5.5 * error + 1e-13).all())


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_fisher_product_is_the_expectation_over_classes(name):
    loss = NAMED[name]()
    outputs, targets = example(name, 4, count=1)
    rows = loss.rows(outputs, targets)
    expected = torch.zeros(4, 4, dtype=torch.float64)
    for label in range(4):
        f = outputs.clone().requires_grad_()
        value = loss.total(f, torch.tensor([label]))[0]
        slope = torch.autograd.grad(value, f)[0][0]
        expected += torch.exp(-value.detach()) * torch.outer(slope, slope)
    units = torch.eye(4, dtype=torch.float64)
    found = torch.stack([loss.fisher_product(rows, u[None])[0] for u in units])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


def test_sampled_targets_follow_the_model():
    loss = resolve_loss("cross-entropy")
    outputs = torch.tensor([[1.0, 0.0, -1.0]]).double().expand(4000, 3)
    rows = loss.rows(outputs, torch.zeros(4000, dtype=torch.long))
    drawn = loss.sample_targets(rows, generator(0)).targets
    frequencies = drawn.bincount(minlength=3) / 4000
    p = outputs[0].softmax(-1)
    assert bool(((frequencies - p).abs() < 5 * (p * (1 - p) / 4000).sqrt()).all())


def test_sampled_squared_error_has_variance_half_the_outputs():
    loss = resolve_loss("mse")
    rows = loss.rows(torch.ones(4000, 4).double(), torch.zeros(4000, 4))
    noise = loss.sample_targets(rows, generator(0)).targets - 1
    assert float(noise.var()) == pytest.approx(2.0, rel=0.1)
    assert abs(float(noise.mean())) < 5 * math.sqrt(2 / 16000)


def test_ignored_targets_are_left_out():
    outputs = torch.randn(2, 3, 4, generator=generator(0)).double()
    targets = torch.tensor([[0, -100, 2], [-100, -100, 3]])
    loss = resolve_loss("cross-entropy")
    total, count = loss.total(outputs, targets)
    expected = F.cross_entropy(
        outputs.flatten(0, 1), targets.flatten(), reduction="sum"
    )
    rows = loss.rows(outputs, targets)
    assert count == 3
    assert rows.samples.tolist() == [0, 0, 1]
    assert float(total) == pytest.approx(float(expected), rel=1e-13)


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_a_batch_without_valid_targets_adds_nothing(name):
    total, count = NAMED[name]().total(torch.randn(2, 4), torch.tensor([-100, -100]))
    assert (float(total), count) == (0.0, 0)


def test_classes_in_the_second_dimension():
    outputs = torch.randn(2, 5, 3, 4, generator=generator(0))
    targets = torch.randint(0, 5, (2, 3, 4), generator=generator(1))
    total, count = resolve_loss("cross-entropy").total(outputs, targets)
    assert count == 24
    expected = F.cross_entropy(outputs, targets, reduction="sum")
    assert float(total) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 3), (2, 4, 4, 4)])
def test_ambiguous_layouts_are_refused(shape):
    targets = torch.zeros(shape[0], *shape[2:], dtype=torch.long)
    with pytest.raises(
        LossError, match="dimension 1 or in the last one: pass forward="
    ):
        resolve_loss("cross-entropy").total(torch.zeros(shape), targets)


@pytest.mark.parametrize(
    ("outputs", "targets", "words"),
    [
        (torch.zeros(3), torch.zeros(3).long(), r"\[batch, classes\]"),
        ({"a": torch.zeros(3, 2)}, torch.zeros(3).long(), "pass forward="),
        (torch.zeros(3, 2), torch.zeros(3), "integer class targets"),
        (torch.zeros(3, 2), [0, 1, 0], "integer class targets"),
        (torch.zeros(3, 2), torch.zeros(4).long(), "do not fit targets"),
        (torch.zeros(3, 2), torch.tensor([0, 1, 2]), "a target is 2.* 0 to 1"),
        (torch.zeros(3, 2), torch.tensor([0, -1, 0]), "a target is -1"),
    ],
)
@pytest.mark.parametrize("name", CLASSIFICATION)
def test_classification_refuses(name, outputs, targets, words):
    with pytest.raises(LossError, match=words):
        NAMED[name]().total(outputs, targets)


@pytest.mark.parametrize("common", [0.0, 100.0])
def test_what_all_scores_have_in_common_costs_few_digits(common):
    """In float32, the slopes and a product with their derivatives, against float64."""
    scores = torch.tensor([[0.5, -1.0, 0.25, 2.0], [1.5, 1.25, -0.5, 0.0]])
    rounded = scores + common
    along, targets = torch.tensor([[1.0, 2.0, -1.0, 0.5]]), torch.tensor([1, 3])
    found = []
    for dtype in (torch.float32, torch.float64):
        point = rounded.to(dtype).requires_grad_()
        loss = resolve_loss("normalized-cross-entropy")
        total = loss.total(point, targets)[0]
        (slope,) = torch.autograd.grad(total, point, create_graph=True)
        (bend,) = torch.autograd.grad((slope * along.to(dtype)).sum(), point)
        found.append(torch.stack([slope.detach(), bend]).double())
    assert torch.allclose(found[0], found[1], rtol=0.0, atol=2e-6)


def test_normalized_cross_entropy_refuses_two_classes():
    with pytest.raises(
        LossError, match=r"piecewise constant for 2 classes.*cross-entropy"
    ):
        resolve_loss("normalized-cross-entropy").total(
            torch.randn(3, 2), torch.zeros(3).long()
        )


def test_normalized_cross_entropy_refuses_equal_scores():
    outputs = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.5, 0.5]])
    with pytest.raises(
        LossError, match=r"all class scores are equal, as in 1 of 2 rows"
    ):
        resolve_loss("normalized-cross-entropy").total(outputs, torch.tensor([0, 1]))


def test_squared_error_takes_a_missing_last_dimension():
    total, count = resolve_loss("mse").total(torch.ones(3, 1), torch.zeros(3))
    assert (float(total), count) == (3.0, 3)


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (torch.zeros(3, 2), torch.zeros(3)),
        (torch.zeros(3), torch.zeros(3, 1)),
        (torch.tensor(0.0), torch.tensor(0.0)),
        ([torch.zeros(3)], torch.zeros(3)),
    ],
)
def test_squared_error_refuses(outputs, targets):
    with pytest.raises(LossError, match="targets of the outputs' shape"):
        resolve_loss("mse").total(outputs, targets)


def test_losses_are_found_by_name():
    assert [resolve_loss(name).name for name in NAMED] == list(NAMED)
    loss = resolve_loss("mse")
    assert resolve_loss(loss) is loss
    with pytest.raises(
        LossError, match=r"'hinge' is not known.*'cross-entropy'.*callable"
    ):
        resolve_loss("hinge")


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_ignored_rows_may_hold_anything(name):
    """Padding often has equal scores, where the normalized loss is not defined."""
    outputs = torch.randn(3, 4, generator=generator(0)).double()
    outputs[1] = 0.5
    outputs.requires_grad_()
    targets = torch.tensor([0, -100, 2])
    loss = NAMED[name]()
    kept = torch.tensor([0, 2])
    expected = loss.total(outputs[kept], targets[kept])[0]
    slope = torch.autograd.grad(expected, outputs)[0]
    for value in (loss.total(outputs, targets)[0], loss.sum(outputs, targets)):
        assert float(value.detach()) == pytest.approx(
            float(expected.detach()), rel=1e-13
        )
        found = torch.autograd.grad(value, outputs)[0]
        torch.testing.assert_close(found, slope, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", [*CLASSIFICATION, "mse"])
def test_the_sum_is_the_total(name):
    outputs, targets = example(name, 5)
    loss = NAMED[name]()
    assert float(loss.sum(outputs, targets)) == pytest.approx(
        float(loss.total(outputs, targets)[0]), rel=1e-13
    )


@pytest.mark.parametrize("label", [0, 1, 2])
@pytest.mark.parametrize("margin", [10.0, 20.0, 40.0, 60.0])
def test_curvature_of_almost_certain_samples_in_float32(margin, label):
    """p (1 - p) for p near 1, right or wrong, where log-softmax has lost every digit."""
    found = {}
    for dtype in (torch.float32, torch.float64):
        scores = torch.tensor([[margin, 0.0, 1.0]], dtype=dtype)
        labels = torch.tensor([label])
        loss = resolve_loss("cross-entropy")
        vector = torch.tensor([[1.0, -2.0, 0.5]], dtype=dtype)
        slope = torch.func.grad(lambda s, y=labels, one=loss: one.sum(s, y))
        curved = torch.func.jvp(slope, (scores,), (vector,))[1]
        fisher = loss.fisher_product(loss.rows(scores, labels), vector)
        assert torch.allclose(fisher, curved, rtol=1e-4, atol=0)
        columns, _ = loss.hessian_columns(loss.rows(scores, labels))
        squared = torch.einsum("mkr,mlr,ml->mk", columns, columns, vector)
        assert torch.allclose(squared, curved, rtol=1e-4, atol=0)
        found[dtype] = torch.cat([slope(scores), curved]).double()
    single, double = found.values()
    assert torch.allclose(single, double, rtol=1e-4, atol=0)
