"""Ways to multiply a vector by the curvature of one batch; one route per file.

Every direct subclass of `Route` in a file here is found by itself: to add a route, add a
file; what a plan weighs against the truth is in `RIVALS` below, and in `plan.py`.
"""

from __future__ import annotations

import importlib
import pkgutil

from flatgauge.curvature.routes.route import Route as Route
from flatgauge.errors import OptionError

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")

# Those with a name of their own; others are made of another route.
ROUTES: dict[str, type[Route]] = {
    one.name: one for one in Route.__subclasses__() if hasattr(one, "name")
}
# What may be faster than the truth where nothing is kept, and was, on a GPU.
RIVALS = {
    "double-backward": ("reverse-over-forward",),
    "reverse-twice": ("forward-and-reverse",),
}


def names_for(matrix: str) -> list[str]:
    """The names of the routes to "Hessian" or "Gauss-Newton"."""
    return [name for name, route in ROUTES.items() if route.matrix == matrix]


def resolve_route(route: str | Route, matrix: str = "Hessian") -> Route:
    """A route to that matrix, from its name or checked."""
    known = ", ".join(f"'{name}'" for name in ("auto", *names_for(matrix)))
    if isinstance(route, Route):
        if route.matrix != matrix:
            raise OptionError(
                f"the route '{route.name}' multiplies by the {route.matrix} matrix, not by "
                f"the {matrix} matrix: use {known}."
            )
        return route
    if route in names_for(matrix):
        return ROUTES[route]()
    raise OptionError(f"the route '{route}' is not known: use {known}.")
