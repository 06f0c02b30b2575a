"""How well numbers order networks by a target: rank statistics with intervals."""

from flatgauge.rankings.result import RankStatistic as RankStatistic
from flatgauge.rankings.result import RankStatistics as RankStatistics
from flatgauge.rankings.running import rank_statistics as rank_statistics
from flatgauge.rankings.standings import Standing as Standing
from flatgauge.rankings.standings import standings as standings
