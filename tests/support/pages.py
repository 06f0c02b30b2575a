"""A report with something for every section of the page, and a browser to look at it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from flatgauge.results import Cost, Measurement, Provenance, Report, Status

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
REQUESTS = ("hessian-trace", "normalized-sharpness", "riemannian[metric=node]")


def provenance(**changes: Any) -> Provenance:
    facts: dict[str, Any] = {
        "flatgauge": "0.1.0",
        "torch": "2.13.0",
        "python": "3.11.2",
        "device": "cpu",
        "dtype": "float64",
        "model": "Sequential",
        "parameters": 5018,
        "fingerprint": "00112233aabbccdd",
        "loss": "cross-entropy",
        "loss_value": 0.0123456,
        "mode": "eval",
        "samples": 1200,
        "batches": 2,
        "seed": 0,
        "time": "2026-01-01T00:00:00+00:00",
    }
    return Provenance(**{**facts, **changes})


def measurement(name: str, value: float | None, **changes: Any) -> Measurement:
    facts: dict[str, Any] = {
        "status": Status.EXACT,
        "message": Status.EXACT.value,
        "uncertainty": None,
        "details": {"layers": {"0.weight": 3.0, "0.bias": -0.5, "2.weight": 1.25}},
        "options": {"tol": 1e-3},
        "loss": "cross-entropy",
        "cost": Cost(0.5, 12),
        "provenance": provenance(),
    }
    return Measurement(name, value, **{**facts, **changes})


def small() -> Report:
    """Three numbers: exact, converged with an uncertainty, and not applicable."""
    return Report(
        {
            REQUESTS[0]: measurement("hessian-trace", 11.0234),
            REQUESTS[1]: measurement(
                "normalized-sharpness",
                101.75,
                status=Status.CONVERGED,
                uncertainty=0.25,
                details={"gap": 4e-13, "residual": 1e-4, "steps": 7},
            ),
            REQUESTS[2]: measurement(
                "riemannian",
                None,
                status=Status.NOT_APPLICABLE,
                message="there is no second class.",
                details={},
            ),
        },
        provenance(),
        {
            "measures": {
                REQUESTS[0]: {
                    "title": "Trace of the Hessian",
                    "formula": "Tr ∇²L(θ) = Σ_l inf_{σ,σ'} Σ_ij h_ij (σ_i σ'_j)² + W_ij²",
                    "reference": "Tsuzuku et al. 2019",
                    "flatter": "smaller",
                    "invariant_to": ["permutation"],
                }
            }
        },
    )


def audit_row(measure: str, kind: str, claimed: bool, low, high, verdict: str):
    return {
        "measure": measure,
        "kind": kind,
        "claimed": claimed,
        "exact": True,
        "ratio_min": low,
        "ratio_max": high,
        "verdict": verdict,
        "text": verdict,
    }


def full() -> Report:
    """The same with audit, comparison, spectrum, slices and symmetries."""
    report = small()
    other = small()
    grid = [index / 10 for index in range(-5, 60)]
    axis = [index / 5 - 1 for index in range(11)]
    report.extras.update(
        audit={
            "rows": [
                audit_row(REQUESTS[0], "node-rescale", False, 0.2, 14.0, "moves"),
                audit_row(REQUESTS[0], "permutation", True, 1.0, 1.0, "holds"),
                audit_row(REQUESTS[1], "node-rescale", True, 1.0, 1.0, "holds"),
                audit_row(REQUESTS[1], "output-scale", False, 0.5, 9e9, "moves"),
                audit_row(REQUESTS[2], "node-rescale", True, None, None, "not judged"),
            ],
            "function_change": {"node-rescale": 1e-16, "output-scale": 2.0},
            "sharpened": {
                "factor": 1000.0,
                "ratio": 1024.0,
                "output_change": 3e-16,
                "before": 2.0,
                "after": 2048.0,
            },
        },
        comparison={
            "names": ["small batch", "large batch"],
            "rows": [
                {
                    "measure": request,
                    "values": {"small batch": one.value, "large batch": one.value},
                    "uncertainties": {"small batch": 0.1, "large batch": None},
                    "statuses": {
                        "small batch": one.status.name,
                        "large batch": one.status.name,
                    },
                    "flatter": "small batch" if one.value else None,
                    "significant": bool(one.value),
                    "invariant_to": ["permutation"],
                }
                for request, one in report.measurements.items()
            ],
            "disagreements": [{"text": "They disagree about the order."}],
            "reports": {
                "small batch": small().to_dict(),
                "large batch": other.to_dict(),
            },
        },
        accuracies={"small batch": 0.92, "large batch": 0.913},
        spectrum={
            "grid": grid,
            "density": [2.0 ** -abs(x) for x in grid],
            "standard_error": [0.01] * len(grid),
            "message": "A quadrature of 40 points was averaged over 3 probes.",
            "dimension": 5018,
            "eigenvalues": {
                "values": [5.5, 4.25],
                "residuals": [1e-3, 2e-3],
                "error_bounds": [0.1, 0.2],
                "message": "Every residual met the tolerance.",
            },
        },
        landscapes=[
            {
                "title": "small batch",
                "kind": "random",
                "normalize": "layer",
                "labels": ["random direction"],
                "axes": [axis],
                "losses": [None, *(x * x for x in axis[1:])],
                "eigenvalues": [],
            },
            {
                "title": "a plane",
                "kind": "eigenvectors",
                "normalize": "none",
                "labels": ["eigenvector 1", "eigenvector 2"],
                "axes": [axis, axis],
                "losses": [[x * x + 2 * y * y for y in axis] for x in axis],
                "eigenvalues": [4.0, 2.0],
            },
        ],
        symmetries={"dimension": 80, "text": "neuron   80"},
    )
    return report


class Text(HTMLParser):
    """The words that a reader sees, and every attribute's value."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self._hidden = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self._hidden = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


