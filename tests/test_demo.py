from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.pages import CHROMIUM, look

import flatgauge as fg
from flatgauge import demo
from flatgauge.datasets import digits
from flatgauge.report.page import render
from flatgauge.vocabulary import Kind


@pytest.fixture(scope="module")
def data():
    images, labels = digits(demo.TRAIN)
    return images.double(), labels


def test_training_ends_at_the_loss_that_both_have(data):
    state = torch.get_rng_state()
    model = demo.train(*data, start=1.0)
    images, labels = data
    loss = float(F.cross_entropy(model(images), labels).detach())
    assert loss == pytest.approx(demo.LOSS, rel=1e-9)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(demo.SEEDS_TRIED))
def test_the_trustworthy_measures_agree_for_every_seed_that_is_named(data, seed):
    found = fg.compare(
        {
            name: fg.Objective(demo.train(*data, start, seed), data)
            for name, start in demo.STARTS.items()
        }
    )
    solid = [
        row for row in found.comparison_rows if Kind.NODE_RESCALE in row.invariant_to
    ]
    assert len(solid) == 4
    assert {(row.flatter, row.significant) for row in solid} == {("usual start", True)}


@pytest.mark.slow
def test_the_demonstration_answers_and_fits(tmp_path):
    found = demo.demonstrate()
    made = found.report.extras["made"]
    assert "by hessian-trace and hessian-spectral-norm it is sharper than" in made
    text = demo.summary(found)
    assert made in text
    page = render(found.report.to_dict())
    assert len(page.encode()) < 1_500_000
    assert "<h1>“usual start” is flatter, by all 4 trustworthy measures.</h1>" in page
    if CHROMIUM is not None:
        seen = look(page, tmp_path, 1280)
        assert seen["problems"] == seen["console"] == seen["wide"] == []
        assert 0 < seen["above"] <= 3 * 900
