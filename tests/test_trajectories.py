from __future__ import annotations

import json

import pytest
import torch
from support.pages import provenance
from torch import nn

import flatgauge as fg
from flatgauge.errors import OptionError
from flatgauge.report.page import render
from flatgauge.report.slices import landscape_figure, surfaces
from flatgauge.results import Report
from flatgauge.vectors import generator

X = torch.randn(10, 3, generator=generator(0), dtype=torch.float64)
Y = torch.randint(0, 3, (10,), generator=generator(1))


def checkpoints(count: int) -> list[fg.Objective]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    base = fg.Objective(model, (X, Y))
    random = generator(2)
    return [
        base.at(
            {
                n: t + 0.3 * torch.randn(t.shape, generator=random, dtype=t.dtype)
                for n, t in base.parameters.items()
            }
        )
        for _ in range(count)
    ]


def flat(objective: fg.Objective) -> torch.Tensor:
    return torch.cat([t.reshape(-1) for t in objective.parameters.values()])


def test_three_checkpoints_lie_in_their_plane():
    """Distances in the picture are those of the parameters."""
    runs = checkpoints(3)
    found = fg.trajectory(dict(zip("abc", runs, strict=True)), points=5)
    assert found.explained == pytest.approx(1.0, rel=1e-12)
    assert found.names == ("a", "b", "c")
    assert found.path[-1] == (0.0, 0.0)
    for one, (x, y) in zip(runs, found.path, strict=True):
        for other, (u, v) in zip(runs, found.path, strict=True):
            distance = float((flat(one) - flat(other)).norm())
            assert distance == pytest.approx(((x - u) ** 2 + (y - v) ** 2) ** 0.5)
    assert found.losses.shape == (5, 5)
    for axis, places in zip(found.axes, zip(*found.path, strict=True), strict=True):
        assert float(axis[0]) < min(places)
        assert float(axis[-1]) > max(places)


def test_directions_are_those_of_the_largest_spread():
    runs = checkpoints(6)
    found = fg.trajectory(runs, points=3)
    steps = torch.stack([flat(one) - flat(runs[-1]) for one in runs[:-1]])
    values = torch.linalg.svdvals(steps).square()
    assert found.explained == pytest.approx(float(values[:2].sum() / values.sum()))
    squares = torch.tensor(found.path).square().sum(0)
    assert squares.tolist() == pytest.approx(values[:2].tolist())
    assert found.names == tuple("123456")


def test_what_is_no_plane_is_refused():
    first, second, _ = checkpoints(3)
    with pytest.raises(OptionError, match="at least three"):
        fg.trajectory([first, second])
    with pytest.raises(OptionError, match="on a line"):
        fg.trajectory([first, first, second])


def test_the_page_has_path_contours_and_surface(tmp_path):
    found = fg.trajectory(checkpoints(4), points=7)
    report = Report({}, provenance(), found.drawn_from())
    page = render(json.loads(json.dumps(report.to_dict())))
    assert "principal directions of 4 checkpoints" in page
    assert 'data-surface="landscape-0"' in page
    found.save(tmp_path / "path.svg")
    assert (tmp_path / "path.svg").stat().st_size > 1000
    found.save(tmp_path / "path.html")
    assert "cross-entropy" in (tmp_path / "path.html").read_text(encoding="utf-8")


def test_several_models_share_a_picture(tmp_path):
    one, other = checkpoints(2)
    found = fg.landscape({"one": one, "other": other}, points=5)
    assert isinstance(found, fg.Landscapes)
    assert found["one"].losses[2].item() == pytest.approx(one.value(), rel=1e-12)
    assert {row["model"] for row in found.rows()} == {"one", "other"}
    assert [one["title"] for one in found.to_list()] == ["one", "other"]
    found.save(tmp_path / "both.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["both.svg"]
    found.save(tmp_path / "both.html")
    planes = fg.landscape({"one": one, "other": other}, points=3, dimensions=2)
    for name, found_one in zip(("one", "other"), planes.to_list(), strict=True):
        _, mark = landscape_figure([found_one])["data"]
        assert mark["name"] == name
        assert mark["showlegend"]
    said = "The slices are of one, other; loss and network below are those of one."
    assert said in (tmp_path / "both.html").read_text(encoding="utf-8")
    text = (tmp_path / "both.svg").read_text(encoding="utf-8")
    assert "one" in text
    assert "other" in text


def plane(losses: list[list[float | None]]) -> dict:
    axis = [float(place) for place in range(len(losses))]
    return {
        "title": "a plane",
        "kind": "random",
        "normalize": "none",
        "labels": ["x", "y"],
        "axes": [axis, axis],
        "losses": losses,
    }


def test_deep_basins_have_contours_at_equal_factors():
    deep = plane([[1e-3 * 10.0 ** (x + y) for y in range(4)] for x in range(4)])
    [contours, _] = landscape_figure([deep])["data"]
    levels = torch.tensor(contours["levels"])
    factors = levels[1:] / levels[:-1]
    assert factors.max() < 1.001 * factors.min()
    assert levels[0] == pytest.approx(1e-3)
    assert levels[-1] == pytest.approx(1e3)
    flat_one = plane([[1.0 + x + y for y in range(4)] for x in range(4)])
    assert "levels" not in landscape_figure([flat_one])["data"][0]
    negative = plane([[x - y - 0.5 for y in range(4)] for x in range(4)])
    assert "levels" not in landscape_figure([negative])["data"][0]


def test_surfaces_are_heights_between_0_and_1():
    deep = plane([[1.0, 10.0], [100.0, None]])
    [found] = surfaces([deep]).values()
    assert found["heights"] == [[0.0, 0.5], [1.0, None]]
    assert found["logarithmic"]
    assert surfaces([plane([[1.0, 1.0], [1.0, 1.0]])]) == {}


def test_losses_are_those_of_the_points_in_the_plane():
    runs = checkpoints(3)
    found = fg.trajectory(runs, points=3)
    steps = torch.stack([flat(one) - flat(runs[-1]) for one in runs[:-1]])
    basis = torch.linalg.solve(
        torch.tensor(found.path[:-1], dtype=torch.float64), steps
    )
    for row, x in enumerate(found.axes[0]):
        for column, y in enumerate(found.axes[1]):
            point = flat(runs[-1]) + x * basis[0] + y * basis[1]
            parts = point.split([t.numel() for t in runs[0].parameters.values()])
            moved = {
                name: part.reshape(t.shape)
                for part, (name, t) in zip(
                    parts, runs[0].parameters.items(), strict=True
                )
            }
            expected = runs[0].at(moved).value()
            assert float(found.losses[row, column]) == pytest.approx(expected, rel=1e-9)
