"""Run the fuzzer: python -m fuzz [--count N] [--seed S] [--only INDEX] [--jobs J].

Network i of a seed depends on the two numbers alone. Results go to
fuzz/results/seed-S.jsonl, and a run goes on where an earlier one stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from fuzz.store import FOLDER, Store, summary
from fuzz.workers import judged, run


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz")
    parser.add_argument("--count", type=int, default=200, help="networks 0 to N − 1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="this one network, in full")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the results")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    if arguments.only is not None:
        result = judged(arguments.seed, arguments.only, arguments.device)
        print(result["network"])
        for one in result["findings"]:
            print(_line(one))
        return int(result["failed"])
    store = Store(arguments.seed, arguments.folder)
    if arguments.fresh:
        store.clear()
    done = store.done()
    left = [index for index in range(arguments.count) if index not in done]
    started = time.perf_counter()
    for count, result in enumerate(
        run(arguments.seed, left, arguments.jobs, arguments.device), 1
    ):
        store.add(result)
        if result["failed"]:
            print(failure(result, arguments.device), flush=True)
        if count % 100 == 0 or count == len(left):
            took = time.perf_counter() - started
            print(f"{count} of {len(left)} networks in {took:.0f} s", flush=True)
    results = list(store.results(arguments.count))
    print(summary(results))
    return int(any(result["failed"] for result in results))


def failure(result: dict[str, Any], device: str = "cpu") -> str:
    """What went wrong, and the command that repeats it."""
    place = "" if device == "cpu" else f" --device {device}"
    seed, index = result["seed"], result["index"]
    lines = [
        f"FAILED seed {seed}, network {index}: {result['network']}",
        *(_line(one) for one in result["findings"] if one["verdict"] == "WRONG"),
        f"    repeat: python -m fuzz --seed {seed} --only {index}{place}",
    ]
    return "\n".join(lines)


def _line(one: dict[str, Any]) -> str:
    numbers = f"got {one.get('got')}, true {one.get('want')}" if "got" in one else ""
    return f"    {one['verdict']:<10}{one['what']}: {numbers} {one.get('note', '')}"


if __name__ == "__main__":
    sys.exit(main())
