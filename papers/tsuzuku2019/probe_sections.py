"""The sections of the page on Algorithm 1."""

from __future__ import annotations

from typing import Any

from papers.experiment import Results
from papers.page import number, table
from papers.tsuzuku2019.algorithm1 import exponent
from papers.tsuzuku2019.figure import NAME
from papers.tsuzuku2019.sections import not_run

KINDS = {
    "products": "Gaussian probes, exact products (60)",
    "differences": "Gaussian probes, differences (61)",
    "scaled products": "Gaussian probes scaled by |W|, exact products",
    "gauss-newton": "Gauss-Newton probes",
}
RADII = {
    "rms": "{size:g} · ‖W‖/√n",
    "frobenius": "{size:g} · ‖W‖",
    "equal": "{size:g} for all tensors",
}
POINTS = ("trained", "layers", "nodes")


def verdict(results: Results) -> str:
    """What Algorithm 1 does to (17), in plain words."""
    if "algorithm1" not in results:
        return not_run("algorithm1")
    result = results["algorithm1"]
    printed, exact = (
        next(one for one in result["estimates"] if one["kind"] == kind)
        for kind in ("differences", "products")
    )
    few, many = printed["probes"].index(10), len(printed["probes"]) - 1
    counts = f"with 10 probes, {{}} times with {printed['probes'][many]}"
    stay, nodes = (
        _at_point(result, "differences", point, "rms")["ratios"][0]
        for point in ("layers", "nodes")
    )
    here = _at_point(result, "differences", "trained", "rms")["ratios"][0]
    gauss = next(o for o in result["estimates"] if o["kind"] == "gauss-newton")
    return (
        "- Algorithm 1 does not compute (17) with an affordable number of probes. Its "
        "differences (61) see the Hessian of a smoothed loss and are noisy, and clipping "
        "keeps the positive half of the noise: the result is "
        f"{number(printed['ratios'][few], 3)} times the exact value "
        f"{counts.format(number(printed['ratios'][many], 3))}. Exact products (60) in "
        f"place of the differences give {number(exact['ratios'][few], 3)} times "
        f"{counts.format(number(exact['ratios'][many], 3))}. The noise depends on the "
        "parametrization, so the invariance is lost: with r in proportion to each matrix, "
        f"one run of 10 probes gives {number(here, 3)} times at the trained network, "
        f"{number(stay, 3)} times with rescaled layers, but {number(nodes, 3)} times with "
        "rescaled nodes. On ReLU networks the exact diagonal costs one backward pass for "
        "each output; 10 Gauss-Newton probes give "
        f"{number(gauss['ratios'][gauss['probes'].index(10)], 3)} times the exact value.\n"
    )


def algorithm1(results: Results) -> str:
    """Ratios against probes, points and radii."""
    parts = [_probes(results, name) for name in ("algorithm1", "algorithm1-small")]
    if "algorithm1" in results or "algorithm1-small" in results:
        parts.insert(0, f"![The ratio to the exact value, by probes](figures/{NAME})\n")
    if "algorithm1" not in results:
        return "\n".join(parts)
    result = results["algorithm1"]
    twins = results.records["algorithm1"]["settings"]["twins"]
    parts += [
        _law(result),
        "### The invariance that is lost\n",
        "The same function at three points: as trained, with its layers multiplied by "
        f"{number(twins['layers'])}, and with every hidden node rescaled by a factor "
        f"exp(s), s from a normal distribution of width {number(twins['spread'])}. The "
        "exact value is the same at all three; one run of ten probes each:\n",
        _points(result),
        "Differences with r in proportion to each matrix survive rescaled layers, but "
        "not rescaled nodes. Probes scaled by |W| survive both, and are noisier.\n",
        "### The radius of the differences\n",
        "The paper says that r was chosen for each matrix according to its Frobenius "
        "norm. Ten probes at the trained point, all tensors moved at once; the trace is "
        "that of the first layer, over the exact one:\n",
        _radii(result),
        "Differences see the kinks of ReLU, which derivatives do not: in expectation "
        "(61) is the diagonal of the Hessian of a smoothed loss, so r is a part of the "
        "definition. In proportion to ‖W‖ itself r is very large, because every one of "
        "the n entries moves by as much.\n",
    ]
    return "\n".join(parts)


