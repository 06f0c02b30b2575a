"""Every public call, with what is true of its results on any network."""

from __future__ import annotations

import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

import flatgauge as fg
from contract.claims import (
    BROKEN,
    STANDARD_ERRORS,
    Call,
    Claim,
    Claims,
    named,
    probe,
    same_refusal,
    same_report,
)
from contract.curvature_calls import (
    gauss_newton_diagonal,
    hessian_diagonal,
    measure_spectrum,
    objective,
    products,
    spectral_density,
    top_eigenvalues,
)
from contract.subjects import Subject, rows_of

FEW = ("hessian-trace", "fisher-rao-norm")
# Options that make the dear measures cheap.
CHEAP = {
    "epsilon-sharpness": {"epsilon": 0.05, "restarts": 0},
    "riemannian-sharpness": {"epsilon": 0.05, "restarts": 0},
    "normalized-sharpness-direct": {"steps": 20, "draws": 40},
    "pac-bayes-bound": {"samples": 20},
    "volume-flatness": {"directions": 10, "epsilon": 0.1},
}


@cache
def reference_report(network: str, every: bool) -> fg.Report:
    return run_measures(Subject(network, "one", "float64", "cpu"), every)


def run_measures(subject: Subject, every: bool) -> fg.Report:
    if not every:
        return fg.measure(subject.objective)
    names = [one.name for one in fg.list_measures()]
    return fg.measure(subject.objective, names, options=CHEAP)


def default_set(subject: Subject) -> Claims:
    report, truth = run_measures(subject, every=False), subject.truth
    yield from same_report(report, reference_report(subject.network, every=False))
    theta, lambdas = truth.point, truth.eigenvalues
    fisher = truth.fisher
    layer, node = truth.scaled("layer"), truth.scaled("node")
    independent = {
        "hessian-trace": (float(lambdas.sum()), float(lambdas.abs().sum())),
        "hessian-spectral-norm": (float(lambdas[-1]), float(lambdas.abs().max())),
        "fisher-rao-norm": (float(theta @ fisher @ theta), None),
        "fisher-rao-norm[diagonal=True]": (
            float((theta**2 * fisher.diagonal()).sum()),
            None,
        ),
        "riemannian-spectral-norm[metric=layer]": (float(layer[-1]), float(layer.abs().max())),
        "riemannian-spectral-norm[metric=node]": (float(node[-1]), float(node.abs().max())),
    }  # fmt: skip
    for request, (right, reach) in independent.items():
        one = report[request]
        assert one.value is not None, one.message
        bars = (one.uncertainty or 0.0) * (
            STANDARD_ERRORS if one.status is fg.Status.ESTIMATED else 1
        )
        yield Claim(f"{request}, dense", one.value, right, bars, reach)


def every_measure(subject: Subject) -> Claims:
    found = run_measures(subject, every=True)
    yield from same_report(found, reference_report(subject.network, every=True))


def audit(subject: Subject) -> Claims:
    both = same_refusal(
        lambda one: fg.audit(one, *FEW, elements=1, sharpen_by=10.0), subject
    )
    if both is None:
        return
    found = both[0]
    assert not found.violations, str(found)
    yield from same_report(found.report, both[1].report)
    for kind, change in found.function_change.items():
        # Output scalings change the outputs, and so does what holds up to eps.
        if kind not in ("output-scale", "output-shift") and "eps" not in kind:
            yield Claim(f"outputs under {kind}", change, 0.0, 0.0, 1.0)


def compare(subject: Subject) -> Claims:
    change = 0.05 * probe(subject)

    def both(one: fg.Objective) -> fg.Comparison:
        other = one.at(named(subject.truth.point + change, one, subject))
        return fg.compare({"a": one, "b": other}, list(FEW))

    found, right = both(subject.objective), both(subject.reference)
    for name in found.names:
        yield from same_report(found.reports[name], right.reports[name])
    assert [row.measure for row in found.comparison_rows] == list(FEW)


def series(subject: Subject) -> Claims:
    one, truth = subject.objective, subject.truth
    with tempfile.TemporaryDirectory() as folder:
        saved = one.model()
        torch.save(saved.state_dict(), Path(folder) / "net_1.pt")
        found = fg.series(
            saved, (truth.x, truth.y), folder, list(FEW), store=f"{folder}/results"
        )
    assert [point.step for point in found.points] == [1]
    right = fg.measure(subject.reference, list(FEW))
    yield from same_report(found.points[0].report, right)


def study(subject: Subject) -> Claims:
    one, truth = subject.objective, subject.truth
    with tempfile.TemporaryDirectory() as folder:
        saved = one.model()
        files = [Path(folder) / f"{number}.pt" for number in range(2)]
        for file in files:
            torch.save(saved.state_dict(), file)
        rows = [{"checkpoint": str(f), "gap": n} for n, f in enumerate(files)]
        found = fg.study(
            saved, (truth.x, truth.y), rows, list(FEW), target="gap", store=folder
        )
    assert not found.failures
    right = fg.measure(subject.reference, list(FEW))
    for network in found.networks:
        yield from same_report(network.report, right)


def rank_statistics(subject: Subject) -> Claims:
    order = [3.0, 1.0, 2.0, 5.0, 4.0]
    found = {
        row["statistic"]: row["value"]
        for row in fg.rank_statistics(order, order).rows()
    }
    yield Claim("Kendall's τ of an order with itself", found["kendall"], 1.0)


