"""Measure how flat a minimum is, in ways that reparametrization does not change."""

from flatgauge.curvature.diagonal import Diagonal as Diagonal
from flatgauge.curvature.diagonal import gauss_newton_diagonal as gauss_newton_diagonal
from flatgauge.curvature.diagonal import hessian_diagonal as hessian_diagonal
from flatgauge.curvature.fisher import Fisher as Fisher
from flatgauge.curvature.gauss_newton import GaussNewton as GaussNewton
from flatgauge.curvature.hessian import Hessian as Hessian
from flatgauge.errors import FlatgaugeError as FlatgaugeError
from flatgauge.objective import Objective as Objective
from flatgauge.results import Status as Status
from flatgauge.version import __version__ as __version__
