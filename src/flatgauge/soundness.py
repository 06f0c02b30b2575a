"""What is asked of a model once, before its numbers are trusted.

Every parameter that the loss depends on must be one that we can replace, and autograd's
derivatives must be those of the loss. Both are looked at in float64 where the model runs
in it, on at most four samples where the batch can be cut, at a point beside the given one
(`differences.moved`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from flatgauge.blame import Calls
from flatgauge.data import Batch, concatenated, few_samples, map_batch, tensors_in
from flatgauge.differences import Verdict, examine, moved, scales_of
from flatgauge.errors import FlatgaugeError, ModelError
from flatgauge.isolation import check_private
from flatgauge.kernels.convolution import OwnConvolutions
from flatgauge.kernels.layer_norm import OwnLayerNorms
from flatgauge.losses import Loss
from flatgauge.memory import free_memory
from flatgauge.network import Network
from flatgauge.vectors import Params, gradient_of, size, unused_in

SAMPLES = 4
# What a bench holds at a time: its network, points, directions, gradients and products.
VECTORS = 12
# How far the point is moved, in units of the usual way: see `differences.moved`.
SHARES = (1.0, 1e-4)
# Two ways to one gradient differ by rounding only: of the tensor's norm, of the whole.
OF_TENSOR, OF_WHOLE = 1e-6, 1e-10
# How much more where the model does not run in float64.
COARSER = 1e4
CHECKED, AS_GIVEN, UNDECIDED = "checked", "as given", "undecided"


@dataclass(frozen=True)
class Bench:
    """A small problem with a model's derivatives: a network, a loss, few samples.

    Attributes:
        network: a private network, whose parameters are at `point`.
        loss: the objective's loss.
        batch: the samples.
        point: beside the objective's own.
    """

    network: Network
    loss: Loss
    batch: Batch
    point: Params

    def total(self, params: Params) -> tuple[Tensor, float]:
        """The loss, and the size of the numbers that it was computed from."""
        # The derivatives to be judged are those that products are made of.
        with OwnConvolutions(), OwnLayerNorms():
            outputs, targets = self.network.evaluate(params, self.batch)
        value, _ = self.loss.total(outputs, targets)
        found = [t.detach() for t in tensors_in(outputs) if t.is_floating_point()]
        reach = sum(
            float(t.abs().max()) * len(t) for t in found if t.ndim and t.numel()
        )
        return value, abs(float(value.detach())) + reach

    def check_reach(self) -> None:
        """Refuse parameters that the model reads past its own attributes.

        The gradient with all parameters replaced must be that of the model as it is.

        Raises:
            ModelError: naming the parameter where it is another.
        """
        leaves = {n: t.detach().requires_grad_() for n, t in self.point.items()}
        replaced = gradient_of(self.total(leaves)[0], leaves)
        registered = dict(self.network.model.named_parameters())
        own = {name: registered[name].requires_grad_() for name in self.point}
        try:
            direct = gradient_of(self.total({})[0], own)
        finally:
            self.network.model.requires_grad_(False)
        scales = scales_of(self.point)
        norms = {n: scales[n] * float(t.norm()) for n, t in direct.items()}
        coarse = 1.0 if self.network.dtype == torch.float64 else COARSER
        for name, tensor in direct.items():
            wrong = scales[name] * float((tensor - replaced[name]).norm())
            allowed = OF_TENSOR * norms[name] + OF_WHOLE * max(norms.values())
            if wrong > coarse * allowed:
                raise ModelError(
                    f"the model reads '{name}' through a reference of its own (a list or "
                    "a closure?), so it cannot be replaced: read it as an attribute of "
                    "its module."
                )

    def check_derivatives(self) -> str:
        """Refuse a model whose backward is not the derivative of its forward.

        At most 24 gradients, that of `check_reach` included: see `differences.examine`.

        Returns:
            "checked", or "undecided" where rounding and kinks hide the answer, or memory
            does not suffice.

        Raises:
            ModelError: naming the module where it can be found.
        """
        try:
            found = examine(self.total, self.point)
        except torch.OutOfMemoryError:
            return UNDECIDED
        if found.verdict is not Verdict.DIFFERS:
            return CHECKED if found.verdict is Verdict.AGREES else UNDECIDED
        with Calls(self.network.model) as calls:
            self.total(self.point)
        alone = "the loss" if self.network.forward is None else "forward= or the loss"
        raise ModelError(
            f"autograd's derivatives are not those of the loss ({found.words}, because of "
            f"{calls.culprit() or alone}): do without the custom backward, gradient hook, "
            "straight-through estimator or detach() that changes them, turn activation "
            f'checkpointing off, or pass derivatives="{AS_GIVEN}" to take autograd\'s '
            "word."
        )


def check_sound(
    network: Network,
    point: Params,
    loss: Loss,
    batches: Callable[[], Iterable[Batch]],
    model: nn.Module,
    *,
    derivatives: str,
) -> str:
    """Look at the first batch whose loss depends on the parameters, or at samples of all.

    Args:
        network: the private copy.
        point: its parameters.
        loss: of the objective.
        batches: them, in order, at every call.
        model: the user's own, whose parameters the loss must not read.
        derivatives: "as given" leaves autograd's alone.

    Returns:
        "checked", "undecided" or "as given".

    Raises:
        ModelError: for a parameter that cannot be replaced, and derivatives that are not
            those of the loss.
    """
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in point.items()}
    mixed = _mixed(batches())
    for batch in batches():
        total = loss.sum(*network.evaluate(leaves, batch))
        check_private(total, model)
        few = bench(network, point, loss, batch, mixed)
        if few is not None:
            few.check_reach()
        if len(unused_in(total, leaves)) < len(leaves):
            if derivatives == AS_GIVEN:
                return AS_GIVEN
            # What a user's code warns of in a pass, it said in those before.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return UNDECIDED if few is None else few.check_derivatives()
    raise ModelError(
        "the loss does not depend on any of the chosen parameters: check params=, and that "
        "forward= uses the model that it is given."
    )


def bench(
    network: Network,
    point: Params,
    loss: Loss,
    batch: Batch,
    mixed: Batch | None = None,
) -> Bench | None:
    """The first of the benches that runs: in float64, on few samples, moved the usual way.

    The few are of several batches (`mixed`) if they can be.

    Else in the model's own precision, on the whole batch, or moved hardly at all, as for
    roots and logarithms of parameters; None where none of these runs or has the room.
    """
    for dtype in dict.fromkeys((torch.float64, network.dtype)):
        needed = VECTORS * size(point) * torch.finfo(dtype).bits // 8
        if needed > free_memory(network.device):
            continue
        try:
            twin = network.with_model(network.model, list(point), dtype=dtype)
        except (FlatgaugeError, RuntimeError):
            continue
        own = dict(twin.model.named_parameters())
        given = {name: tensor.detach().to(dtype) for name, tensor in point.items()}
        for samples in _distinct(mixed, _few(batch), batch):
            for share in SHARES:
                found = Bench(twin, loss, _in(dtype, samples), moved(given, share))
                for name, tensor in found.point.items():
                    own[name].data.copy_(tensor)
                if _runs(found):
                    return found
    return None


def _runs(found: Bench) -> bool:
    try:
        value, _ = found.total(found.point)
    except (FlatgaugeError, RuntimeError):
        return False
    return bool(torch.isfinite(value))


def _in(dtype: torch.dtype, batch: Batch) -> Batch:
    return map_batch(lambda t: t.to(dtype) if t.is_floating_point() else t, batch)


def _few(batch: Batch) -> Batch:
    """The first sample, one in the middle, the last, and the first again.

    Twice, so that what depends on how often a value occurs is seen.
    """
    if few_samples(batch, SAMPLES) is batch:
        return batch
    count = next(len(tensor) for tensor in tensors_in(batch.whole))
    rows = [0, count // 2, count - 1, 0]
    return map_batch(lambda t: t[rows], batch)


def _mixed(batches: Iterable[Batch]) -> Batch | None:
    """A sample of the first batch, of one in the middle and of the last, as in `_few`.

    Other batches may take other paths. None where there is one batch only, or where
    samples of several cannot be put together.
    """
    singles: list[Batch] = []
    for batch in batches:
        if few_samples(batch, 1) is batch:
            return None
        # Copies: a view would keep the whole batch.
        singles.append(map_batch(lambda t: t[-1:].clone(), batch))
    if len(singles) < 2:
        return None
    chosen = [singles[i] for i in (0, len(singles) // 2, -1, 0)]
    try:
        parts = [
            concatenated([getattr(one, part) for one in chosen])
            for part in ("whole", "inputs", "targets")
        ]
    except (RuntimeError, TypeError, ValueError, KeyError):
        return None
    return Batch(0, *parts)


def _distinct(*candidates: Batch | None) -> list[Batch]:
    given = [one for one in candidates if one is not None]
    return list({id(one): one for one in given}.values())
