"""The objective: a model, data and a loss, at one point of parameter space."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Any

import torch
from torch import Tensor, nn

from flatgauge.data import Batch, Batches, ChosenSamples, Part
from flatgauge.displays import Displayed
from flatgauge.errors import DataError, OptionError, OutOfMemoryError
from flatgauge.isolation import isolated
from flatgauge.losses import Loss, RowLoss, resolve_loss
from flatgauge.memo import Facts
from flatgauge.memory import bytes_of, in_words, memory_budget
from flatgauge.network import Forward, Network, unwrapped
from flatgauge.ranks import ProcessGroup, Ranks, ranks_of
from flatgauge.readings import Readings
from flatgauge.shards import joined
from flatgauge.soundness import AS_GIVEN, CHECKED, UNDECIDED, check_sound, most_certain
from flatgauge.sums import Losses, MeanLoss, Watch, losses_of
from flatgauge.units import survey
from flatgauge.vectors import (
    Params,
    check_finite,
    check_finite_parameters,
    check_like,
    dealt_like,
    derivative_errors,
    gradient_of,
    map_tensors,
    norm,
    scale,
)

LossLike = str | Loss | Callable[[Any, Any], Tensor]
# What a whole copy of a sharded objective is found by, and the vectors beside it.
_WHOLE, WHOLE_VECTORS = "whole", 8
# What an objective has by its loss; its rows are what the loss averages over.
OF_THE_LOSS = ("loss", "coupled", "batch_sizes", "sample_count", "_value", "facts")


class Objective(Readings, Displayed):
    """L(θ): the mean loss of a model over data, as a function of its parameters.

    The model is copied, so yours is never touched and may go on training. A batch
    counts by its samples, a token-level batch by its valid targets (-100 is ignored),
    so that other batch sizes give the same number. Outputs of a causal language model
    (a Hugging Face model that can generate and is no encoder-decoder, with one
    label per token) are shifted by one, unless `forward` is given.

    Where samples influence each other's losses (batch statistics in train mode, a
    contrastive loss), `coupled` is true: L is the mean over the batches as given, and
    other batches are another objective. `batch_sizes` holds the rows of each.

    Args:
        model: any module; its parameters are float32 or float64.
        data: a DataLoader, a list of batches, a Dataset (with `batch_size`), or a pair
            of tensors. A batch is (inputs, targets) or a mapping with "labels"; inputs
            that are a tuple or a mapping become several arguments of the model.
        loss: "cross-entropy", "mse", "normalized-cross-entropy", or a callable
            (outputs, targets) that returns the mean over the batch or a value per sample.
        batch_size: for tensors and Datasets.
        device: where to compute; the model's own device if None.
        dtype: torch.float32 or torch.float64; the model's own if None.
        mode: "eval", or "train" for batch statistics (running ones stay untouched).
        params: a predicate on names that chooses the parameters, frozen ones included;
            by default those that require gradients.
        forward: callable(model, batch) -> outputs, instead of our own call.
        precision: "ieee", or "tf32" for coarser and faster float32 products on GPUs.
        memory: of a GPU in all, of a CPU for what each operator keeps: bytes or "12GiB".
        derivatives: "checked" compares autograd's with differences of the loss on some
            samples, and refuses where they differ; "as given" takes its word.
        process_group: of torch.distributed. Inside an initialised default group each
            process gives its own batches, and L is the mean over those of all; False
            measures by this process alone.
        checkpoint: compute the elements of the model's nn.ModuleList and nn.Sequential
            again in gradients and Hessian products instead of keeping their activations:
            less memory, about twice the time.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> _ = model.weight.data.fill_(1.0)
    >>> Objective(model, (torch.eye(2), torch.zeros(2, 1)), loss="mse").value()
    1.0
    """

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        loss: LossLike = "cross-entropy",
        *,
        batch_size: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        mode: str = "eval",
        params: Callable[[str], bool] | None = None,
        forward: Forward | None = None,
        precision: str = "ieee",
        memory: int | float | str | None = None,
        derivatives: str = CHECKED,
        process_group: ProcessGroup = None,
        checkpoint: bool = False,
    ):
        _check_choice("derivatives", derivatives, CHECKED, AS_GIVEN)
        _check_choice("precision", precision, "ieee", "tf32")
        self.precision, self.derivatives = precision, derivatives
        self.memory = bytes_of(memory)
        self.ranks: Ranks = ranks_of(process_group)

        def take() -> tuple[Network, Batches]:
            # A copy made in inference mode could not be differentiated.
            with torch.inference_mode(False):
                network = Network(
                    model,
                    device=device,
                    dtype=dtype,
                    mode=mode,
                    params=params,
                    forward=forward,
                    checkpoint=checkpoint,
                    ranks=self.ranks,
                )
            return network, Batches(
                data,
                batch_size=batch_size,
                device=network.device,
                dtype=network.dtype,
                any_batch=forward is not None and not isinstance(loss, str),
            )

        self.network, batches = self.ranks.together(take)
        self.network.share(self.ranks)
        check_finite_parameters(self.network.parameters)
        if self.ranks.count > 1 and self.ranks.first:
            batches.warn_of_padding()
        self._batches: Batches | Part = batches
        self.parameters: Params = self.network.parameters
        self.in_step = self.network.gathering is not None
        self._stand_in: Batch | None = None
        # What has been found out: see `flatgauge.memo`.
        self.facts: Facts = {}
        self.network_facts: Facts = {}
        self._others: list[Batch] | None = None
        if self.in_step:
            self._fall_in_step()
        self.shares = self._survey(loss).shares
        batches.offset = sum(self.shares[: self.ranks.rank])
        batches.hold_from_now_on(self.memory)
        self._check_sound(model)

    @property
    def device(self) -> torch.device:
        """Where parameters and batches live."""
        return self.network.device

    @property
    def batch_count(self) -> int:
        """The number of batches of one pass, of this process."""
        if self._others is not None:
            return len(self._others)
        return max(self.shares) if self.in_step else self.shares[self.ranks.rank]

    @property
    def dtype(self) -> torch.dtype:
        """The floating type of parameters and inputs."""
        return self.network.dtype

    def value(self) -> float:
        """L(θ), accumulated in float64."""
        if self._value is None:
            self._value = self._mean(self.loss, 0).value
        return self._value

    def gradient(self) -> Params:
        """∇L(θ)."""

        def slope(batch: Batch) -> Params:
            point = self.leaves()
            value = self.batch_total(point, batch)
            with derivative_errors("gradient"):
                return gradient_of(value, point)

        gradient = scale(self.sum(slope), 1 / self.sample_count)
        check_finite(gradient, "gradient")
        return gradient

    @property
    def sharded(self) -> bool:
        """Whether every process has some rows of each parameter only."""
        return self.in_step

    def whole(self) -> Objective:
        """The same objective with all parameters in every process; itself if they are.

        Raises:
            OutOfMemoryError: if they do not fit.
        """
        if not self.sharded:
            return self
        if not self.fits_whole:
            raise OutOfMemoryError(
                "the parameters are sharded, and a whole copy of "
                f"{in_words(self.parameters)} with the vectors beside it does not fit in "
                "each process: raise memory=, or ask for measures that need none."
            )
        if _WHOLE not in self.facts:
            point: Facts = self.network_facts.setdefault(_WHOLE, {})
            twin = self._clone()
            twin.in_step, twin._stand_in = False, None
            with torch.inference_mode(False):
                twin.network, twin.network_facts = self.network.whole(), point
            if _WHOLE not in point:
                with torch.inference_mode(False):
                    point[_WHOLE] = map_tensors(joined, self.parameters)
            twin.parameters, twin._value = point[_WHOLE], vars(self).get("_value")
            self.facts[_WHOLE] = twin
        return self.facts[_WHOLE]

    def at(self, params: Params) -> Objective:
        """The same objective at another point.

        Facts are forgotten; what was seen of the loss and of the data is not looked at
        again.
        """
        moved = self._clone()
        checked = check_like(params, self.parameters)
        if self.ranks.count > 1:
            # Before each takes its rows of them.
            self.ranks.check_same(float(norm(checked)), "the point of at()")
        checked = dealt_like(checked, self.parameters)
        # Copies: changing the given tensors later must not move this point.
        moved.parameters = {n: tensor.detach().clone() for n, tensor in checked.items()}
        check_finite_parameters(moved.parameters)
        return moved

    def model(self) -> nn.Module:
        """A model of your class at this point: yours to keep, nothing is shared."""
        return self.network.model_at(self.parameters)

    def with_model(self, model: nn.Module) -> Objective:
        """Another model on the same data and loss, of which no facts are known.

        Its parameters are those of the same names, else those that require gradients.
        """
        model = unwrapped(model)
        names = [n for n, _ in model.named_parameters() if n in self.parameters]
        if len(names) < len(self.parameters):
            names = [n for n, p in model.named_parameters() if p.requires_grad]
        changed = self._clone()
        changed.network = self.ranks.together(
            lambda: self.network.with_model(model, names)
        )
        changed.network.share(self.ranks)
        changed._take_network()
        if changed.in_step and not self.in_step:
            changed._fall_in_step()
        check_finite_parameters(changed.parameters)
        if changed.parameters.keys() != self.parameters.keys():
            changed._survey(self.loss)
        changed._check_sound(model)
        return changed

    def in_double(self) -> Objective:
        """With its network in float64, and no facts; batches stay: convert what you use.

        A network that is in float64 already is shared.
        """
        changed = self._clone()
        at_home = self.parameters is self.network.parameters and not self.sharded
        if self.dtype == torch.float64 and at_home:
            # As it is: nobody changes a network.
            return changed
        changed.network = self.network.with_model(
            self.model(), list(self.parameters), dtype=torch.float64
        )
        changed._take_network()
        return changed

    def with_loss(self, loss: LossLike) -> Objective:
        """The same model, data and point under another loss.

        Facts of the network are shared: what either finds out, both know.
        """
        changed = self._clone()
        changed.network_facts = self.network_facts
        given = resolve_loss(loss)
        # Losses of rows say nothing about which samples a row depends on.
        rows = isinstance(self.loss, RowLoss) and isinstance(given, RowLoss)
        changed._survey(given, self.coupled if rows else None)
        if not isinstance(changed.loss, RowLoss):
            changed._check_sound(self.network.model)
        return changed

    def under(self, loss: Loss) -> Objective:
        """The same rows under a loss of our own, which nobody need look at."""
        changed = self._clone()
        changed.network_facts, changed.loss = self.network_facts, loss
        return changed

    def without_loss(self) -> Objective:
        """The same without its loss, and without all that a loss decides.

        What is not there cannot be read: that is for facts of the network.
        """
        bare = self._clone()
        bare.network_facts, bare._others = self.network_facts, self._others
        for name in OF_THE_LOSS:
            vars(bare).pop(name, None)
        return bare

    def in_batches(self, batches: list[Batch]) -> Objective:
        """The same objective, to be read in other batches of the same rows.

        Facts of the network are shared.
        """
        changed = self._clone()
        changed.network_facts = self.network_facts
        changed._others, changed._value = batches, self._value
        return changed

    def part(self, rows: ChosenSamples) -> Objective:
        """The same objective on some samples of some batches: see `data.Part`.

        It starts with the facts of the network that are known; what it finds out first
        need not hold for the other samples, and is not told.
        """
        if self.sharded:
            return self.whole().part(rows)
        changed = self._clone()
        changed.network_facts = dict(self.network_facts)
        changed._batches = Part(self._batches, rows)
        seen = changed._mean(self.loss, 0)
        changed._count(seen)
        changed.shares = seen.shares
        return changed

    def isolated(self, seed: int = 0) -> AbstractContextManager[None]:
        """The context that every pass runs in: see `flatgauge.isolation.isolated`."""
        return isolated(
            self.device,
            self._batches.source,
            recurrent=self.network.recurrent,
            weight_norm=self.network.weight_norm,
            tf32=self.precision == "tf32",
            seed=seed,
            saving=self.network.saving(),
        )

    def batches(self) -> Iterator[Batch]:
        """The batches of this process, on the device; to be read inside `isolated()`."""
        own = iter(self._batches if self._others is None else self._others)
        if self._stand_in is None:
            return own
        missing = max(self.shares) - self.shares[self.ranks.rank]
        return chain(own, repeat(self._stand_in, missing))

    def held_batches(self) -> list[Batch] | None:
        """The batches, if all of them are kept on the device."""
        return self._batches.held() if self._others is None else self._others

    def leaves(self) -> Params:
        """The parameters as fresh leaves that require gradients."""
        return map_tensors(lambda t: t.detach().requires_grad_(), self.parameters)

    def evaluate(self, params: Params, batch: Batch) -> tuple[Any, Any]:
        """The outputs at `params`, and the targets that belong to them."""
        return self.network.evaluate(params, batch)

    def batch_total(self, params: Params, batch: Batch) -> Tensor:
        """The sum of the losses of one batch, differentiable in `params`."""
        with self.network.recomputing():
            outputs, targets = self.evaluate(params, batch)
        total = self.loss.sum(outputs, targets)
        return 0 * total if batch.stand_in else total

    fits_whole: bool = True
    """Whether a process has room for all of the parameters, and vectors beside them."""

    def __getstate__(self) -> dict[str, Any]:
        # Facts are found out again: functions and what they were given name them.
        return {**self.__dict__, "facts": {}, "network_facts": {}}

    def _take_network(self) -> None:
        """Go to the point of another network, which may be whole where this was not."""
        self.parameters = self.network.parameters
        self.in_step = self.network.gathering is not None
        self._stand_in = self._stand_in if self.in_step else None

    def _clone(self) -> Objective:
        """A copy without facts, not even its value: who hands them on, says so."""
        twin = object.__new__(Objective)
        vars(twin).update(vars(self))
        twin._value = twin._others = None
        twin.facts, twin.network_facts = {}, {}
        return twin

    def _mean(self, loss: Loss, seed: int, watch: Watch | None = None) -> MeanLoss:
        """The mean of a loss over the data, without derivatives."""

        def own() -> Losses:
            watched = self.network.watched(watch is not None)
            with self.isolated(seed), watched, self.network.recomputing():
                evaluate = partial(self.evaluate, self.parameters)
                return losses_of(self.batches(), evaluate, loss, watch)

        return MeanLoss.of(self.ranks.gathered(self.ranks.together(own)))

    def _survey(self, loss: LossLike, known: bool | None = None) -> MeanLoss:
        """Look at the loss and the data: see `flatgauge.units.survey`."""
        if self.sharded and self.fits_whole:
            # What it looks at depends on the samples, and is not the same on all ranks.
            whole = self.whole()
            seen = whole._survey(loss, known)
            self.loss, self.coupled = whole.loss, whole.coupled
            self._count(seen)
            return seen
        given = resolve_loss(loss)
        point, ranks = self.parameters, self.ranks
        found = survey(self._mean, given, self.network, point, ranks, known)
        self.loss, self.coupled, seen = found
        self._count(seen)
        return seen

    def _fall_in_step(self) -> None:
        """Let all processes run as many batches, where each needs the others' rows."""
        room = memory_budget(self.device, self.memory)
        every = sum(tensor.numel() for tensor in self.network.model.parameters())
        needed = WHOLE_VECTORS * every * self.dtype.itemsize
        self.fits_whole = bool(self.ranks.least(int(needed <= room)))
        counted = self.ranks.together(lambda: sum(1 for _ in self._batches))
        self.shares = tuple(self.ranks.gathered(counted))
        if len(set(self.shares)) == 1:
            return
        if not self.fits_whole:
            raise DataError(
                f"the processes have {', '.join(map(str, self.shares))} batches, but with "
                "a sharded model that does not fit whole all need as many: give each the "
                "same number."
            )
        self._stand_in = replace(self.first_batch(), stand_in=True)

    def _count(self, seen: MeanLoss) -> None:
        self._value: float | None = seen.value
        self.batch_sizes, self.sample_count = seen.sizes, seen.rows

    def _check_sound(self, model: nn.Module) -> None:
        """See `soundness.check_sound`; `derivatives` then says what was found."""
        if self.sharded:
            if self.fits_whole:
                whole = self.whole()
                whole._check_sound(model)
                self.derivatives = whole.derivatives
            elif self.derivatives == CHECKED:
                self.derivatives = UNDECIDED
            return

        def own() -> str:
            with self.isolated(), derivative_errors("gradient"):
                return check_sound(
                    self.network,
                    self.parameters,
                    self.loss,
                    self.batches,
                    self.batch_count,
                    model,
                    derivatives=self.derivatives,
                )

        found = self.ranks.gathered(self.ranks.together(own))
        self.derivatives = most_certain(found)


def _check_choice(name: str, given: str, one: str, other: str) -> None:
    if given not in (one, other):
        raise OptionError(f"{name}= is '{given}': use '{one}' or '{other}'.")
