"""The ratio of Algorithm 1's normalized sharpness to the exact one, against probes."""

from __future__ import annotations

from pathlib import Path

from papers.experiment import Results
from papers.figures import new_figure, save

NAME = "algorithm1.svg"
# The colours of Okabe and Ito, which colour-blind readers can tell apart.
LINES = {
    "products": ("Gaussian probes, exact products", "#0072B2", "o"),
    "differences": ("Gaussian probes, differences (61)", "#D55E00", "s"),
    "gauss-newton": ("Gauss-Newton probes", "#009E73", "^"),
}
PANELS = ("algorithm1", "algorithm1-small")


def figures(results: Results, folder: Path) -> None:
    """One panel for each network that was run."""
    made = [name for name in PANELS if name in results]
    if not made:
        return
    figure, panels = new_figure(len(made), width=4.6, height=3.6)
    for panel, name in zip(panels, made, strict=True):
        for one in results[name]["estimates"]:
            # Those with several counts are at the trained point with the usual radius.
            if one["loss"] != "cross-entropy" or len(one["probes"]) < 2:
                continue
            label, colour, marker = LINES[one["kind"]]
            panel.plot(
                one["probes"], one["ratios"], label=label, color=colour, marker=marker
            )
            if one["kind"] == "products":
                counts = one["probes"]
                middle = one["ratios"][counts.index(10)]
                law = [middle * (count / 10) ** -0.25 for count in counts]
                panel.plot(counts, law, ":", color="gray", label="probes$^{-1/4}$")
        panel.axhline(1, color="black", linewidth=0.8)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
        panel.minorticks_off()
        panel.set_ylim(0.7, 15)
        panel.set_xlabel("probes")
        facts = results[name]["network"]
        panel.set_title(
            f"{facts['parameters']} parameters, {facts['samples']} samples",
            fontsize="medium",
        )
    panels[0].set_ylabel("normalized sharpness / exact")
    panels[0].legend(frameon=False, fontsize="small")
    save(figure, folder / NAME)