def landscape(subject: Subject) -> Claims:
    one, truth, change = subject.objective, subject.truth, 0.05 * probe(subject)
    found = fg.landscape(one, "none", [named(change, one, subject)], points=5)
    steps = found.axes[0].double().tolist()
    right = [truth.loss_at(t * change) for t in steps]
    yield Claim("losses on a line", found.losses, right)
    steep = fg.landscape(one, "none", "eigenvectors", points=3, span=0.1)
    reach = float(truth.eigenvalues.abs().max())
    right = float(truth.eigenvalues[-1])
    yield Claim("its eigenvalue", steep.eigenvalues[0], right, 2e-3 * reach, reach)
    yield Claim("the middle", steep.losses[1], truth.value)
    several = fg.landscape(
        {"one": one}, "none", [named(change, one, subject)], points=5
    )
    yield Claim("losses of several", several["one"].losses, found.losses)


def trajectory(subject: Subject) -> Claims:
    one, truth, change = subject.objective, subject.truth, 0.05 * probe(subject)
    steps = torch.stack([change, change.flip(0)])
    found = fg.trajectory(
        [*(one.at(named(truth.point + step, one, subject)) for step in steps), one],
        points=3,
    )
    places = torch.tensor(found.path[:-1], dtype=torch.float64)
    basis = torch.linalg.solve(places, steps)
    right = [
        [
            truth.loss_at(float(x) * basis[0] + float(y) * basis[1])
            for y in found.axes[1]
        ]
        for x in found.axes[0]
    ]
    yield Claim("losses on the plane", found.losses, right)


def symmetries(subject: Subject) -> Claims:
    both = same_refusal(fg.symmetries, subject)
    if both is not None and both[0].dimension:
        found, right = both
        assert found.dimension == right.dimension
        twin = found.act(subject.objective.model(), found.random_element(0, 0.3))
        outputs = rows_of(twin.double().cpu()(subject.truth.x)).detach()
        yield Claim("outputs of a twin", outputs, subject.truth.outputs)
    model, inputs = own_operator(), torch.randn(3, 2, device=subject.device)
    group = fg.symmetries(model.to(subject.device), inputs, strict=True)
    yield Claim("rescalings by a rule of one's own", group.dimension, 4)


@cache
def own_operator() -> nn.Module:
    """A network with an operator that only a rule of one's own explains."""

    @torch.library.custom_op("contract::squared_relu", mutates_args=())
    def squared(x: Tensor) -> Tensor:
        return torch.relu(x) ** 2

    squared.register_fake(torch.empty_like)

    @fg.scale_rule("contract::squared_relu")
    def rule(site, x):
        return x * 2.0

    class Squared(nn.Sequential):
        def forward(self, x):
            return self[1](squared(self[0](x)))

    return Squared(nn.Linear(2, 4), nn.Linear(4, 3))


def sharpen(subject: Subject) -> Claims:
    both = same_refusal(lambda one: fg.sharpen(one, 10.0), subject)
    if both is not None:
        yield from same_function(both[0], subject)
        twin = subject.reference.with_model(both[0].double().cpu())
        after = fg.top_eigenvalues(twin, k=1).values[0]
        shortfall = min(after / float(subject.truth.eigenvalues[-1]) / 10 - 1, 0.0)
        yield Claim("how far it is from ten times sharper", shortfall, 0.0, 0.0, 1.0)


def flattest(subject: Subject) -> Claims:
    both = same_refusal(fg.flattest, subject)
    if both is not None:
        yield from same_function(both[0], subject)
        found, right = (
            float(fg.Hessian(subject.reference.with_model(m.double().cpu())).to_dense().trace())
            for m in both
        )  # fmt: skip
        yield Claim("the smallest trace", found, right, 1e-3 * right)


def same_function(twin: nn.Module, subject: Subject) -> Claims:
    outputs = rows_of(twin.double().cpu()(subject.truth.x)).detach()
    yield Claim("outputs of the twin", outputs, subject.truth.outputs)


def report(subject: Subject) -> Claims:
    found = fg.measure(subject.objective, *FEW)
    assert not [m for m in found.measurements.values() if m.status in BROKEN]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report"
        found.to_json(path)
        assert fg.Report.from_json(path) == found
        if find_spec("jinja2") and find_spec("matplotlib"):
            found.to_html(path)
            assert "hessian-trace" in path.read_text(encoding="utf-8")
    yield from same_report(found, fg.measure(subject.reference, *FEW))


CALLS: dict[str, Call] = {
    "Objective": objective,
    "Hessian": products(fg.Hessian, "hessian", "auto", "double-backward"),
    "GaussNewton": products(fg.GaussNewton, "gauss_newton", "auto"),
    "empirical Fisher": products(fg.Fisher, "fisher", "empirical"),
    "true Fisher": products(fg.Fisher, "gauss_newton", "true"),
    "hessian_diagonal": hessian_diagonal,
    "gauss_newton_diagonal": gauss_newton_diagonal,
    "spectral_density": spectral_density,
    "top_eigenvalues": top_eigenvalues,
    "measure_spectrum": measure_spectrum,
    "measure": default_set,
    "list_measures": every_measure,
    "audit": audit,
    "compare": compare,
    "series": series,
    "study": study,
    "rank_statistics": rank_statistics,
    "landscape": landscape,
    "trajectory": trajectory,
    "symmetries": symmetries,
    "sharpen": sharpen,
    "flattest": flattest,
    "Report": report,
}
# Public names that another call's checks meet.
MET = {
    "Fisher": "empirical Fisher",
    "Diagonal": "hessian_diagonal",
    "Measurement": "measure",
    "Status": "measure",
    "MeasureInfo": "list_measures",
    "Audit": "audit",
    "Comparison": "compare",
    "Series": "series",
    "Study": "study",
    "RankStatistics": "rank_statistics",
    "Landscape": "landscape",
    "Landscapes": "landscape",
    "Group": "symmetries",
    "scale_rule": "symmetries",
    "FlatgaugeError": "sharpen",
}
