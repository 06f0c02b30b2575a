"""The parts of the page on networks along their orbits."""

from __future__ import annotations

from typing import Any

from papers.dinh2017 import words
from papers.dinh2017.network_findings import orbit_runs
from papers.experiment import Results
from papers.page import number, table


def linear(results: Results, expected: dict[str, Any]) -> str:
    return f"""\
![Measures along the orbit](figures/orbit.svg)

One network with one hidden layer, without biases. {trained(results, "linear")} The x-axis is
α. Left: the whole first layer times α, the second divided by α. Right: every hidden unit has
its own factor α^s, with s spread evenly from -1 to 1. Solid lines are measures that claim to
be invariant under this kind of rescaling, dashed lines are those that do not.
{words.flat_lines(results)}

The table shows the largest relative drift |value / value at α = 1 - 1| over
{drifts(results, "linear")}"""


def biases(results: Results, expected: dict[str, Any]) -> str:
    return f"""\
![Measures along the orbit, with biases](figures/orbit-biases.svg)

Two hidden layers with biases. {trained(results, "biases")} A hidden bias takes the product of
the factors up to its layer (supplement B). Left: the first layer times α, the last divided
by α, so that both hidden biases are multiplied by α. Right: the units of both hidden layers
have factors α^s of their own. {words.flat_lines(results, "biases")}

The largest drifts over {drifts(results, "biases")}"""


def convolutions(results: Results, expected: dict[str, Any]) -> str:
    return f"""\
![Measures along the orbit, with convolutions](figures/orbit-convolutions.svg)

Two convolutions (3 × 3, stride 2) and a linear layer, all with biases; the units are the
channels. {trained(results, "convolutions")} The supplement does not treat this case;
summaries of the paper say that it is like the others.
{words.flat_lines(results, "convolutions")}

The largest drifts over {drifts(results, "convolutions")}"""


def trained(results: Results, network: str) -> str:
    """What the network reached in training."""
    found = results[orbit_runs(network)[0]]
    return (
        f"It has {found['parameters']} parameters in float64 and was trained to "
        f"{found['train accuracy']:.1%} on its training images (test: "
        f"{found['test accuracy']:.1%}; loss {number(found['loss'])}, norm of the gradient "
        f"{number(found['gradient'])})."
    )


def drifts(results: Results, network: str) -> str:
    """The table of drifts, with a sentence that the page begins."""
    layer, node = (results[run] for run in orbit_runs(network))
    rows = []
    for one, other in zip(layer["measures"], node["measures"], strict=True):
        rows.append([one["measure"], *cells(one), *cells(other)])
    head = ["measure"]
    for kind in ("layers", "units"):
        head += [f"{kind}: claimed invariant", f"{kind}: largest drift"]
    return f"""\
{len(layer["alphas"])} values of α from {number(min(layer["alphas"]))} to
{number(max(layer["alphas"]))}, next to what each measure claims. The function itself: outputs
drift by {number(layer["output drift"])} (layers) and {number(node["output drift"])} (units),
the loss by {number(layer["loss drift"])} and {number(node["loss drift"])}.

{table(head, rows)}
{untrusted(layer, node)}"""


def cells(row: dict[str, Any]) -> list[Any]:
    mark = "" if row["trusted"] else " (a)"
    return [row["claims"], f"{number(row['drift'], 2)}{mark}"]


def untrusted(*found: dict[str, Any]) -> str:
    if all(row["trusted"] for one in found for row in one["measures"]):
        return ""
    return (
        "(a) For some α this number did not reach its own tolerance, and the library says "
        "so.\n"
    )
