"""The processes that measure together, by torch.distributed.

All of them run the same code, each with batches of its own. What a process does with its
own batches runs inside `together`, which ends when all have done their part; outside of
it all know the same numbers, and so take the same turns.
"""

from __future__ import annotations

import math
import pickle
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor

from flatgauge.deadline import OutOfTime
from flatgauge.errors import FlatgaugeError, OptionError, ProcessGroupError
from flatgauge.nested import leaves, map_leaves
from flatgauge.shards import is_sharded

T = TypeVar("T")
ProcessGroup = dist.ProcessGroup | Literal[False] | None
MEETING_SECONDS = 60.0
# Entries up to which tensors are sent together: one message costs as much as these.
SMALL = 2**20


class Ranks(ABC):
    """Processes of one measurement; `rank` is the place of this one among `count`."""

    count: int
    rank: int
    apart: bool = False
    """Whether each works by itself at the moment, inside `together`."""

    @property
    def first(self) -> bool:
        """Whether this process is the one that speaks for all."""
        return self.rank == 0

    @abstractmethod
    def together(self, work: Callable[[], T], *, idle: bool = False) -> T:
        """What this process makes of its own data, when all have done theirs.

        Args:
            work: on what this process has.
            idle: whether it has nothing to work on.

        Raises:
            BaseException: on every rank, if it was raised on one: of several the first.
        """

    @abstractmethod
    def added(self, value: T) -> T:
        """The sum over ranks of equal structures: numbers, tensors, nested."""

    @abstractmethod
    def gathered(self, value: T) -> list[T]:
        """The values of all, by rank; they are pickled on their way."""

    @abstractmethod
    def given_by(self, rank: int, value: T) -> T:
        """The value of one of them; what the others give does not matter."""

    @abstractmethod
    def agreed(self, value: T) -> T:
        """The first one's value; inside `together`, one's own."""

    @abstractmethod
    def exchange(self, what: str, call: Callable[[dist.ProcessGroup], object]) -> None:
        """Do something with the others, inside of `together` or outside.

        Args:
            what: names it, and has to be the same on all ranks.
            call: does it, in the process group.
        """

    def least(self, number: int) -> int:
        """The smallest of all."""
        return min(self.gathered(number))

    def check_same(self, value: Any, what: str) -> None:
        """See that all give the same; numbers may differ by rounding.

        Raises:
            OptionError: if one does not.
        """
        first, *others = self.gathered(value)
        for rank, other in enumerate(others, 1):
            same = (
                math.isclose(first, other, rel_tol=1e-5)
                if isinstance(first, float) and isinstance(other, float)
                else first == other
            )
            if not same:
                raise OptionError(
                    f"{what} is not the same on rank {rank} as on rank 0: give all "
                    "processes the same, for example by one seed."
                )


@final
class Alone(Ranks):
    """One process, for which nothing is to be done."""

    count, rank = 1, 0

    def together(self, work: Callable[[], T], *, idle: bool = False) -> T:
        """Just do it."""
        return work()

    def added(self, value: T) -> T:
        """The value."""
        return value

    def gathered(self, value: T) -> list[T]:
        """The value."""
        return [value]

    def given_by(self, rank: int, value: T) -> T:
        """The value."""
        return value

    def agreed(self, value: T) -> T:
        """The value."""
        return value

    def exchange(self, what: str, call: Callable[[dist.ProcessGroup], object]) -> None:
        """There are no others."""
        raise RuntimeError(f"one process cannot {what}.")


ALONE = Alone()


