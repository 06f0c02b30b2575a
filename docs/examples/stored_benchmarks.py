"""What was measured on a GPU and on a CPU, from the results that are stored."""

import json
from pathlib import Path

STORED = Path(__file__).parents[2] / "benchmarks" / "results"
MEBI = 2**20
PEAKS = ("gradient", "product, nothing kept", "product, graphs kept", "exact diagonal")

found = json.loads((STORED / "cuda.json").read_text(encoding="utf-8"))
machine = found["machine"]
print(f"{machine['gpu']}, torch {machine['torch']}, CUDA {machine['cuda']}\n")

print("one Hessian product      gradient    product  relative error")
for one in sorted(
    found["products"], key=lambda one: (one["network"], one["precision"])
):
    name = f"{one['network']}, {one['precision']}"
    gradient, product = (one["seconds"][key] for key in ("gradient", "flatgauge"))
    error = one["error"]["flatgauge"]
    print(f"{name:20} {1e3 * gradient:9.1f} ms {1e3 * product:7.1f} ms {error:14.0e}")

for one in found["default set"]:
    name = f"{one['network']}, {one['samples']:,} samples, {one['precision']}"
    print(f"\nthe default set on {name}: {one['seconds']:.0f} s")

print("\npeak memory over model and data, MiB")
for file in ("cuda.json", "cpu.json"):
    stored = json.loads((STORED / file).read_text(encoding="utf-8"))
    print(f"{file.partition('.')[0]:24}", *(f"{name:>22}" for name in PEAKS))
    for one in stored["memory"]:
        name = f"{one['network']}, {one['samples']:,}, {one['precision']}"
        peaks = [one["peak"].get(key) for key in PEAKS]
        shown = ["-" if peak is None else f"{peak / MEBI:.0f}" for peak in peaks]
        print(f"{name:24}", *(f"{text:>22}" for text in shown))