PROBE = """<script>
const problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
addEventListener("securitypolicyviolation", (e) => problems.push(e.violatedDirective));
let above = 0;
addEventListener("load", () => {
  const folded = document.querySelector("details");
  above = folded ? Math.round(folded.getBoundingClientRect().top) : 0;
  for (const one of document.querySelectorAll("details")) one.open = true;
});
addEventListener("load", () => setTimeout(() => {
  const places = [...document.querySelectorAll("[data-figure]")];
  const clipped = (one) => !one.closest(".scroll") && !one.closest("thead");
  const wide = [...document.querySelectorAll("body *")].filter((one) => clipped(one)
    && !one.closest("svg") && one.getBoundingClientRect().right > innerWidth + 1);
  const surfaces = [...document.querySelectorAll("canvas")].map((one) => {
    const before = one.toDataURL();
    one.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft" }));
    const after = one.toDataURL();
    one.dispatchEvent(new KeyboardEvent("keydown", { key: "a" }));
    return [before.length > 5000, before !== after, after === one.toDataURL()];
  });
  parent.postMessage({
    problems, surfaces, width: innerWidth,
    dark: getComputedStyle(document.body).backgroundColor,
    scroll: document.documentElement.scrollWidth,
    wide: wide.map((one) => one.tagName + "." + one.className),
    above, plots: places.map((one) => [one.dataset.figure,
      [...one.querySelectorAll("svg path")].filter((p) => p.getClientRects().length).length,
      Math.round(one.getBoundingClientRect().width)]),
    text: document.body.innerText,
  }, "*");
}, 500));
</script>"""
FRAME = """<!doctype html><meta charset="utf-8">
<body><iframe src="page.html" style="border:0;width:{width}px;height:900px"></iframe>
<pre id="found"></pre><script>
addEventListener("message", (event) => {{
  document.getElementById("found").textContent = JSON.stringify(event.data);
}});
</script>"""


def look(html: str, folder: Path, width: int, dark: bool = False) -> dict[str, Any]:
    """What a real browser makes of a page, in a window of that width.

    A window of chromium is never narrower than 500 pixels, so the page is in a frame.
    """
    assert CHROMIUM is not None
    probed = html.replace("<head>", "<head>" + PROBE, 1)
    (folder / "page.html").write_text(probed, encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.format(width=width), encoding="utf-8")
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--enable-logging=stderr",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=8000",
        "--window-size=1400,1000",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        "--dump-dom",
        (folder / "frame.html").as_uri(),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False
    )
    found = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    unescaped = Text(f"<p>{found[1]}</p>").words[0]
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return {**json.loads(unescaped), "console": console}


def strings(value: Any) -> Iterator[str]:
    """Every string inside plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
