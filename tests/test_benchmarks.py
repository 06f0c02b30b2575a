"""The benchmarks at the size people use, on networks that take no time."""

import json

import pytest
import torch
from torch import nn

from benchmarks import training
from benchmarks.__main__ import main
from benchmarks.networks import wide_resnet
from benchmarks.results import Results
from benchmarks.scale import derived, jobs, networks, trained
from benchmarks.scale.case import Case, Row, measure_row
from benchmarks.scale.derived import Measured
from benchmarks.scale.tables import read, scale_section
from benchmarks.scale.targets import limit_targets, scale_targets

LIMITED = ("product, limited", "eigenvalue, limited", "default set, limited")


def rows_of(path):
    return json.loads(path.read_text())[jobs.TINY_PART]


def measure_tiny(path, *more):
    main(["--only", jobs.TINY_PART, "--out", str(path), *more])
    return rows_of(path)


@pytest.mark.slow
def test_the_rows_of_a_tiny_network_are_stored_and_drawn(tmp_path, monkeypatch):
    monkeypatch.delitem(networks.TINY, "gpt2")
    names = ["gradient", "product", "eigenvalue", "default set", "long run"]
    rows = measure_tiny(tmp_path / "tiny.json", "--rows", *names)
    own = [row for row in rows if row["contestant"] not in LIMITED]
    assert [row["contestant"] for row in own] == names
    found = Measured([{**row, "network": "ResNet-50"} for row in own])
    assert found.unfinished() == {}
    said = [target.what for target in scale_targets(found)]
    assert any("time beyond its products" in what for what in said)
    assert any("error of the solver" in what for what in said)
    assert any("default set, seconds" in what for what in said)
    text = "\n".join(scale_section({"scale:resnet50": own}))
    for title in ("Targets", "One product", "The largest eigenvalue"):
        assert f"#### {title}" in text


@pytest.mark.slow
def test_all_rows_of_both_tiny_networks_are_stored(tmp_path):
    path = tmp_path / "tiny.json"
    rows = measure_tiny(path)
    names = [row.name for row in jobs.ROWS if row.precision is None]
    for network in networks.TINY.values():
        own = [row for row in rows if row["network"] == network.name]
        assert {row["contestant"] for row in own} == {*names, *LIMITED}
        failed = Measured(own).unfinished()
        assert not set(failed) - {*LIMITED, "PyHessian eigenvalue", "PyHessian trace"}
    # Another call for what is missing leaves what is there alone.
    again = measure_tiny(path, "--missing")
    assert [row for row in again if "error" not in row] == [
        row for row in rows if "error" not in row
    ]


def tiny_case():
    network = networks.TINY["convolutions"]
    model = networks.built(network, "cpu")
    return Case(network.name, model, network.batches("cpu"), "cpu", "ieee")


def test_a_row_that_breaks_says_why_and_what_was_known_is_kept(tmp_path):
    def breaks(case, note):
        note({"values": [1.0]})
        raise RuntimeError("out of luck")

    results = Results(tmp_path / "some.json")
    case, row = tiny_case(), Row("trace", breaks, 1)
    found = measure_row(row, case, lambda one: results.add("scale:tiny", one))
    assert found["error"] == "RuntimeError: out of luck"
    kept = rows_of(tmp_path / "some.json")
    assert kept[0]["unfinished"]
    assert kept[0]["values"] == [1.0]
    results.add("scale:tiny", found)
    assert rows_of(tmp_path / "some.json") == [found]
    assert Measured([found]).row("trace") is None
    assert Measured([found]).unfinished() == {"trace": "RuntimeError: out of luck"}


def test_a_row_that_would_not_end_in_time_is_left_for_another_call(tmp_path):
    results = Results(tmp_path / "some.json")
    call = jobs.Call(results, "cpu", seconds=100.0, started=jobs.time.perf_counter())
    row = Row("trace", lambda case, note: {}, products=10)
    assert call.fits("scale:tiny", row, "net")
    known = {"network": "net", "precision": "ieee", "contestant": "product"}
    results.add("scale:tiny", {**known, "seconds": 20.0})
    assert not call.fits("scale:tiny", row, "net")
    assert call.fits("scale:tiny", row, "another")


def synthetic(*rows, network="ViT-B/16", precision="tf32"):
    """Rows of one network, from (name, content)."""
    both = {"network": network, "precision": precision}
    return Measured([{**both, "contestant": name, **more} for name, more in rows])


def eigenvalue_rows(result=10.0, smallest=-2.0):
    number = {"set-up": 1.0, "details": {"smallest": smallest}, "status": "CONVERGED"}
    return [
        ("product", {"seconds": 0.5}),
        ("eigenvalue", {**number, "seconds": 6.0, "products": 10, "result": 10.0}),
        ("long run", {**number, "seconds": 20.0, "products": 40, "result": result}),
    ]


def test_time_beyond_the_products_and_the_error_of_the_solver():
    found = synthetic(*eigenvalue_rows(result=10.1))
    assert derived.overhead(found, "eigenvalue") == pytest.approx(0.2)
    assert derived.solver_error(found) == pytest.approx(0.1 / 10.1)
    met = {target.what: target.met for target in scale_targets(found)}
    assert met["ViT-B/16: `hessian-spectral-norm`, time beyond its products"]
    assert not met["ViT-B/16: largest eigenvalue, error of the solver"]


