"""Run the zoo: python -m zoo [--only NAME...] [--failed] [--new] [--seconds S] [--jobs J].

Each network runs in a process of its own; its row goes to the file of results as it ends.
A run goes on where an earlier one with the same source stopped. At the end docs/zoo.md is
written from the rows.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from zoo import table
from zoo.checks import timed
from zoo.registry import SOURCES, every_network
from zoo.store import Store, source
from zoo.verdicts import REFUSED, RIGHT, notes, verdict
from zoo.workers import run

SECONDS = 600
# What `--times` puts into a row that is there.
TIMES = ("gradient_seconds", "gradients", "predicted")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m zoo")
    parser.add_argument("--only", nargs="+", default=[], help="names, or parts of them")
    parser.add_argument("--of", choices=SOURCES, help="the networks of one source")
    parser.add_argument(
        "--failed", action="store_true", help="those run, and not right"
    )
    parser.add_argument("--new", action="store_true", help="those never run so far")
    parser.add_argument(
        "--seconds", type=int, default=SECONDS, help="of the processor, for each"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--store", type=Path, default=Store.PATH, help="of the results")
    parser.add_argument(
        "--table", action="store_true", help="write the table, run nothing"
    )
    parser.add_argument(
        "--times",
        action="store_true",
        help="only time the default set again, of networks that have a row",
    )
    return parser.parse_args()


def wanted(arguments: argparse.Namespace, store: Store) -> list[str]:
    """The names to run, in the order of the list."""
    rows, names = store.rows(), list(every_network())
    if arguments.of:
        names = [name for name in names if name.startswith(arguments.of)]
    if arguments.only:
        names = [n for n in names if any(part in n for part in arguments.only)]
    if arguments.new or arguments.failed:
        return [
            n
            for n in names
            if (arguments.failed if n in rows else arguments.new)
            and (n not in rows or verdict(rows[n]) != RIGHT)
        ]
    if arguments.only:
        return names
    now = source()
    return [n for n in names if n not in rows or rows[n]["source"] != now]


def retime(store: Store, arguments: argparse.Namespace) -> int:
    """Time the default sets of rows again; the rest of each stays as it is."""
    rows = store.rows()
    names = [n for n, row in rows.items() if "gradients" in row]
    if arguments.only:
        names = [n for n in names if any(part in n for part in arguments.only)]
    for found in run(names, arguments.seconds, arguments.jobs, timed):
        row = rows[found["name"]]
        store.put(row | {key: found[key] for key in TIMES if key in found})
        print(f"{found['name']}: {found.get('gradients', 0.0):.0f}", flush=True)
    table.write(store.rows())
    return 0


def main() -> int:
    arguments = parse()
    store = Store(arguments.store)
    names = [] if arguments.table else wanted(arguments, store)
    if arguments.times:
        return retime(store, arguments)
    for count, row in enumerate(run(names, arguments.seconds, arguments.jobs), 1):
        store.add(row)
        print(f"{count}/{len(names)} {row['name']}: {verdict(row)}", flush=True)
        for note in notes(row):
            print(f"    {note}", flush=True)
    rows = store.rows()
    if arguments.store == Store.PATH:
        table.write(rows)
    print(table.summary(rows))
    expected = {n for n, one in every_network().items() if one.refused}
    bad = [n for n, row in rows.items() if verdict(row) not in (RIGHT, REFUSED)]
    refused = [n for n, row in rows.items() if verdict(row) == REFUSED]
    return int(bool(bad or set(refused) - expected))


if __name__ == "__main__":
    sys.exit(main())
