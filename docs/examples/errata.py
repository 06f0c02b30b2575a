"""Corrections of the papers that take a few lines to check."""

import math

import torch
from scipy.optimize import minimize_scalar
from torch import nn

import flatgauge as fg
from flatgauge.curvature.dense import dense_hessian
from flatgauge.vectors import dot

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(3, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False)
).double()
X = torch.randn(40, 3, dtype=torch.float64)
away = fg.Objective(model, (X, torch.randn(40, 3)), loss="mse")
minimum = fg.Objective(model, (X, model(X).detach()), loss="mse")
H = dense_hessian(away)

print("Tsuzuku (5): half the trace, and the trace is no norm")
noise = torch.randn(200_000, len(H), dtype=torch.float64)
rise = 0.5 * ((noise @ H) * noise).sum(1)
error = float(rise.std()) / math.sqrt(len(noise))
trace, nuclear = float(H.trace()), float(torch.linalg.eigvalsh(H).abs().sum())
print(f"  E[½εᵀHε] = {float(rise.mean()):.3f}, ½ Tr H = {trace / 2:.3f}")
print(f"  Tr H = {trace:.3f}, ‖H‖_* = {nuclear:.3f}")
assert abs(float(rise.mean()) - trace / 2) < 5 * error
assert nuclear > 1.01 * trace

print("Tsuzuku (12): the root covers 2/λ only")
curvatures, norms, lam = (2.0, 3.0), (5.0, 7.0), 0.8
best = sum(
    minimize_scalar(
        lambda log, h=h, w=w: h * math.exp(log) + w / (2 * lam * math.exp(log))
    ).fun
    for h, w in zip(curvatures, norms, strict=True)
)
roots = sum(math.sqrt(h * w) for h, w in zip(curvatures, norms, strict=True))
corrected, printed = math.sqrt(2 / lam) * roots, math.sqrt(2 / lam * roots)
print(f"  minimum {best:.4f}, corrected {corrected:.4f}, printed {printed:.4f}")
assert math.isclose(best, corrected, rel_tol=1e-9)

print("Rangamani, Definition 2: the flat connection is Levi-Civita's at minima only")
flat = "riemannian-spectral-norm[tol=1e-12]"
curved = "riemannian-spectral-norm[connection=levi-civita,tol=1e-12]"
for name, objective in (("at a minimum", minimum), ("elsewhere", away)):
    report = fg.measure(objective, flat, curved, strict=True)
    first, second = report[flat].value, report[curved].value
    print(f"  {name}: flat {first:.6f}, Levi-Civita {second:.6f}")
    assert math.isclose(first, second, rel_tol=1e-9) == (objective is minimum)

print("Rangamani, Remark 2: off a minimum, vertical directions have curvature")
point, slope = away.parameters, away.gradient()
vertical = {"0.weight": point["0.weight"], "2.weight": -point["2.weight"]}
quotient = float(dot(vertical, fg.Hessian(away) @ vertical)) / 2
expected = -float((point["0.weight"] * slope["0.weight"]).sum())
print(f"  Rayleigh quotient {quotient:.6f}, −⟨W, ∇⟩ {expected:.6f}")
assert math.isclose(quotient, expected, rel_tol=1e-9)
assert abs(quotient) > 1e-3

print("“Arbitrarily small” sharpness: the trace has a minimum on the orbit")
diagonal = fg.hessian_diagonal(minimum).values
blocks = [float(part.sum()) for part in diagonal.values()]
least = 2 * math.sqrt(math.prod(blocks))
alpha = (blocks[0] / blocks[1]) ** 0.25
moved = minimum.at({"0.weight": alpha * point["0.weight"],
                    "2.weight": point["2.weight"] / alpha})  # fmt: skip
found = fg.measure(moved, "hessian-trace")["hessian-trace"].value
print(f"  as it is {sum(blocks):.4f}, smallest {least:.4f}, reached {found:.4f}")
assert math.isclose(found, least, rel_tol=1e-9)
