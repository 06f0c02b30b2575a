"""Find the diagonal rescalings that leave a network's function unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import torch
from scipy import sparse
from torch import Tensor, nn

from flatgauge.data import Batch, few_samples
from flatgauge.errors import OptionError, SymmetryError
from flatgauge.isolation import isolated
from flatgauge.memo import once_per_network
from flatgauge.nested import concatenated
from flatgauge.network import check_not_scripted
from flatgauge.objective import Objective
from flatgauge.soundness import AS_GIVEN
from flatgauge.symmetry.capture import Reading, read
from flatgauge.symmetry.generators import Generators
from flatgauge.symmetry.graph import Example, Graph, Output
from flatgauge.symmetry.group import Group
from flatgauge.symmetry.interpret import Interpretation, interpret
from flatgauge.symmetry.layout import Layout
from flatgauge.symmetry.solve import null_space
from flatgauge.symmetry.verify import verified, verify_on_data, with_dimension

EXAMPLES = 4
"""Samples of a batch that an objective's network is read with."""

BATCHES = 16
"""Batches that it is read with where the first one does not reach all of it."""

COUNTED = 32
"""Samples of a batch on which rescalings are counted once more."""

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
    verify: str | None = None,
) -> Group:
    """Find every diagonal rescaling of parameters and buffers that preserves `model`.

    The network is read in evaluation mode as a program of ATen operators; each operator
    has a rule that says how scales pass through it; the resulting linear system is
    solved; and a random element of the group found is applied to a copy, whose outputs
    must not change.

    Where numbers that are read out of tensors decide what is computed, as for experts
    that samples are sent to or loops that end when they settle, other inputs may need
    other operators. For an objective the group is then that of the path which its data
    take, and of what they reach, as `branches` of the group says; for examples alone it
    is refused.

    Args:
        model: The network, or an objective, which has example inputs and a forward of
            its own and whose data must all pass the test. It is not changed.
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
        verify: "dimension" for a second opinion: the rescalings are counted once more by
            linear algebra alone, on up to 5,000 parameters (of a larger network on its
            smallest tensors), and the group's `numerical` says whether any was missed.

    Returns:
        The group, after a random element of it has passed the test.

    Raises:
        SymmetryError: if the network cannot be read, if `strict` and an operator has no
            rule, or if the test fails.
        ModelError: if a part of it is a ScriptModule.

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
    if verify not in (None, "dimension"):
        raise OptionError(f"verify= is '{verify}': give 'dimension', or leave it out.")
    options = {"strict": strict, "batchnorm": batchnorm}
    model = model.whole() if isinstance(model, Objective) else model
    if isinstance(model, Objective) and example_inputs is None:
        group = _first_that_holds(model, output, options)
        if verify is None:
            return group
        some = _given(model, few_samples(model.first_batch(), COUNTED))
        called = _called(model, some, output)
        sound = model.derivatives != AS_GIVEN
        return with_dimension(group, model.model(), called, sound)
    if isinstance(model, Objective):
        model = model.model()
    if example_inputs is None:
        raise OptionError("symmetries(model) needs example inputs: pass them second.")
    check_not_scripted(model)
    example = _example(example_inputs, output)
    reading = read(model, example)
    _check_one_path(reading.graph)
    group = verified(discover(reading, **options), model, example)
    return group if verify is None else with_dimension(group, model, example)


def _check_one_path(graph: Graph) -> None:
    """Raises SymmetryError if other inputs than the examples may take another path."""
    if graph.branches:
        raise SymmetryError(
            f"module '{graph.branches[0]}' reads a number out of a tensor, as a branch "
            "on data does: other inputs may take another path, whose symmetries are not "
            "known; give all the data, as symmetries(objective), remove the branch, or "
            "use torch.where."
        )
    if graph.unreached:
        raise SymmetryError(
            f"module '{graph.unreached[0]}' chose no sample of the example inputs for a "
            "part of the network, so nothing is seen of that part: pass inputs that reach "
            "all of it."
        )


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
        branches=tuple(dict.fromkeys(graph.branches + graph.unreached)),
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

    Few samples may not reach all parts of a network. Where numbers decide what is
    computed, as for experts, each reading may miss some: the one that shows most counts.
    """
    refusal: SymmetryError | None = None
    best: Group | None = None
    for number, example in enumerate(_examples(objective, output)):
        try:
            # What was not exported once is not tried again.
            exported = best is None
            group = discover(_reading(objective, number, output, exported), **options)
            group = verified(group, objective.model(), example)
            verify_on_data(objective, group)
        except SymmetryError as error:
            refusal = error
            continue
        if not group.branches:
            return group
        best = group if best is None or group.dimension > best.dimension else best
    if best is not None:
        return best
    assert refusal is not None
    raise refusal


@once_per_network
def _reading(
    objective: Objective, number: int, output: OutputChoice, exported: bool
) -> Reading:
    """The network as it is read with its examples of this number, for all options."""
    example = next(islice(_examples(objective, output), number, None))
    return read(objective.model(), example, exported=exported)


def program_of(objective: Objective) -> Graph:
    """The objective's network as a program of operators.

    Raises:
        SymmetryError: if it cannot be read.
    """
    return _reading(objective, 0, None, True).graph


def _called(objective: Objective, given: Any, output: OutputChoice) -> Example:
    """How the objective calls its network on a part of its data."""
    forward = objective.network.forward
    if forward is not None:
        return Example((given,), {}, _selector(output), forward)
    return _example(tuple(given) if isinstance(given, list) else given, output)


def _given(objective: Objective, batch: Batch) -> Any:
    return batch.inputs if objective.network.forward is None else batch.whole


def _examples(objective: Objective, output: OutputChoice) -> Iterator[Example]:
    """What the objective calls its network with, the cheapest first."""
    given = partial(_given, objective)

    def example(inputs: Any) -> Example:
        return _called(objective, inputs, output)

    first = objective.first_batch()
    yield example(given(few_samples(first, EXAMPLES)))
    yield example(given(first))
    few = objective.examples(BATCHES, EXAMPLES)
    if len(few) > 1:
        # Batches that cannot be put together are left at that.
        with suppress(RuntimeError, TypeError, ValueError, KeyError):
            yield example(concatenated([given(one) for one in few]))


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