def descent(results: Results) -> str:
    """Steps of gradient descent beside the solver's."""
    if "descent" not in results:
        return not_run("descent")
    tries = results["descent"]["tries"]
    limit = results.records["descent"]["settings"]["steps"]
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for one in tries:
        groups.setdefault((one["point"], one["rate"]), []).append(one)
    shapes = [" × ".join(map(str, one["shape"])) for one in next(iter(groups.values()))]
    rows = [
        [point, rate, *(_outcome(one, limit) for one in group)]
        for (point, rate), group in groups.items()
    ]
    text = (
        "Gradient descent in the log scales from σ = σ' = 1, as in Figure 2 of the "
        "paper, on the exact diagonal under the cross-entropy: steps until the value is "
        "within 1 % of the minimum. The paper names no learning rate.\n\n"
        + table(["point", "learning rate", *shapes], rows)
        + "\nOur solver makes five closed-form sweeps or more and then Newton steps: at most "
        f"{max(one['newton_steps'] for one in tries)} here, for a certified relative gap "
        f"of at most {max(one['gap'] for one in tries):.0e}."
    )
    if _suits_one_only(tries):
        text += (
            " The learning rate that suits one parametrization diverges on another of "
            "the same function."
        )
    return text + "\n"


def _probes(results: Results, name: str) -> str:
    if name not in results:
        return not_run(name)
    result = results[name]
    facts = result["network"]
    lines = [one for one in result["estimates"] if len(one["probes"]) > 1]
    counts = lines[0]["probes"]
    rows = [
        [
            KINDS[one["kind"]],
            one["loss"],
            *(number(ratio, 3) for ratio in one["ratios"]),
            number(one["exponent"], 2),
            number(one["matrix_ratios"][counts.index(10)], 3),
        ]
        for one in lines
    ]
    head = ["(17) over the exact value", "loss", *(str(count) for count in counts)]
    runs = results.records[name]["settings"]["runs"]
    return (
        f"A ReLU network of {facts['parameters']} parameters at "
        f"{facts['accuracy']:.1%} training accuracy, measured on its "
        f"{facts['samples']} training images (cross-entropy {number(facts['loss'], 2)}, "
        "float64). The columns are numbers of probes, each the mean over up to "
        f"{runs} independent runs; the exponent is the slope of the logarithms; the last "
        "column is (13), whose sums are clipped only after they are taken.\n\n"
        + table([*head, "exponent", "(13) over exact, 10 probes"], rows)
    )


def _law(result: dict[str, Any]) -> str:
    """How near the slope comes to -1/4."""
    line = next(one for one in result["estimates"] if one["kind"] == "products")
    counts, ratios = line["probes"][-2:], line["ratios"][-2:]
    return (
        "Where noise drowns the curvature, the clipped mean of m probes falls as m^(−1/2) "
        "and (17), which is like its root, as m^(−1/4): the dotted line, drawn through 10 "
        f"probes. Between {counts[0]} and {counts[1]} probes of the first kind the slope "
        f"is {number(exponent(counts, ratios), 2)}, with fewer it is smaller.\n"
    )


def _points(result: dict[str, Any]) -> str:
    exact = [result["exact"]["cross-entropy"][point]["sharpness"] for point in POINTS]
    rows = [["exact value", *(number(value, 6) for value in exact)]]
    for kind, radius in (
        ("products", None),
        ("differences", "rms"),
        ("differences", "equal"),
        ("scaled products", None),
        ("gauss-newton", None),
    ):
        found = [_at_point(result, kind, point, radius) for point in POINTS]
        label = KINDS[kind]
        if radius:
            label += ", r = " + RADII[radius].format(size=found[0]["size"])
        rows.append([label, *(number(one["ratios"][0], 3) for one in found)])
    return table(["over the exact value", "trained", "layers", "nodes"], rows)


def _radii(result: dict[str, Any]) -> str:
    rows = [
        [
            RADII[one["radius"]].format(size=one["size"]),
            f"{number(one['trace_ratio'], 3)} ± {one['trace_error']:.2g}",
            number(one["ratios"][0], 3),
        ]
        for one in result["estimates"]
        if one["kind"] == "differences" and _single(one, "trained")
    ]
    return table(["r", "trace over exact", "(17) over exact, 10 probes"], rows)


def _at_point(
    result: dict[str, Any], kind: str, point: str, radius: str | None = None
) -> dict[str, Any]:
    """The one run of ten probes of that kind at that point, with the usual radius."""
    return next(
        one
        for one in result["estimates"]
        if one["kind"] == kind
        and _single(one, point)
        and (radius is None or one["radius"] == radius)
    )


def _single(one: dict[str, Any], point: str) -> bool:
    return (one["point"], one["probes"]) == (point, [10])


def _suits_one_only(tries: list[dict[str, Any]]) -> bool:
    reached = {(t["rate"], t["matrix"]) for t in tries if t["outcome"] == "reached"}
    lost = {(t["rate"], t["matrix"]) for t in tries if t["outcome"] == "diverged"}
    return bool(reached & lost)


def _outcome(one: dict[str, Any], limit: int) -> str:
    if one["outcome"] == "reached":
        return str(one["steps"])
    if one["outcome"] == "diverged":
        return "diverges"
    return f"{one['excess']:.1%} above after {limit}"