@final
class Several(Ranks):
    """The processes of a process group of torch.distributed."""

    def __init__(self, group: dist.ProcessGroup):
        self.group = group
        self.backend = str(dist.get_backend(group))
        self.count, self.rank = dist.get_world_size(group), dist.get_rank(group)
        # NCCL moves nothing else than tensors on GPUs.
        self._gpu = self.backend == "nccl"
        self._device = torch.device("cuda" if self._gpu else "cpu")
        self.apart = False
        self._turns = 0
        self._lost = ""
        # What an exchange inside of `together` raised, on all ranks.
        self._ended: BaseException | None = None
        self._meet()

    def together(self, work: Callable[[], T], *, idle: bool = False) -> T:
        """What this process makes of its own data, when all have done theirs."""
        if self.apart:
            # Part of a larger piece of work, which all end together.
            return work()
        return self._done("together", work, idle)

    def _begin(self, what: str, work: Callable[[], T] = lambda: None) -> T:
        """See that all are about to do the same, and prepare it."""
        if self.apart:
            raise RuntimeError(
                "processes cannot exchange anything while each works by itself."
            )
        return self._done(what, work)

    def _done(self, what: str, work: Callable[[], T], idle: bool = False) -> T:
        failure: BaseException | None = None
        found: list[T] = []
        self.apart = True
        try:
            found.append(work())
        except BaseException as error:
            failure = error
        finally:
            self.apart = False
        if self._ended is not None:
            # Whatever it has become on its way here: all know of it.
            ended, self._ended = self._ended, None
            raise ended
        self._raise_first(what, failure, idle)
        return found[0]

    def exchange(self, what: str, call: Callable[[dist.ProcessGroup], object]) -> None:
        """What a rank raised by itself meanwhile is raised on all."""
        try:
            self._raise_first(what, None, False)
            self._talk(lambda: call(self.group))
        except BaseException as error:
            if self.apart:
                self._ended = error
            raise

    def added(self, value: T) -> T:
        """The sum over ranks of equal structures."""
        self._begin("added")
        own = [
            one.detach()
            if isinstance(one, Tensor)
            else torch.tensor(one, dtype=torch.float64, device=self._device)
            for one in leaves(value)
            if one is not None and not is_sharded(one)
        ]
        sums = iter(self._reduced(own))

        def total(leaf: Any) -> Any:
            # Of what is sharded, the rows of the sum are there: see `gathering`.
            if leaf is None or is_sharded(leaf):
                return leaf
            found = next(sums)
            if isinstance(leaf, Tensor):
                return found
            return round(float(found)) if isinstance(leaf, int) else float(found)

        return map_leaves(total, value)

    def gathered(self, value: T) -> list[T]:
        """The values of all, by rank."""
        own = self._begin("gathered", lambda: pickle.dumps(value))
        found: list[Any] = [None] * self.count
        self._talk(lambda: dist.all_gather_object(found, own, group=self.group))
        return [pickle.loads(one) for one in found]

    def given_by(self, rank: int, value: T) -> T:
        """The value of one of them."""
        gives = rank == self.rank
        own = self._begin("given", lambda: pickle.dumps(value) if gives else None)
        holder: list[Any] = [own]
        self._talk(
            lambda: dist.broadcast_object_list(
                holder, group=self.group, group_src=rank, device=self._device
            )
        )
        return pickle.loads(holder[0])

    def agreed(self, value: T) -> T:
        """The first one's value; inside `together`, one's own."""
        return value if self.apart else self.given_by(0, value)

    def __reduce__(self) -> Any:
        raise OptionError(
            "an objective of several processes holds one part of the data only, and "
            "cannot be pickled: pickle one with process_group=False."
        )

    def _reduced(self, tensors: list[Tensor]) -> list[Tensor]:
        """Sums over ranks; small tensors of one kind go as one."""
        found = list(tensors)
        small: dict[tuple[torch.dtype, torch.device], list[int]] = {}
        for place, tensor in enumerate(tensors):
            if tensor.numel() <= SMALL:
                kind = tensor.dtype, tensor.device
                small.setdefault(kind, []).append(place)
            else:
                found[place] = self._sum(tensor.clone())
        for places in small.values():
            flat = torch.cat([tensors[place].reshape(-1) for place in places])
            parts = self._sum(flat).split([tensors[place].numel() for place in places])
            for place, part in zip(places, parts, strict=True):
                found[place] = part.reshape(tensors[place].shape)
        return found

    def _sum(self, own: Tensor) -> Tensor:
        if not own.numel():
            return own
        sent = own.to(self._device) if self._gpu else own
        self._talk(lambda: dist.all_reduce(sent, group=self.group))
        return sent.to(own.device)

    def _meet(self) -> None:
        """Wait for the others, but not for ever."""
        ready, begun = torch.zeros(1, device=self._device), time.monotonic()
        try:
            waited = dist.all_reduce(ready, group=self.group, async_op=True)
            assert waited is not None
            waited.wait(timedelta(seconds=MEETING_SECONDS))
        except RuntimeError as error:
            if time.monotonic() - begun < 0.9 * MEETING_SECONDS:
                raise ProcessGroupError(self._end_of(error)) from error
            raise ProcessGroupError(
                f"not all of the {self.count} processes came here within "
                f"{MEETING_SECONDS:.0f} s: called on some ranks only? Pass "
                "process_group=False, and start all of them again."
            ) from error

    def _raise_first(
        self, what: str, failure: BaseException | None, idle: bool
    ) -> None:
        """Raise what was raised first on any rank, on all of them.

        Its rank is named, unless all that have something to work on say the same.
        """
        self._turns += 1
        moment = math.inf if failure is None else time.time()
        own = torch.tensor(
            [moment, self._turns, zlib.crc32(what.encode()), not idle],
            dtype=torch.float64,
            device=self._device,
        )
        others = [torch.empty_like(own) for _ in range(self.count)]
        self._talk(lambda: dist.all_gather(others, own, group=self.group))
        heads = [one.tolist() for one in others]
        moments = [one[0] for one in heads]
        if min(moments) == math.inf:
            if len({tuple(one[1:3]) for one in heads}) == 1:
                return
            raise ProcessGroupError(
                "the processes do not do the same things in the same order: call the "
                "same functions with the same arguments on every rank, or pass "
                "process_group=False."
            )
        said: list[Any] = [None] * self.count
        told = None if failure is None else _packed(failure)
        self._talk(lambda: dist.all_gather_object(said, told, group=self.group))
        first = moments.index(min(moments))
        spoken: tuple[bytes, str] = said[first]
        alike = all(
            one == spoken for one, head in zip(said, heads, strict=True) if head[3]
        )
        found = _unpacked(*spoken, "" if alike else f"rank {first}: ")
        # The command line says it once.
        vars(found)["of_all"] = True
        if failure is not None and first == self.rank:
            raise found from failure
        raise found

    def _talk(self, call: Callable[[], object]) -> None:
        """Do something with the others."""
        if self._lost:
            raise ProcessGroupError(self._lost)
        try:
            call()
        except RuntimeError as error:
            self._lost = self._end_of(error)
            raise ProcessGroupError(self._lost) from error

    def _end_of(self, error: RuntimeError) -> str:
        first = next(iter(str(error).strip().splitlines()), "")
        return (
            f"another process of the {self.count} ended or does not answer ({first}): "
            "look for its own message, and start all of them again."
        )


