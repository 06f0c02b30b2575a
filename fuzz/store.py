"""Results as they come: one line a network, so that a run goes on where it stopped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


class Store:
    """A file of JSON lines for one seed."""

    def __init__(self, seed: int, folder: Path = FOLDER):
        self.path = folder / f"seed-{seed}.jsonl"

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)

    def add(self, result: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(result, ensure_ascii=False) + "\n")

    def results(self, count: int | None = None) -> Iterator[dict[str, Any]]:
        """Whole lines of the first `count` networks; one that was cut off is left out."""
        if not self.path.exists():
            return
        for line in self.path.read_text().splitlines():
            try:
                result = json.loads(line)
            except json.JSONDecodeError:
                continue
            if count is None or result["index"] < count:
                yield result

    def done(self) -> set[int]:
        return {result["index"] for result in self.results()}


def summary(results: list[dict[str, Any]]) -> str:
    """Counts of verdicts by what was judged, and of the reasons for refusals."""
    verdicts: dict[str, Counter[str]] = {}
    reasons: Counter[str] = Counter()
    for result in results:
        for one in result["findings"]:
            verdicts.setdefault(one["what"], Counter())[one["verdict"]] += 1
            if one["verdict"] == "refused":
                reasons[f"{one['what']}: {one.get('note', '')[:110]}"] += 1
    failed = [result["index"] for result in results if result["failed"]]
    seconds = sum(result["seconds"] for result in results)
    order = ("right", "refused", "untrusted", "unlucky", "WRONG")
    lines = [f"{'':<42}" + "".join(f"{one:>10}" for one in order)]
    lines += [
        f"{what:<42}" + "".join(f"{counts[one]:>10}" for one in order)
        for what, counts in verdicts.items()
    ]
    lines += ["", "refused, most often:"]
    lines += [f"{count:>6}  {reason}" for reason, count in reasons.most_common(15)]
    lines += [
        "",
        f"{len(results)} networks, {len(failed)} with failures, "
        f"{seconds / max(len(results), 1):.2f} s a network",
    ]
    return "\n".join(lines)
