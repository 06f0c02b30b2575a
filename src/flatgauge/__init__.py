"""Measure how flat a minimum is, in ways that rescaling does not change.

The public names are imported when they are first used, so that the command line can
answer without waiting for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flatgauge.errors import FlatgaugeError as FlatgaugeError
from flatgauge.version import __version__ as __version__

if TYPE_CHECKING:
    from flatgauge.adversary import flattest as flattest
    from flatgauge.adversary import sharpen as sharpen
    from flatgauge.auditing import Audit as Audit
    from flatgauge.auditing import audit as audit
    from flatgauge.checkpoint_series import Series as Series
    from flatgauge.checkpoint_series import series as series
    from flatgauge.comparison import Comparison as Comparison
    from flatgauge.comparison import compare as compare
    from flatgauge.curvature.fisher import Fisher as Fisher
    from flatgauge.curvature.hessian import GaussNewton as GaussNewton
    from flatgauge.curvature.hessian import Hessian as Hessian
    from flatgauge.diagonals.diagonal import Diagonal as Diagonal
    from flatgauge.diagonals.diagonal import (
        gauss_newton_diagonal as gauss_newton_diagonal,
    )
    from flatgauge.diagonals.diagonal import hessian_diagonal as hessian_diagonal
    from flatgauge.landscapes import Landscape as Landscape
    from flatgauge.landscapes import Landscapes as Landscapes
    from flatgauge.landscapes import landscape as landscape
    from flatgauge.measures.registry import MeasureInfo as MeasureInfo
    from flatgauge.measures.registry import list_measures as list_measures
    from flatgauge.objective import Objective as Objective
    from flatgauge.rankings import RankStatistics as RankStatistics
    from flatgauge.rankings import rank_statistics as rank_statistics
    from flatgauge.results import Measurement as Measurement
    from flatgauge.results import Report as Report
    from flatgauge.results import Status as Status
    from flatgauge.run import measure as measure
    from flatgauge.spectrum import measure_spectrum as measure_spectrum
    from flatgauge.spectrum import spectral_density as spectral_density
    from flatgauge.spectrum import top_eigenvalues as top_eigenvalues
    from flatgauge.studies import Study as Study
    from flatgauge.studies import study as study
    from flatgauge.symmetry import Group as Group
    from flatgauge.symmetry import scale_rule as scale_rule
    from flatgauge.symmetry import symmetries as symmetries
    from flatgauge.trajectories import trajectory as trajectory

_HOMES = {
    "adversary": ("flattest", "sharpen"),
    "auditing": ("Audit", "audit"),
    "comparison": ("Comparison", "compare"),
    "curvature.fisher": ("Fisher",),
    "curvature.hessian": ("GaussNewton", "Hessian"),
    "diagonals.diagonal": ("Diagonal", "gauss_newton_diagonal", "hessian_diagonal"),
    "landscapes": ("Landscape", "Landscapes", "landscape"),
    "measures.registry": ("MeasureInfo", "list_measures"),
    "objective": ("Objective",),
    "rankings": ("RankStatistics", "rank_statistics"),
    "results": ("Measurement", "Report", "Status"),
    "run": ("measure",),
    "checkpoint_series": ("Series", "series"),
    "spectrum": ("measure_spectrum", "spectral_density", "top_eigenvalues"),
    "studies": ("Study", "study"),
    "symmetry": ("Group", "scale_rule", "symmetries"),
    "trajectories": ("trajectory",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["FlatgaugeError", "__version__", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'flatgauge' has no attribute '{name}'")
    value = getattr(import_module(f"flatgauge.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
