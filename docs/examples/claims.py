"""Every measure, and what must not move it."""

import flatgauge as fg

for info in fg.list_measures():
    claims = ", ".join(sorted(info.invariant_to()))
    print(f"{info.name} ({info.flatter} is flatter)")
    print(f"  {info.formula}")
    print(f"  {info.reference}")
    print(f"  unchanged by: {claims}")
    print(f"  cost: {info.cost}\n")

trace = next(info for info in fg.list_measures() if info.name == "hessian-trace")
assert trace.invariant_to() == {"permutation", "sign-flip", "absorbed-shift"}
