"""The page of all papers: made of what is stored, and of nothing else."""

from __future__ import annotations

import copy

from papers import lessons, overview
from papers.experiment import Results
from papers.tsuzuku2019 import random_labels

NONE = {name: Results({}) for name in overview.STORIES}


def changed(results: Results, run: str, change) -> Results:
    records = {name: dict(record) for name, record in results.records.items()}
    records[run]["result"] = copy.deepcopy(records[run]["result"])
    change(records[run]["result"])
    return Results(records)


def test_the_committed_page_is_made_of_the_stored_results():
    assert overview.PAGE.read_text(encoding="utf-8") == overview.page(overview.stored())


def test_every_lesson_copes_without_results():
    assert lessons.listed(NONE) == ""
    said = lessons.listed(overview.stored()).splitlines()
    assert len(said) >= 5
    assert all(one[-1] == "." and "** " in one for one in said)


def test_lessons_follow_the_numbers():
    stored = overview.stored()

    def moved(result):
        for row in result["measures"]:
            if row["claims"]:
                row["drift"] = 0.25

    other = {
        **stored,
        "dinh2017": changed(stored["dinh2017"], "orbit-layer", moved),
    }
    assert "moved by 0.25 (relative)" in lessons.rescaled(other)
    assert "0.25" not in lessons.rescaled(stored)


def test_random_labels_are_said_once_there_are_some():
    networks = [
        {
            "ratio": ratio / 10,
            "gap": ratio / 10,
            "fitted": True,
            "measures": {
                "normalized-sharpness": {"value": 1.0 + ratio, "status": "EXACT"},
                "hessian-trace": {"value": 1.0 - ratio, "status": "EXACT"},
            },
        }
        for ratio in range(11)
    ]
    name = random_labels.name_of("mnist-mlp", 0)
    found = Results({name: {"result": {"networks": networks}}})
    said = lessons.generalization({**NONE, "tsuzuku2019": found})
    assert "MLP on MNIST: 1.000 [1.000, 1.000] for `normalized-sharpness`" in said
    assert "-1.000 [-1.000, -1.000] for `hessian-trace`" in said
