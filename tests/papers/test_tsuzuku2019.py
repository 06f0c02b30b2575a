"""Tsuzuku et al.: known answers of the examples, and what the stored results say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from support.descent import descended
from support.stored import assert_alike
from torch import nn

import flatgauge as fg
from flatgauge.solvers.balancing import balance
from papers.experiment import Context, Results
from papers.runner import ROOT
from papers.store import load, plain
from papers.tsuzuku2019.algorithm1 import algorithm1, exponent
from papers.tsuzuku2019.appendix import appendix
from papers.tsuzuku2019.branches import branches
from papers.tsuzuku2019.constants import constants
from papers.tsuzuku2019.descent import steps_to
from papers.tsuzuku2019.probes import samples
from papers.tsuzuku2019.run import (
    APPENDIX,
    CONSTANTS,
    PAPER,
    POINTS,
    TWINS,
    difference,
    estimate,
    small_network,
)

HOME = ROOT / "tsuzuku2019"
QUICK = Context(True, None, torch.device("cpu"))
EXPECTED = json.loads((HOME / "expected.json").read_text(encoding="utf-8"))
TINY = {**small_network(), "samples": 100, "widths": [12, 10], "epochs": 20}


def record(result: dict, **settings) -> dict:
    return {"result": plain(result), "settings": plain(settings)}


@pytest.fixture(scope="module")
def stored() -> Results:
    return load(HOME / "results", PAPER.runs(False), quick=False)


@pytest.fixture(scope="module")
def smooth() -> fg.Objective:
    """A network whose units are all active, so that no kink is near."""
    random = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    with torch.no_grad():
        for one in model.parameters():
            one.copy_(torch.rand(one.shape, generator=random, dtype=one.dtype) + 0.5)
    inputs = torch.rand(6, 3, generator=random, dtype=torch.float64) + 0.5
    return fg.Objective(model, (inputs, torch.arange(6) % 3))


def test_appendix():
    found = appendix(QUICK, plain(APPENDIX))
    before, between, after = found["stages"]
    assert between["first"] == [[0.1, 0.2], [3, 4]]
    assert between["second"] == [[50, 6], [70, 8]]
    assert after["first"] == [[0.1, 0.2], [30, 40]]
    for row, printed in zip(after["second"], [[50, 0.6], [70, 0.8]], strict=True):
        assert row == pytest.approx(printed)
    assert before["first_norms"]["spectral"] == pytest.approx(5.464985704219043)
    assert before["second_norms"]["spectral"] == pytest.approx(13.190034437265819)
    assert after["first_norms"]["spectral"] == pytest.approx(50.000483997967216)
    assert after["second_norms"]["spectral"] == pytest.approx(86.02906171482087)
    assert after["second_norms"]["frobenius_squared"] == pytest.approx(7401)
    assert found["rows_instead"]["frobenius_squared"] == pytest.approx(6101.13)
    for stage in (between, after):
        for name in ("loss", "normalized-sharpness"):
            assert stage[name] == pytest.approx(before[name], rel=1e-12)
        assert (
            stage["matrix-normalized-sharpness"]
            > 5 * (before["matrix-normalized-sharpness"])
        )


def test_branches():
    shares = [0.25, 0.5, 1.0]
    settings = {**TINY, "bias": False, "layer": 0, "shares": shares, "tol": 1e-8}
    found = branches(QUICK, settings)
    plain_layer = found["unsplit"]["layer"]
    for one in found["splits"]:
        ratios = {name: v / plain_layer[name] for name, v in one["layer"].items()}
        square = one["share"] ** 2 + (1 - one["share"]) ** 2
        doubled = 2.0 if one["share"] < 1 else 1.0
        assert ratios == pytest.approx(
            {
                "normalized-sharpness": 1,
                "matrix-normalized-sharpness": 1,
                "normalized-sharpness, normalized loss": 1,
                "matrix-normalized-sharpness, normalized loss": 1,
                "fisher-rao-norm": 1,
                "fisher-rao-norm[diagonal=True]": square,
                "hessian-trace": doubled,
                "hessian-spectral-norm": doubled,
                "riemannian-spectral-norm[metric=layer]": square,
                "riemannian-spectral-norm[metric=node]": square,
            },
            rel=1e-6,
        )


def test_constants():
    fewer = {**CONSTANTS["direct"], "draws": 400}
    found = constants(QUICK, plain({**CONSTANTS, "direct": fewer}))
    assert found["noise"]["found"] == pytest.approx(found["noise"]["corrected"])
    matrices = found["matrices"]
    assert matrices["printed"] == pytest.approx(4.4002, abs=1e-4)
    assert matrices["found_printed_objective"] == pytest.approx(12.2457, abs=1e-4)
    assert matrices["found_corrected_objective"] == pytest.approx(
        matrices["corrected_half"]
    )
    divergence = found["divergence"]
    assert divergence["printed"] == pytest.approx(2.5681471805599453)
    assert divergence["found"] == pytest.approx(2.7044415416798359)
    assert divergence["found_equal"] == pytest.approx(7)
    assert divergence["found_least"] == pytest.approx(2.6019015830821596)
    assert found["deviation"]["found"] == pytest.approx(0.24390515085868471)
    for one in found["lambda"]:
        assert one["found_17"] == pytest.approx(one["law_17"], rel=1e-10)
        assert one["found_62"] == pytest.approx(one["law_62"], rel=1e-10)
    assert found["lambda"][0]["found_17"] == pytest.approx(15.14951736125859)
    direct = found["direct"]
    assert abs(direct["ratio"] - math.sqrt(2)) < 4 * direct["ratio_error"] < 0.2


def test_differences_are_products_where_there_is_no_kink(smooth):
    product = next(samples(smooth, estimate("products", [1]), 1))
    near = difference([1], radius="equal", size=1e-6)
    apart = next(samples(smooth, near, 1))
    for name, value in product.items():
        assert torch.allclose(apart[name], value, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["products", "scaled products", "gauss-newton"])
@pytest.mark.parametrize("loss", ["cross-entropy", "normalized-cross-entropy"])
def test_probes_are_unbiased(smooth, kind, loss):
    objective = smooth.with_loss(loss)
    exact = fg.hessian_diagonal(objective, "exact").values
    drawn = list(samples(objective, estimate(kind, [1]), 500))
    for name, h in exact.items():
        every = torch.stack([one[name] for one in drawn])
        error = every.std(0) / math.sqrt(len(every))
        assert ((every.mean(0) - h).abs() <= 5 * error + 1e-12).all()


def test_algorithm1_is_inflated_and_not_invariant():
    wanted = [estimate("products", [1, 10, 100])]
    for point in POINTS:
        wanted += [
            estimate("products", [10], point=point),
            difference([10], point=point),
            estimate("scaled products", [10], point=point),
            estimate("gauss-newton", [10], point=point),
        ]
    settings = {"network": TINY, "twins": TWINS, "runs": 3, "estimates": wanted}
    found = algorithm1(QUICK, plain(settings))
    exact = found["exact"]["cross-entropy"]
    for point in POINTS[1:]:
        assert exact[point]["sharpness"] == pytest.approx(
            exact["trained"]["sharpness"], rel=1e-9
        )
    line, *rest = found["estimates"]
    assert line["runs"] == [3, 3, 1]
    assert line["ratios"][0] > line["ratios"][1] > line["ratios"][2] > 1
    base, layers, nodes = rest[:4], rest[4:8], rest[8:]
    product, differences, scaled, gauss = (one["ratios"][0] for one in base)
    assert layers[0]["ratios"][0] > 1.5 * product
    assert nodes[0]["ratios"][0] > 1.2 * product
    assert layers[1]["ratios"][0] == pytest.approx(differences, rel=1e-6)
    for twin in (layers, nodes):
        assert twin[2]["ratios"][0] == pytest.approx(scaled, rel=1e-6)
        assert twin[3]["ratios"][0] == pytest.approx(gauss, rel=1e-6)
    assert 0.8 < gauss < 1.2
    assert_alike(algorithm1(QUICK, plain(settings)), found)


def test_the_exponent_of_a_power():
    counts = [1, 3, 10, 100]
    assert exponent(counts, [7 * m**-0.25 for m in counts]) == pytest.approx(-0.25)


def test_the_inner_loop_is_gradient_descent():
    alpha = torch.tensor([[1, 2, 0.5], [0.25, 3, 1]], dtype=torch.float64)
    beta = torch.tensor([[1, 0.25, 4], [9, 1 / 9, 1]], dtype=torch.float64)
    best = balance(alpha, beta).value
    found = steps_to(alpha, beta, 0.01, 500, best, 1e-3)
    assert found["outcome"] == "reached"
    steps = found["steps"]
    value = descended(alpha, beta, 0.01, steps)
    assert value == pytest.approx(best * (1 + found["excess"]), rel=1e-12)
    before = descended(alpha, beta, 0.01, steps - 1)
    assert value <= best * 1.001 < before
    assert steps_to(alpha, beta, 10.0, 500, best, 1e-3)["outcome"] == "diverged"
    short = steps_to(alpha, beta, 0.01, 1, best, 1e-3)
    assert (short["outcome"], short["steps"]) == ("not reached", None)


def test_a_value_that_does_not_agree_is_said_to_differ():
    result = appendix(QUICK, plain(APPENDIX))
    result["stages"][0]["first_norms"]["frobenius"] = 5.5
    page = PAPER.page(Results({"appendix": record(result)}), EXPECTED)
    row = next(line for line in page.splitlines() if "| (34)" in line)
    assert row.endswith("| 5.5 | differs |")
    assert "not run" in next(line for line in page.splitlines() if "(25)" in line)


def test_every_full_run_is_stored(stored):
    short = [run.name for run in PAPER.runs(False) if not run.long]
    assert [name for name in stored if name in short] == short


def test_stored_values_agree_with_the_paper_or_its_correction(stored):
    page = PAPER.page(stored, EXPECTED)
    table = page.split("## Side by side")[1].split("##")[0].strip().splitlines()[2:]
    assert len(table) == len(EXPECTED["side_by_side"])
    for row in table:
        assert not row.endswith("| differs |"), row
        assert "not run" not in row


def test_stored_results_bear_out_the_verdict(stored):
    result = stored["algorithm1"]
    line = result["estimates"][0]
    assert (line["kind"], line["probes"][-1]) == ("products", 100)
    assert line["ratios"][-1] > 2
    assert line["ratios"] == sorted(line["ratios"], reverse=True)
    assert -0.3 < exponent(line["probes"][-2:], line["ratios"][-2:]) < -0.2
    at = {
        (one["kind"], one.get("radius"), one["point"]): one["ratios"][0]
        for one in result["estimates"]
        if one["probes"] == [10] and one.get("size") != 0.1
    }
    assert at["products", None, "layers"] > 3 * at["products", None, "trained"]
    assert at["products", None, "nodes"] > 2 * at["products", None, "trained"]
    assert at["differences", "rms", "nodes"] > 2 * at["differences", "rms", "layers"]
    assert at["gauss-newton", None, "trained"] == pytest.approx(1, abs=0.05)


def test_what_is_committed_is_drawn_from_the_results(stored, tmp_path: Path):
    text = PAPER.page(stored, EXPECTED)
    PAPER.figures(stored, tmp_path)
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == sorted(path.name for path in (HOME / "figures").iterdir())
    for name in drawn:
        assert (HOME / "figures" / name).stat().st_size < 200_000
        assert f"figures/{name}" in text
