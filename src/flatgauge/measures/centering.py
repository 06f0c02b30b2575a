"""The point with the freedom of the softmax removed."""

from __future__ import annotations

from flatgauge.curvature.output_layer import output_layer
from flatgauge.measures.workbench import NotApplicable, Workbench
from flatgauge.memo import once
from flatgauge.symmetry.maps import output
from flatgauge.vectors import Params


@once
def centered_point(work: Workbench, center_output: bool) -> Params:
    """θ with the mean over classes taken out of the output layer, if that is wanted.

    Adding the same number to all class scores changes no softmax, but it changes the
    norms of the layer that makes them; centring fixes that freedom.
    """
    point = work.objective.parameters
    if not center_output:
        return point
    axes = output_layer(work.objective)
    if not axes:
        raise NotApplicable(
            "center_output=True is for classifiers with a layer whose shift moves all "
            "class scores alike, and found none."
        )
    return output.center_output(point, axes)
