"""A measure of one's own: the gradient norm in each tensor's own units."""

import torch
from torch import nn

import flatgauge as fg
from flatgauge.measures.registry import Outcome, measure
from flatgauge.measures.workbench import Workbench


@measure(
    name="scaled-gradient",
    title="Gradient in each tensor's own units",
    formula="(Σ_l ‖W_l‖² ‖∂L/∂W_l‖²)^½",
    reference="an example of the documentation",
    invariant_to=lambda options, loss: {"layer-rescale", "permutation"},
    flatter="smaller",
    cost="one gradient",
)
def scaled_gradient(work: Workbench, *, weights_only: bool = False) -> Outcome:
    """The keyword-only arguments are the options.

    Args:
        work: what the measures share.
        weights_only: leave biases out.
    """
    gradient = work.gradient(work.objective)
    layers = {
        name: float(tensor.norm() * gradient[name].norm())
        for name, tensor in work.objective.parameters.items()
        if tensor.ndim >= 2 or not weights_only
    }
    value = sum(share**2 for share in layers.values()) ** 0.5
    status = fg.Status.EXACT
    return Outcome(value, status, status.value, details={"layers": layers})


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()
objective = fg.Objective(model, (torch.randn(30, 4), torch.arange(30) % 3))

print(fg.measure(objective, "scaled-gradient", "scaled-gradient[weights_only=True]"))

# Its claims are checked like those of any other measure.
audit = fg.audit(objective, "scaled-gradient", sharpen_by=None)
print(f"\n{audit}")
verdicts = {row["kind"]: row["verdict"] for row in audit.rows()}
assert verdicts["layer-rescale"] == "holds"
assert verdicts["node-rescale"] == "moves"
