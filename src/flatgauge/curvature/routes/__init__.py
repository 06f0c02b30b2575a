"""Ways to multiply a vector by the Hessian of one batch; one route a file."""

from __future__ import annotations

from flatgauge.curvature.routes.double_backward import DoubleBackward
from flatgauge.curvature.routes.finite_difference import FiniteDifference
from flatgauge.curvature.routes.jvp_of_gradient import JvpOfGradient
from flatgauge.curvature.routes.linearized import Linearized
from flatgauge.curvature.routes.reverse_over_forward import ReverseOverForward
from flatgauge.curvature.routes.route import Route as Route
from flatgauge.curvature.routes.together import Together
from flatgauge.errors import OptionError

ROUTES: dict[str, type[Route]] = {
    route.name: route
    for route in (
        DoubleBackward,
        JvpOfGradient,
        ReverseOverForward,
        Linearized,
        Together,
        FiniteDifference,
    )
}


def resolve_route(route: str | Route) -> Route:
    """A route from its name."""
    if isinstance(route, Route):
        return route
    if route in ROUTES:
        return ROUTES[route]()
    known = ", ".join(f"'{name}'" for name in ("auto", *ROUTES))
    raise OptionError(f"the route '{route}' is not known: use {known}.")
