"""Find the diagonal rescalings that leave a network's function unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import torch
from scipy import sparse
from torch import Tensor, nn

from flatgauge.data import few_samples
from flatgauge.errors import OptionError, SymmetryError
from flatgauge.isolation import isolated
from flatgauge.memo import once_per_network
from flatgauge.nested import concatenated
from flatgauge.objective import Objective
from flatgauge.symmetry.capture import Reading, read
from flatgauge.symmetry.generators import Generators
from flatgauge.symmetry.graph import Example, Output
from flatgauge.symmetry.group import Group
from flatgauge.symmetry.interpret import Interpretation, interpret
from flatgauge.symmetry.layout import Layout
from flatgauge.symmetry.solve import null_space
from flatgauge.symmetry.verify import verified, verify_on_data

EXAMPLES = 4
"""Samples of a batch that an objective's network is read with."""

BATCHES = 16
"""Batches that it is read with where the first one does not reach all of it."""

BATCHNORM = ("joint", "eps-corrected", "eval-only", "parameters")

Inputs = Tensor | tuple[Any, ...] | Mapping[str, Any]
OutputChoice = str | int | Output | None


def symmetries(
    model: nn.Module | Objective,
    example_inputs: Inputs | None = None,
    *,
    strict: bool = False,
    batchnorm: str = "joint",
    output: OutputChoice = None,
) -> Group:
    """Find every diagonal rescaling of parameters and buffers that preserves `model`.

    The network is read in evaluation mode as a program of ATen operators; each operator
    has a rule that says how scales pass through it; the resulting linear system is
    solved; and a random element of the group found is applied to a copy, whose outputs
    must not change.

    Args:
        model: The network, or an objective, which has example inputs of its own and
            whose data must all pass the test. It is not changed.
        example_inputs: A tensor, a tuple of positional inputs, or a mapping of keywords.
        strict: Whether to raise where an operator has no scaling rule, rather than to
            hold its tensors fixed and warn.
        batchnorm: Which rescalings of running statistics count.
            "joint": running mean and variance follow, so that evaluation and training
            mode are both preserved; exact only where nothing scales a batch norm's
            input, else up to its eps.
            "eps-corrected": v + eps follows instead of v, so that all of them are exact
            in evaluation mode; the choice for an audit.
            "eval-only": the variance stays and the gain makes up for it.
            "parameters": buffers stay; what a Hessian at fixed running statistics sees.
        output: What of the result must be preserved: a key, a position, or a function
            of the result. By default the "logits" of a mapping that has them, else
            every floating tensor.

    Returns:
        The group, after a random element of it has passed the test.

    Raises:
        SymmetryError: if the network cannot be read, if `strict` and an operator has no
            rule, or if the test fails.

    >>> import torch
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> group = symmetries(network, torch.ones(2, 4))
    >>> group.dimension, group.layer_dimension
    (8, 1)
    """
    if batchnorm not in BATCHNORM:
        raise OptionError(
            f"there is no batch-norm variant '{batchnorm}': choose one of {BATCHNORM}."
        )
    options = {"strict": strict, "batchnorm": batchnorm}
    if isinstance(model, Objective) and example_inputs is None:
        return _first_that_holds(model, output, options)
    if isinstance(model, Objective):
        model = model.model()
    if example_inputs is None:
        raise OptionError("symmetries(model) needs example inputs: pass them second.")
    example = _example(example_inputs, output)
    return verified(discover(read(model, example), **options), model, example)


def discover(reading: Reading, *, strict: bool, batchnorm: str) -> Group:
    """The group that the rules give, before the test."""
    graph = reading.graph
    with isolated(torch.device("cpu")):  # where labels live
        found = interpret(reading, strict=strict, batchnorm=batchnorm)
    return Group(
        generators=_generators(found),
        pinned=found.findings.pinned,
        unsupported=found.findings.unsupported,
        coarse=found.findings.coarse,
        shifts=found.findings.shifted,
        buffers=frozenset(name for name in found.scales if name in graph.buffers),
        aliases=reading.aliases,
        batchnorm=batchnorm,
        front_end=graph.front_end,
        rounded=graph.rounded,
    )


def _generators(found: Interpretation) -> Generators:
    """Solve: first up to eps, then modulo shifts without effect, then exactly."""
    system = found.system
    layout = Layout(found.scales, system.count)
    basis = null_space(*system.equations()).matrix
    if system.open_gauges or system.loose:
        effects = layout.moved(layout.scales) @ basis
        basis = basis[:, null_space(effects).determined]
    exact = null_space(system.exact_equations() @ basis)
    columns = sparse.hstack([basis @ exact.matrix, basis[:, exact.determined]])
    return Generators(layout, sparse.csc_array(columns), exact.dimension, system.tags())


def _first_that_holds(
    objective: Objective, output: OutputChoice, options: dict[str, Any]
) -> Group:
    """Read with few samples, then with a whole batch, then with some of many batches.

    Few samples may not reach all parts of a network.
    """
    refusal: SymmetryError | None = None
    for number, inputs in enumerate(_examples(objective)):
        try:
            group = discover(_reading(objective, number, output), **options)
            group = verified(group, objective.model(), _example(inputs, output))
            verify_on_data(objective, group)
            return group
        except SymmetryError as error:
            refusal = error
    assert refusal is not None
    raise refusal


@once_per_network
def _reading(objective: Objective, number: int, output: OutputChoice) -> Reading:
    """The network as it is read with its examples of this number, for all options."""
    inputs = next(islice(_examples(objective), number, None))
    return read(objective.model(), _example(inputs, output))


def _examples(objective: Objective) -> Iterator[Inputs]:
    """Inputs of the objective's data, the cheapest first."""
    if objective.network.forward is not None:
        raise SymmetryError(
            "the objective calls the model through forward=, which is not looked into: "
            "use symmetries(model, example_inputs)."
        )
    first = objective.first_batch()
    yield _inputs(few_samples(first, EXAMPLES).inputs)
    yield _inputs(first.inputs)
    few = objective.examples(BATCHES, EXAMPLES)
    if len(few) > 1:
        # Batches that cannot be put together are left at that.
        with suppress(RuntimeError, TypeError, ValueError, KeyError):
            yield _inputs(concatenated([one.inputs for one in few]))


def _inputs(inputs: Any) -> Inputs:
    return tuple(inputs) if isinstance(inputs, list) else inputs


def _example(inputs: Inputs, output: OutputChoice) -> Example:
    selector = _selector(output)
    if isinstance(inputs, Mapping):
        return Example((), inputs, selector)
    return Example(inputs if isinstance(inputs, tuple) else (inputs,), {}, selector)


def _selector(output: OutputChoice) -> Output:
    if callable(output):
        return output
    if output is not None:
        return lambda result: result[output]
    return lambda result: (
        result["logits"]
        if isinstance(result, Mapping) and "logits" in result
        else result
    )
