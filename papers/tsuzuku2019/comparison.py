"""Our value for each entry of expected.json, read from the stored results."""

from __future__ import annotations

from typing import Any

from papers.experiment import Results

BRANCH = {
    "branch ns": "normalized-sharpness",
    "branch ms": "matrix-normalized-sharpness",
    "branch diagonal": "fisher-rao-norm[diagonal=True]",
    "branch full": "fisher-rao-norm",
    "branch trace": "hessian-trace",
    "branch largest": "hessian-spectral-norm",
    "branch layer metric": "riemannian-spectral-norm[metric=layer]",
    "branch node metric": "riemannian-spectral-norm[metric=node]",
}


def found_values(results: Results) -> dict[str, Any]:
    """Key -> value, for the runs that were made."""
    found: dict[str, Any] = {}
    if "appendix" in results:
        found |= _appendix(results["appendix"])
    if "branches" in results:
        found |= {
            key: moved(results["branches"], "layer", name)
            for key, name in BRANCH.items()
        }
    if "constants" in results:
        found |= _constants(results["constants"])
    return found


def moved(branches: dict[str, Any], part: str, name: str) -> float:
    """The factor from the equal split (27) to all in one branch, (29) and (30)."""
    values = {one["share"]: one[part][name] for one in branches["splits"]}
    return values[1.0] / values[0.5]


def _appendix(result: dict[str, Any]) -> dict[str, Any]:
    before, between, after = result["stages"]
    sharp = "normalized-sharpness"
    return {
        "34": before["first_norms"]["frobenius"],
        "35": before["first_norms"]["spectral"],
        "36": before["second_norms"]["frobenius"],
        "37": before["second_norms"]["spectral"],
        "38": between["first"],
        "39": between["second"],
        "40": after["first"],
        "41": after["second"],
        "42": after["first_norms"]["frobenius"],
        "43": after["first_norms"]["spectral"],
        "44": after["second_norms"]["frobenius"],
        "45": after["second_norms"]["spectral"],
        "appendix ns": after[sharp] / before[sharp],
        "appendix loss": after["loss"] / before["loss"],
    }


def _constants(result: dict[str, Any]) -> dict[str, Any]:
    matrices = result["matrices"]
    half, one = result["lambda"][0], result["lambda"][1]
    return {
        "3": result["deviation"]["found"],
        "5": result["noise"]["found"],
        "6": result["divergence"]["found"],
        "7": result["divergence"]["found_least"],
        "11": matrices["found_variance"],
        "12": matrices["found_printed_objective"],
        "12 half": matrices["found_corrected_objective"],
        "17 half": half["found_17"],
        "17 law": one["found_17"] / half["found_17"],
        "62": one["found_17"] / one["found_62"],
    }
