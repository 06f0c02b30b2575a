"""Processes in one group that run functions, and what they return."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist


class Raised(Exception):
    """What a function raised in another process."""

    def __init__(self, kind: str, text: str, trace: str):
        super().__init__(f"{kind}: {text}\n{trace}")
        self.kind, self.text = kind, text


class Gone(Exception):
    """A process that does not answer any more."""


class Processes:
    """`count` processes that wait for functions; a function gets (rank, count, ...).

    Args:
        count: how many.
        folder: for the file that they meet at.
        backend: what they talk by.
    """

    def __init__(self, count: int, folder: Path, backend: str = "gloo"):
        self.count = count
        context = get_context("spawn")
        self._pipes: list[Connection] = []
        self.processes = []
        for rank in range(count):
            ours, theirs = context.Pipe()
            settings = rank, count, backend, str(folder / "meet"), theirs
            process = context.Process(target=_serve, args=settings)
            process.daemon = True
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)

    def __call__(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """What the function returns in each process; an exception is raised here."""
        found = self.outcomes(function, *args)
        for one in found:
            if isinstance(one, Exception):
                raise one
        return found

    def outcomes(
        self, function: Callable[..., Any], *args: Any, seconds: float = 120.0
    ) -> list[Any]:
        """The same, with the exceptions of each in place of what it returns."""
        for pipe in self._pipes:
            pipe.send((function, args))
        return [self._answer(pipe, seconds) for pipe in self._pipes]

    def _answer(self, pipe: Connection, seconds: float) -> Any:
        if not pipe.poll(seconds):
            return Gone(f"no answer after {seconds} s")
        try:
            good, answer = pipe.recv()
        except EOFError:
            return Gone("it ended")
        return answer if good else Raised(*answer)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


def _serve(rank: int, count: int, backend: str, meet: str, pipe: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        backend, init_method=f"file://{meet}", rank=rank, world_size=count
    )
    while True:
        try:
            function, args = pipe.recv()
        except EOFError:
            return
        try:
            answer = True, function(rank, count, *args)
        except BaseException as error:
            said = type(error).__name__, str(error), traceback.format_exc()
            answer = False, said
        pipe.send(answer)


def assert_same(alone: dict[str, Any], together: list[dict[str, Any]]) -> None:
    """Values to 1e-10, statuses and messages alike, and every process the same."""
    assert all(one == together[0] for one in together[1:])
    assert together[0].keys() == alone.keys()
    for request, (value, uncertainty, status, message) in together[0].items():
        known, error, known_status, known_message = alone[request]
        assert (status, message) == (known_status, known_message), request
        if known is None:
            assert value is None
            continue
        assert value == pytest.approx(known, rel=1e-10), request
        if error is not None:
            assert uncertainty == pytest.approx(error, rel=1e-3, abs=1e-12), request
