"""The page of the documentation that ties the papers together: python -m papers.overview"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from papers import lessons, store
from papers.completeness import VERDICTS, Check, verdict_on
from papers.dinh2017 import words
from papers.dinh2017.completeness import standing
from papers.dinh2017.run import PAPER as DINH
from papers.experiment import Paper, Results
from papers.page import NOT_RUN, provenance, table
from papers.rangamani2019 import cause, cifar_findings, discussion, simulations
from papers.rangamani2019.findings import CHECKS as OF_RANGAMANI
from papers.rangamani2019.run import PAPER as RANGAMANI
from papers.runner import ROOT
from papers.tsuzuku2019 import bound_sections, probe_sections, random_label_sections
from papers.tsuzuku2019.readme import CHECKS as OF_TSUZUKU
from papers.tsuzuku2019.run import PAPER as TSUZUKU

PAGE = ROOT.parent / "docs" / "papers.md"
TOP = """\
<!-- Written by python -m papers.overview; do not edit. -->

# Three papers, and what came of them

What three papers on flat minima claim, what we found when we did it again, and what to make
of it. Every number is made from the stored results of the experiments in `papers/`, which
`flatgauge papers` makes again. The pages there (`papers/*/README.md`) have the tables, and
name everything that each paper states.
"""
CHOOSING = """\
## Choosing a measure

What the three papers together come to, on the networks that we trained:
"""
COMPUTE = """\
## The compute used
"""


@dataclass(frozen=True)
class Story:
    """One paper on this page.

    Attributes:
        paper: its experiments.
        claim: what it says, in our words.
        found: what the stored results say of it, a list in Markdown.
        standings: the verdict on each of its statements.
        figures: a file of its folder and what it shows.
    """

    paper: Paper
    claim: str
    found: Callable[[Results], str]
    standings: Callable[[Results, Mapping[str, Any]], list[str]]
    figures: Mapping[str, str]


def page(results: Mapping[str, Results]) -> str:
    """The page from what is stored of each paper, by name."""
    verdicts = {}
    for name, story in STORIES.items():
        file = ROOT / name / "expected.json"
        expected = json.loads(file.read_text(encoding="utf-8"))
        verdicts[name] = Counter(story.standings(results[name], expected))
    kinds = dict.fromkeys((*VERDICTS, *(one for v in verdicts.values() for one in v)))
    rows = [
        [story.paper.title, *(str(verdicts[name][kind]) for kind in kinds)]
        for name, story in STORIES.items()
    ]
    parts = [TOP, table(["statements of", *kinds], rows)]
    for name, story in STORIES.items():
        found = story.found(results[name])
        parts += [f"## {story.paper.title}\n", story.claim, "What we found:\n", found]
        parts += [
            f"![{shown}](../papers/{name}/figures/{file})\n\n*{shown}*\n"
            for file, shown in story.figures.items()
            if (ROOT / name / "figures" / file).is_file()
        ]
    parts += [CHOOSING, lessons.listed(results), COMPUTE]
    parts += [
        f"**{story.paper.title}.** {provenance(results[name])}"
        for name, story in STORIES.items()
    ]
    return "\n".join(parts)


def stored() -> dict[str, Results]:
    """The committed results of each paper."""
    return {
        name: store.load(ROOT / name / "results", story.paper.runs(False), False)
        for name, story in STORIES.items()
    }


def _dinh(results: Results) -> str:
    return "".join(
        f"- {say(results)}\n"
        for say in (words.moving, words.invariant, words.representations, words.radial)
    )


def _tsuzuku(results: Results) -> str:
    labels = random_label_sections.verdict(results)
    return (
        probe_sections.verdict(results)
        + bound_sections.verdict(results)
        + (labels or f"- Networks with random labels (6.1 and 6.2): {NOT_RUN} yet.\n")
    )


def _rangamani(results: Results) -> str:
    said = [
        simulations.tables_verdict(results),
        simulations.figure1_verdict(results),
        *cause.verdict(results),
        cifar_findings.verdict(results),
        discussion.answer(results),
    ]
    return "".join(f"- {one}\n" for one in said)


def _by_checks(checks: Mapping[str, Check]):
    def standings(results: Results, expected: Mapping[str, Any]) -> list[str]:
        entries = expected["completeness"]
        return [verdict_on(one, checks, results)[0] for one in entries]

    return standings


def _of_dinh(results: Results, expected: Mapping[str, Any]) -> list[str]:
    return [standing(one, results) for one in expected["completeness"]]


STORIES = {
    "dinh2017": Story(
        DINH,
        "Flatness is often measured with the Hessian, or with the volume of the flat "
        "region. Such numbers depend on how the network is written down: layers may be "
        "rescaled, and other changes of coordinates change the ranking of minima at will.\n",
        _dinh,
        _of_dinh,
        {"orbit.svg": "Measures of one function, rescaled along the x-axis"},
    ),
    "tsuzuku2019": Story(
        TSUZUKU,
        "A PAC-Bayes bound, minimized over the scales of the noise, leads to measures that "
        "rescaled layers (13), or rescaled nodes (17), do not change. The headline: over "
        "Wide ResNets with more and less random labels, (17) has the correlation 0.911 "
        "with the accuracy gap, the trace of the Hessian 0.708.\n",
        _tsuzuku,
        _by_checks(OF_TSUZUKU),
        {
            "unbounded.svg": "Norms of one function, as one node is rescaled",
            "figure3.svg": "The accuracy gap against normalized sharpness",
            "figure4.svg": "The accuracy gap against the trace of the Hessian",
        },
    ),
    "rangamani2019": Story(
        RANGAMANI,
        "Measured in units of each layer's own norm, the largest eigenvalue of the Hessian "
        "does not notice rescaled layers. By that measure minima found with large batches "
        "are sharper than those found with small ones, by orders of magnitude.\n",
        _rangamani,
        _by_checks(OF_RANGAMANI),
        {
            "losses.svg": "The paper's measure against the train loss",
            "figure2.svg": "The loss on lines through networks of small and large batches",
        },
    ),
}


if __name__ == "__main__":
    PAGE.write_text(page(stored()), encoding="utf-8")
    print(f"wrote {PAGE.name}")
