"""A paper of four small runs that can be held up in the middle of one of them.

As a program it takes the usual options. The environment variable LOG names a file that
gets a line when a run starts and when the program is held up. HOLD names a run that is held
up halfway, or "the second write", which is held up with half of a file written.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch

from papers.experiment import Context, Paper, Results, Run
from papers.figures import new_figure, save
from papers.page import NOT_RUN, side_by_side
from papers.runner import main

SECOND_WRITE = "the second write"


def log(line: str) -> None:
    if "LOG" in os.environ:
        with Path(os.environ["LOG"]).open("a") as file:
            print(line, file=file, flush=True)


def hold(where: str) -> None:
    log(f"held in {where}")
    time.sleep(600)


def descend(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Noisy gradient descent on a random quadratic."""
    log(f"start {settings['name']}")
    random = torch.Generator().manual_seed(settings["seed"])
    curvature = torch.rand(8, generator=random)
    point = torch.randn(8, generator=random)
    losses = []
    for step in range(settings["steps"]):
        if 2 * step == settings["steps"] and os.environ.get("HOLD") == settings["name"]:
            hold(settings["name"])
        noise = torch.randn(8, generator=random)
        point = point - 0.1 * (curvature * point + 0.01 * noise)
        losses.append(float((curvature * point**2).sum() / 2))
    # What a careless run leaves behind; the next one must not feel it.
    torch.manual_seed(settings["seed"])
    torch.set_default_dtype(torch.float64)
    return {"losses": losses, "nothing": float("nan")}


def runs(quick: bool) -> list[Run]:
    names = ["first", "second", "third", "fourth"]
    return [
        Run(name, {"name": name, "seed": seed, "steps": 20 if quick else 40}, descend)
        for seed, name in enumerate(names)
    ]


def figures(results: Results, folder: Path) -> None:
    figure, (panel,) = new_figure()
    for name, result in results.items():
        panel.semilogy(result["losses"], label=name)
    save(figure, folder / "losses.svg")


def page(results: Results, expected: dict[str, Any]) -> str:
    last = {name: result["losses"][-1] for name, result in results.items()}
    missing = [run.name for run in runs(True) if run.name not in results]
    sentence = f"{NOT_RUN}: {', '.join(missing)}.\n" if missing else ""
    return sentence + side_by_side({"first": 0.5, "third": 0.5}, last)


PAPER = Paper("synthetic", "A synthetic paper", runs, figures, page)


def hold_the_second_write() -> None:
    count = 0

    def fsync(file: int) -> None:
        nonlocal count
        count += 1
        if count == 2:
            os.ftruncate(file, os.fstat(file).st_size // 2)
            hold(SECOND_WRITE)

    os.fsync = fsync


if __name__ == "__main__":
    if os.environ.get("HOLD") == SECOND_WRITE:
        hold_the_second_write()
    main(PAPER)
