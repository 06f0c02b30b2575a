"""A study: the networks' numbers, how each measure orders them, and which does best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flatgauge.exports import Tabular
from flatgauge.measures.registry import find_measure
from flatgauge.rankings import RankStatistics, Standing, rank_statistics, standings
from flatgauge.rankings.result import networks_in_words
from flatgauge.results import Measurement, Report, measured_with, plain
from flatgauge.studies.plan import Plan
from flatgauge.tables import html_table, table
from flatgauge.vocabulary import Association

HEADLINE = Association.KENDALL
"""The statistic by which measures are listed."""


@dataclass(frozen=True)
class Network:
    """A checkpoint of a study: its name, its row of the table, and what was measured."""

    name: str
    row: dict[str, Any]
    report: Report


@dataclass(frozen=True, repr=False)
class Study(Tabular):
    """How well measures order networks by a target.

    Statistics are of measures turned so that a larger number is sharper, and of targets
    turned so that a larger one is worse: a positive correlation says that flatter
    networks have the better target.

    Attributes:
        networks: those that were measured, in the order of the table.
        plan: what was compared with what.
        statistics: of each measure, by the request.
        standings: each measure's place by each statistic.
        failures: why other checkpoints were not measured, by name.
    """

    networks: list[Network]
    plan: Plan
    statistics: dict[str, RankStatistics]
    standings: list[Standing]
    failures: dict[str, str]

    @property
    def measures(self) -> list[str]:
        """What was measured, the best by Kendall's τ_b first."""
        placed = [one.column for one in self.standings if one.statistic == HEADLINE]
        return list(dict.fromkeys([*placed, *self.statistics]))

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each statistic of each measure, with its place."""
        places = {(one.column, one.statistic): one for one in self.standings}
        rows = []
        for measure in self.measures:
            for row in self.statistics[measure].rows():
                place = places.get((measure, row["statistic"]))
                rows.append(
                    {
                        "measure": measure,
                        **row,
                        "place": place.place if place else None,
                        "behind": place.behind if place else None,
                        "behind_low": place.low if place else None,
                        "behind_high": place.high if place else None,
                        "tied": place.tied if place else None,
                    }
                )
        return rows

    def numbers(self) -> list[dict[str, Any]]:
        """One flat row for each measured number, with the network's row of the table."""
        return [
            {"network": one.name, **one.row, **row}
            for one in self.networks
            for row in one.report.rows()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: what a page draws."""
        return {
            "plan": {
                **asdict(self.plan),
                "hyperparameters": list(self.plan.hyperparameters),
            },
            "measures": self.measures,
            "networks": [
                {
                    "name": one.name,
                    "row": plain(one.row),
                    "values": {
                        request: {
                            "value": found.value,
                            "uncertainty": found.two_sided,
                            "status": found.status.name,
                            "message": found.message,
                            "lower_bound": found.is_lower_bound,
                        }
                        for request, found in one.report.items()
                    },
                }
                for one in self.networks
            ],
            "statistics": {
                measure: one.to_dict() for measure, one in self.statistics.items()
            },
            "standings": [
                {**asdict(one), "verdict": one.verdict} for one in self.standings
            ],
            "failures": self.failures,
            "verdict": self.verdict(),
        }

    def report(self) -> Report:
        """The last network's report with the study: it has the page of all."""
        return self.networks[-1].report.with_extras(study=self.to_dict())

    def whole(self) -> dict[str, Any]:
        """What the page is drawn from."""
        return self.report().to_dict()

    def verdict(self) -> str:
        """Which measure orders the networks best, and which are not behind it for sure."""
        placed = [one for one in self.standings if one.statistic == HEADLINE]
        if not placed:
            return (
                f"No measure has an order to compare with that of {self.plan.target}: "
                f"{next(iter(self.statistics.values()))[HEADLINE].message}"
            )
        best, *others = placed
        target, value = self.plan.target, self.statistics[best.column][HEADLINE].shown
        ties = [one.column for one in others if one.tied]
        if ties:
            return (
                f"No single measure orders the networks best by {target}: {best.column} "
                f"({value}) is tied with {', '.join(ties)}."
            )
        said = f"{best.column} orders the networks best by {target}: {value}"
        if not others:
            return f"{said}."
        after = others[0]
        behind = f"{after.column} is behind by {after.behind:.3f}"
        overlap = "; their intervals overlap" if after.overlaps else ""
        return (
            f"{said}; {behind} [{after.low:.3f}, {after.high:.3f}] over the same "
            f"resamples{overlap}."
        )

    def sentence(self) -> str:
        """What was measured, on what and with what, as a paper says it."""
        last = self.networks[-1].report
        first = next(iter(self.statistics.values()))
        return (
            f"{len(self.networks)} networks ordered by {self.plan.target} "
            f"({self.plan.better} is better); {first.sentence()} "
            f"{last.provenance.sentence()} {measured_with(last)}"
        )

    def paper_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Kendall's τ_b of each measure, and whether it is tied with the best."""
        return ("Measure", "Kendall", "Spearman", "Place"), [
            (
                measure,
                self.statistics[measure][HEADLINE].shown,
                self.statistics[measure][Association.SPEARMAN].shown,
                place,
            )
            for measure, place in self._places().items()
        ]

    def __str__(self) -> str:
        failed = [f"{name}: {reason}" for name, reason in self.failures.items()]
        return "\n".join([table(self._head, self._cells()), self.verdict(), *failed])

    def _repr_html_(self) -> str:
        note = " ".join([self.verdict(), *self.failures.values()])
        return html_table(self._head, self._cells(), note)

    def _places(self) -> dict[str, str]:
        placed = {
            one.column: one.verdict
            for one in self.standings
            if one.statistic == HEADLINE
        }
        return {measure: placed.get(measure, "-") for measure in self.measures}

    @property
    def _head(self) -> tuple[str, ...]:
        return "measure", "kendall", "granulated", "networks", "place"

    def _cells(self) -> list[tuple[str, ...]]:
        cells = []
        for measure, place in self._places().items():
            own = self.statistics[measure]
            count = networks_in_words(own.networks, own.left_out)
            shown = own[HEADLINE].shown, own[Association.GRANULATED].shown
            cells.append((measure, *shown, count, place))
        return cells


def judged(networks: Sequence[Network], failures: dict[str, str], plan: Plan) -> Study:
    """The statistics of what was measured.

    Args:
        networks: what was measured, at least one.
        failures: why others were not.
        plan: what is compared with what.
    """
    rows = [one.row for one in networks]
    sign = 1 if plan.better == "smaller" else -1
    targets = [_number(row[plan.target], sign) for row in rows]
    settings = {name: [row[name] for row in rows] for name in plan.hyperparameters}
    labels = plan.environments and [row[plan.environments] for row in rows]
    statistics = {
        request: rank_statistics(
            [_value(one.report.measurements.get(request)) for one in networks],
            targets,
            settings or None,
            labels or None,
            samples=plan.samples,
            resamples=plan.resamples,
            seed=plan.seed,
        )
        for request in networks[-1].report
    }
    every = standings(statistics)
    return Study(list(networks), plan, statistics, every, failures)


def _number(entry: Any, sign: int) -> float | None:
    return None if entry in (None, "") else sign * float(entry)


def _value(found: Measurement | None) -> Any:
    """The measurement with a larger number for a sharper network."""
    if found is None or found.value is None or not found.status.trusted:
        return found
    flatter = find_measure(found.measure).flatter
    return found.value if flatter == "smaller" else -found.value
