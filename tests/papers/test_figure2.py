"""Figure 2: the curves are those of the stored numbers, and so are the sentences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.made_up_cifar import (
    AXIS,
    CIFAR,
    as_in_the_paper,
    geometric,
    parts,
    reversed_sides,
    stored,
)

from papers.completeness import IN_PART
from papers.rangamani2019 import cifar_findings, figure2, figure2_section
from papers.rangamani2019.lines import NORMALIZATIONS

AUTHORS = [run for run in CIFAR if parts(run)[:2] == ("authors", "alexnet")]


@pytest.fixture
def results(tmp_path):
    return stored(tmp_path, runs=AUTHORS, mnist=False)


def test_the_drawn_curves_are_the_stored_numbers(results, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        figure2, "save", lambda figure, path: drawn.setdefault(path.name, figure)
    )
    figure2.draw(results, tmp_path)
    assert list(drawn) == ["figure2-authors-alexnet.svg"]
    panels = drawn["figure2-authors-alexnet.svg"].axes
    (cell,) = figure2.cells(results)
    assert [panel.get_title() for panel in panels] == [
        f"{name}-normalized" for name in NORMALIZATIONS
    ]
    for panel, normalize in zip(panels, NORMALIZATIONS, strict=True):
        for line, side in zip(panel.lines, (cell.small, cell.large), strict=True):
            every = [one for n in side for one in n["lines"][normalize]]
            assert len(every) == 40
            mean = [geometric(one[k] for one in every) for k in range(21)]
            np.testing.assert_allclose(line.get_xdata(), AXIS)
            np.testing.assert_allclose(line.get_ydata(), mean)
        labels = [line.get_label() for line in panel.lines]
        assert labels == ["batches of 256, 40 lines", "batches of 2000, 40 lines"]


def test_the_band_is_one_standard_deviation_of_logarithms(results):
    (cell,) = figure2.cells(results)
    found = figure2.curve(cell.small, "layer")
    logs = [math.log(one[0]) for n in cell.small for one in n["lines"]["layer"]]
    assert found.lines == 40
    assert math.log(found.high[0] / found.mean[0]) == pytest.approx(
        np.std(logs, ddof=1)
    )
    assert math.log(found.mean[0] / found.low[0]) == pytest.approx(np.std(logs, ddof=1))


def test_heights_by_hand(results):
    (cell,) = figure2.cells(results)
    # Lines are loss + steep t² (1 + k / 10), with steep = 10 and 1.
    rise = figure2.compare_at(cell, "layer", 0.5, rise=True)
    assert rise.ratio == pytest.approx(10)
    assert (rise.pairs, rise.small_is_smaller) == (8, 8)
    assert figure2.above(cell, "layer") == (20, 20)
    assert figure2.distances(cell) == [0.1, 0.2, 0.5, 1.0]


def test_lines_that_are_higher_and_no_steeper_are_half_of_the_statement(tmp_path):
    def shifted(run):
        one = as_in_the_paper(run)
        if parts(run)[2]:
            for name in NORMALIZATIONS:
                flat = [[1 + 0.01 * t * t for t in AXIS] for _ in range(5)]
                one["lines"][name] = flat
        return one

    results = stored(tmp_path, shifted, AUTHORS, mnist=False)
    (cell,) = figure2.cells(results)
    assert figure2.above(cell, "layer")[0] > 0
    assert not figure2.steeper(cell, "layer")
    verdict, words = cifar_findings.above(results)
    assert verdict == IN_PART
    assert "it rises more in 0 of 1 networks" in words


def test_sentences_follow_the_lines(results, tmp_path):
    (cell,) = figure2.cells(results)
    said = figure2_section.sentence(cell)
    assert "at 20 of 20 points (layer-normalized) and at 20 of 20 points" in said
    assert "the large batches rise more: 10 times (p = 0.00781, 8 pairs)" in said
    back = stored(tmp_path / "back", reversed_sides, AUTHORS, mnist=False)
    (cell,) = figure2.cells(back)
    said = figure2_section.sentence(cell)
    assert "at 0 of 20 points (layer-normalized) and at 0 of 20 points" in said
    assert "the large batches rise less: 0.1 times" in said


def test_losses_that_are_no_numbers(tmp_path):
    def make(run):
        one = as_in_the_paper(run)
        if parts(run)[2:] == (True, 0):
            one["lines"]["layer"] = [
                [None, *line[1:]] for line in one["lines"]["layer"]
            ]
        return one

    results = stored(tmp_path, make, AUTHORS, mnist=False)
    (cell,) = figure2.cells(results)
    assert figure2.compare_at(cell, "layer", 1.0, rise=True).left_out == 1
    assert figure2.compare_at(cell, "layer", 0.5, rise=True).left_out == 0
    assert not math.isnan(figure2.curve(cell.large, "layer").mean[0])
    figure2.draw(results, tmp_path / "figures")


def test_networks_without_lines_are_named(results, tmp_path):
    said = figure2_section.missing(results)
    assert "AlexNet type, the authors' code" not in said
    assert "VGG16 type, batch size alone" in said
    with_mnist = figure2_section.missing(stored(tmp_path / "more", runs=AUTHORS))
    assert with_mnist.startswith("Without lines: fully connected, the authors' code;")