def test_pyhessian_stops_where_two_values_agree_and_is_judged_by_the_dominant_one():
    run = {
        "values": [1.0, 5.0, 5.004, 9.0, 9.995],
        "seconds": [1.0, 2.0, 3.0, 4.0, 50.0],
    }
    found = synthetic(*eigenvalue_rows(), ("PyHessian eigenvalue", run))
    stopped = derived.their_default(found)
    assert stopped == derived.PowerIteration(3, 3.0, 5.0)
    assert derived.their_error(found) == pytest.approx(0.5)
    assert derived.their_right(found) == derived.PowerIteration(5, 50.0, 9.995)
    last = scale_targets(found)[-1]
    assert last.met
    assert last.measured == f"{50 / 7:.2f}"
    other = synthetic(*eigenvalue_rows(smallest=-11.0), ("PyHessian eigenvalue", run))
    assert derived.their_right(other) is None
    assert derived.never_right(other) == 5
    assert scale_targets(other)[-1].measured == "it does not get there in 5 products"


@pytest.mark.parametrize(
    ("values", "products", "status", "uncertainty", "met"),
    [
        ([9.0, 10.0, 11.0], 30, "ESTIMATED", 0.2, True),  # it needs 25, and may take 30
        ([9.0, 10.0, 11.0], 31, "ESTIMATED", 0.2, False),
        ([10.0, 10.0, 10.1], 8, "ESTIMATED", 0.1, True),
        ([10.0, 10.0, 10.1], 7, "ESTIMATED", 0.1, False),
        ([-90.0, 10.0, 110.0], 64, "NOT_CONVERGED", 5.0, True),
        ([-90.0, 10.0, 110.0], 64, "ESTIMATED", 5.0, False),
        ([-90.0, 10.0, 110.0], 65, "NOT_CONVERGED", 5.0, False),
    ],
)
def test_the_trace_is_judged_by_what_plain_probes_would_need(
    values, products, status, uncertainty, met
):
    call = {"result": 10.0, "uncertainty": uncertainty, "seconds": 1.0}
    call |= {"products": products, "status": status}
    found = synthetic(("trace", call), ("plain probes", {"values": values}))
    (target,) = scale_targets(found)
    assert target.met is met


def test_a_limit_is_kept_and_costs_at_most_half_as_much_again():
    rows = [
        ("product", {"seconds": 1.0, "peak": 40 * 2**30}),
        ("product, limited", {"seconds": 1.4, "peak": 17 * 2**30, "limit": "16.2GiB"}),
        ("default set, limited", {"seconds": 16.0, "limit": "16.2GiB"}),
        ("eigenvalue, limited", {"error": "out of memory"}),
    ]
    own = synthetic(("default set", {"seconds": 10.0}))
    met = [target.met for target in limit_targets(synthetic(*rows), own)]
    assert met == [True, False, False, False]


def test_parts_are_read_together_but_for_the_tiny_one(tmp_path):
    for part in ("scale:vit", jobs.TINY_PART):
        results = Results(tmp_path / f"{part.removeprefix(jobs.PREFIX)}.json")
        results.set_machine({"gpu": None})
        results.add(part, {"network": "net", "precision": "ieee"})
    parts, machines = read(tmp_path)
    assert list(parts) == ["scale:vit"]
    assert machines == [{"gpu": None}] * 2


def test_cifar_files_that_are_there_are_read(tmp_path):
    record = bytes([3]) + bytes(range(256)) * 12
    (tmp_path / "data_batch_2.bin").write_bytes(record * 2)
    images, labels = trained.cifar10(tmp_path, "train")
    assert images.shape == (2, 3, 32, 32)
    assert images.max() == 1
    assert labels.tolist() == [3, 3]
    assert trained.cifar10(tmp_path, "test") is None
    with pytest.raises(SystemExit, match="needs CIFAR-10"):
        trained.trained(None, "cpu")


def test_crops_are_windows_of_the_padded_image_mirrored_or_not():
    image = torch.arange(2 * 12 * 12.0).view(1, 2, 12, 12)
    windows = image.unfold(2, 4, 1).unfold(3, 4, 1).permute(0, 2, 3, 1, 4, 5)
    windows = windows.reshape(-1, 2, 4, 4)
    allowed = torch.cat([windows, windows.flip(3)])
    rows = torch.zeros(20, dtype=torch.long)
    for crop in trained._cropped(image, rows, torch.Generator().manual_seed(0)):
        assert (allowed == crop).flatten(1).all(1).any()


def test_training_lowers_the_loss_and_leaves_the_network_ready():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        labels = torch.arange(64) % 2
        images = torch.randn(64, 3, 8, 8) + 2 * labels.view(-1, 1, 1, 1)
        model = wide_resnet(factor=1).eval()

    def loss():
        return nn.functional.cross_entropy(model(images), labels).item()

    before = loss()
    assert trained.train(model, images, labels, steps=30, size=32) == 30
    assert loss() < before
    assert not model.training
    assert all(p.grad is None and p.is_contiguous() for p in model.parameters())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", training.TRAINERS)
def test_the_time_of_a_callback_is_taken_from_outside(name):
    if name != "plain":
        pytest.importorskip(name)
    settings = {"every": 1, "share": 0.5}
    monitor, whole, inside = training.TRAINERS[name](3.0, settings)
    assert monitor.reports
    assert 0 < monitor.spent <= inside <= whole