def ranks_of(group: Any) -> Ranks:
    """Those of a group, or of the default one if there is one; False for none."""
    if group is False or not (dist.is_available() and dist.is_initialized()):
        if isinstance(group, dist.ProcessGroup):
            raise OptionError(
                "process_group= is given, but torch.distributed is not initialised: call "
                "init_process_group first."
            )
        return ALONE
    own = dist.group.WORLD if group is None else group
    if not isinstance(own, dist.ProcessGroup):
        raise OptionError(
            f"process_group= is {own!r}: give a process group that this process is in, "
            "None for the default one, or False."
        )
    return Several(own)


def _packed(error: BaseException) -> tuple[bytes, str]:
    """The class of an error, and what it says."""
    kind = type(error)
    try:
        return pickle.dumps(kind), str(error)
    except (pickle.PicklingError, AttributeError, TypeError):
        return pickle.dumps(RuntimeError), f"{kind.__name__}: {error}"


def _unpacked(kind: bytes, text: str, where: str) -> BaseException:
    """An error of the same class, where it can be made of a sentence."""
    known = pickle.loads(kind)
    if issubclass(known, OutOfTime):
        return OutOfTime(interrupted="interrupted" in text)
    try:
        return known(f"{where}{text}")
    except TypeError:
        return FlatgaugeError(f"{where}{known.__name__}: {text}")
