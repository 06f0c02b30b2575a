"""The sections of the page on the paper's examples and constants."""

from __future__ import annotations

from typing import Any

from papers.experiment import Results
from papers.page import number, table
from papers.tsuzuku2019.comparison import BRANCH, moved

WORDS = {
    "normalized-sharpness": "normalized sharpness (17)",
    "matrix-normalized-sharpness": "matrix-normalized sharpness (13)",
    "fisher-rao-norm[diagonal=True]": "Fisher-Rao norm as in (25)",
    "fisher-rao-norm": "Fisher-Rao norm of Liang et al.",
    "hessian-trace": "trace of the Hessian",
    "hessian-spectral-norm": "largest eigenvalue",
    "riemannian-spectral-norm[metric=layer]": "Riemannian norm, layers",
    "riemannian-spectral-norm[metric=node]": "Riemannian norm, nodes",
}
VERDICT = """\
- Agrees: the transformation of Appendix A.1 and the matrices (38)-(41); (17) does not move
  under it while every matrix norm does. (13) and (17) do not move in the branch example.
- Misprints: the norms (35), (44) and (45); the root in (12); a missing ½ in (5) and with it
  in (10)-(12) and (17); two missing factors n_i in (6). None of them changes the order of
  networks under (13) or (17).
- Wrong: the Fisher-Rao norm does not become half in the branch example. As (25) writes it,
  it doubles; as its authors define it, it stays. What the paper wants to show remains true:
  (25) moves where (17) does not. And σ_P = σ_Q does not minimize the KL divergence (7).
"""


def appendix(results: Results) -> str:
    """A.1: all norms grow, the function and (17) stay."""
    if "appendix" not in results:
        return not_run("appendix")
    result = results["appendix"]
    names = ("as printed", "after (38), (39)", "after (40), (41)")
    rows = [
        [
            name,
            stage["first_norms"]["frobenius"],
            stage["first_norms"]["spectral"],
            stage["second_norms"]["frobenius"],
            stage["second_norms"]["spectral"],
            stage["hessian-trace"],
            stage["matrix-normalized-sharpness"],
            stage["normalized-sharpness"],
        ]
        for name, stage in zip(names, result["stages"], strict=True)
    ]
    head = ["", "‖W⁽¹⁾‖_F", "‖W⁽¹⁾‖₂", "‖W⁽²⁾‖_F", "‖W⁽²⁾‖₂", "trace", "(13)", "(17)"]
    rows_instead = result["rows_instead"]
    matrix = "; ".join(
        " ".join(number(cell) for cell in row) for row in rows_instead["matrix"]
    )
    return (
        table(head, rows) + "\nThe paper names no data and no loss; the last three "
        "columns are for squared errors on five inputs that we chose. Node rescaling "
        "moves (13), the measure of whole matrices, and leaves (17) alone, which is the "
        "paper's point. The printed norms (44) and (45) belong to another matrix, "
        f"({matrix}): its squared Frobenius norm is "
        f"{number(rows_instead['frobenius_squared'], 6)} and its spectral norm "
        f"{number(rows_instead['spectral'])}. That is W⁽²⁾ with its rows scaled instead "
        "of its columns.\n"
    )


def branches(results: Results) -> str:
    """(26)-(30) for several shares, over the layer and over the network."""
    if "branches" not in results:
        return not_run("branches")
    result = results["branches"]
    facts, plain = result["network"], result["unsplit"]["layer"]
    shares = [one["share"] for one in result["splits"]]
    rows = []
    for name in BRANCH.values():
        ratios = [one["layer"][name] / plain[name] for one in result["splits"]]
        rows.append([WORDS[name], *ratios, moved(result, "network", name)])
    law = [share**2 + (1 - share) ** 2 for share in shares]
    rows.append(["c² + (1−c)²", *law, None])
    head = ["over the layer before the split", *(f"c = {share:g}" for share in shares)]
    return (
        f"A ReLU network of {facts['parameters']} weights without biases, trained to "
        f"{facts['accuracy']:.1%} on {facts['samples']} images, in float64. Its first "
        "layer W becomes two branches cW and (1−c)W; c = ½ is (27), c = 1 is (29), "
        "(30). The columns give each measure of that layer's weights over its value "
        "before the split, the last column the factor from (27) to (29), (30) where "
        "all weights of the network are measured.\n\n"
        + table([*head, "(27) → (29), (30), whole network"], rows)
        + "\nSharpness (13) and (17) are homogeneous of degree one in W and do not "
        "notice the split; nor do they with the normalized loss (20) of the paper "
        f"(factor {number(_normalized(result), 10)}). The two Riemannian norms and (25) "
        "are of degree two, so they follow c² + (1−c)² and double from (27) to (29), "
        "(30). The genuine Fisher-Rao norm, E⟨θ, ∇ℓ⟩², is unchanged by every linear "
        "reparametrization. Trace and largest eigenvalue are doubled by every split "
        "with c < 1; that they fall back at c = 1 rests on the convention that the "
        "derivative of ReLU at 0 is 0.\n"
    )


def constants(results: Results) -> str:
    """The law of λ, and (62) by sampling."""
    if "constants" not in results:
        return not_run("constants")
    result = results["constants"]
    rows = [
        [one["lambda"], one["found_17"], one["law_17"], one["found_62"], one["law_62"]]
        for one in result["lambda"]
    ]
    head = [
        "λ",
        "(17), solved",
        "NS0/√(2λ)",
        "(62) on a quadratic, solved",
        "NS0/(2√λ)",
    ]
    direct = result["direct"]
    return (
        "NS0 is (17) at λ = ½, the value in section 5.2 and in Algorithm 1; Appendix C "
        "takes λ = 1. The order of networks is the same, the values differ by √2. "
        "Equations (10)-(12) and (17) lack the ½ of the second-order expansion, so that "
        "(17) is √2 times (62) where the loss is quadratic:\n\n"
        + table(head, rows)
        + "\nBy sampling on a linear model with squared errors, (17) is "
        f"{number(direct['second_order'])} and (62) is {number(direct['direct'])} ± "
        f"{direct['direct_error']:.2g}: a factor {number(direct['ratio'])} ± "
        f"{direct['ratio_error']:.2g}. The factor does not change an order; it matters "
        "where the number is put into the bound.\n"
    )


def verdict(results: Results) -> str:
    """What agrees and what does not in the examples and formulas, in plain words."""
    missing = [n for n in ("appendix", "branches", "constants") if n not in results]
    if missing:
        return "".join(not_run(name) for name in missing)
    return VERDICT


def _normalized(result: dict[str, Any]) -> float:
    return moved(result, "layer", "normalized-sharpness, normalized loss")


def not_run(name: str) -> str:
    return f"The run `{name}` has not been made: not run.\n"
