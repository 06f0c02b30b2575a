"""The page: what the paper prints, what comes out, and what stands behind it."""

from __future__ import annotations

from typing import Any

from papers.completeness import completeness
from papers.experiment import Results
from papers.page import number
from papers.rangamani2019 import (
    cause,
    cifar_findings,
    cifar_sections,
    comparison,
    discussion,
    figure2_section,
    simulations,
    structure,
    trust,
)
from papers.rangamani2019.findings import CHECKS
from papers.rangamani2019.minima import cells

CLAIMS = """\
**What the paper claims.** Rescaled layers change the Hessian of a ReLU network, but not its
function. The paper therefore measures each layer in units of its own norm. Its measure, the
Riemannian spectral norm, is the largest eigenvalue of S ∇²L S, where S multiplies each tensor
by the norm of that tensor. It checks on two untrained networks that this number does not move
(Tables 2 and 3), shows that a power method finds it (Figure 1), and compares minima that were
found with small and with large batches (Table 4). It finds those of large batches sharper "for
every network and dataset", by "{text} orders of magnitude", and the small batches better on
test data. By the values that it prints the differences are {printed}.

One sentence of it is wrong: rescaled layers do not give "arbitrarily large or small Hessian
spectra", only large ones. See [Dinh et al.](../dinh2017/README.md#not-as-small-as-one-likes).
"""

INVARIANCE = """\
The networks are untrained and the labels random, as in the paper; the inputs are normally
distributed. λ multiplies the layers; each bias is multiplied by all λ up to its layer.

{setting}
The numbers are relative differences, the paper's and ours. The rows with a dash are not in the
paper: a product with a power of two is exact, so the measure must not change by a single bit.
The column before the verdict shows what the same λ does to the largest eigenvalue of the
ordinary Hessian.

{table}
Every eigenvalue is found to a residual of 1e-5 (float32) or 1e-12 (float64) of its value, so
that the differences are those of the measure and not of the steps it took. These runs and
Figure 1 need no data and compute on the CPU, whatever `--device` says; we gave them one
thread each (`OMP_NUM_THREADS=1`), since the last digits depend on the number of threads.
"""

PROTOCOLS = """\
The paper and the authors' public code (github.com/akshay-r/scale-invariant-flatness, the
address in the paper) do not describe the same training. We followed both, with pixels scaled
to [0, 1]:

- *The authors' code*: no biases, Adam with learning rate 1e-3 for both batch sizes, 200
  epochs.
- *As printed*: Adam with learning rate 1e-4 for batches of 256 and 1e-3 for batches of 5000,
  trained to 100 % train accuracy and a train loss "in the order of" 1e-4. We take each
  network at the first epoch that has both, with a loss below 10^-3.5, or after the last one.
  The paper does not say whether these networks have biases; ours have.

All are trained, and measured, on the 60,000 training images of MNIST. The authors' were on
50,000, as far as can be known: their two MNIST scripts read `data/mnist.pkl.gz` and unpack six
arrays, test, validation and training images with their labels, of which they train and measure
on the last pair only. The file of that name, from the Theano tutorials, holds 50,000 images
for training, 10,000 for validation and 10,000 for testing. The function that reads it is not
in their repository, so that one cannot be sure. Table 4 was not made again with 50,000.
"""

STORED = """\
The last column is what the authors' code would have written down for our networks: norm /
(2 + 2 loss), and 1e-6 of that for the fully connected ones. {near} The values
depend on how long and how the networks were trained, and the paper does not say enough about
that. So the order of the two batch sizes can be compared, but not the values.
"""

TESTS = """\
Each cell says which batch size has the smaller (flatter) geometric mean, in how many pairs of
networks with the same seed it is the smaller one, the p-value of the exact sign-flip test, and
the ratio large / small of the geometric means. The sign-flip test compares the sum of the log
ratios with the sums for all 2^{pairs} choices of their signs. The smallest two-sided p that
{pairs} pairs can give is 2 / 2^{pairs} = {smallest}, so this test alone never reaches 5 %. The
t-test, in the details below, assumes that the log ratios are normally distributed. There are
many cells and no correction for that. The error bound of an eigenvalue is at most {error} of
its value. The product of the spectral norms sees only the weights, not the loss. {bounds}

Four measures search, which takes hundreds of passes, and see 10,000 training images at most,
the first ones. The ε-sharpnesses are maxima over balls of radius 1e-3, from three starts each,
to a projected gradient of 1 %. The volume is that of the points around the network whose loss
is higher by less than 0.02, seen along 20 rays; the inverse of its n-th root is compared. The
direct search looks for the best noise at λ = 60,000, the number of MNIST's training images.
It draws noise for every weight hundreds of times, and was made for LeNet only, which has few.

A value that is zero, negative or not trusted by the library is left out together with its
pair. {left_out}
"""

CAUSE = """\
Why the train loss matters: for cross-entropy, the Hessian with respect to the outputs of one
sample has the trace Σ p (1 − p), which is about twice the loss of that sample once the loss is
small. So the curvature goes to zero together with the loss, with any batch size. Invariance
under rescaled layers does not help: a network that goes on training after it has classified
everything correctly makes its outputs larger, and that changes the loss, so it is no symmetry.

![The paper's measure against the train loss](figures/losses.svg)

One point is one trained network. The table gives orders of magnitude (log10 of large / small):

{orders}
Least-squares lines of ln(measure) against ln(train loss); a slope of 1 means in proportion.
"Within groups" looks only at networks with the same batch size and protocol, each group moved
to its own mean:

{lines}
"""


def page(results: Results, expected: dict[str, Any]) -> str:
    """The body of the page."""
    invariance, table4 = expected["invariance"], expected["table4"]
    bullets = [
        simulations.tables_verdict(results),
        simulations.figure1_verdict(results),
        *cause.verdict(results),
        cifar_findings.verdict(results),
        discussion.verdict(results),
    ]
    parts = [
        expected["paper"] + "\n",
        CLAIMS.format(
            text=expected["orders_in_the_text"], printed=comparison.printed(table4)
        ),
        "## Verdict\n",
        "\n".join(f"- {one}" for one in bullets) + "\n",
        cause.in_plain_words(results),
        "## Everything the paper states\n",
        completeness(expected["completeness"], CHECKS, results),
        "## Propositions and lemmas\n",
        structure.propositions(results),
        "## Definitions\n",
        structure.definitions(results),
        "## Tables 2 and 3\n",
        INVARIANCE.format(
            setting=simulations.setting(results, invariance),
            table=simulations.tables(results, invariance),
        ),
        "## Figure 1\n",
        simulations.figure1(results),
        "## Table 4, MNIST\n",
        PROTOCOLS,
        comparison.side_by_side(results, table4),
        STORED.format(near=comparison.near_the_paper(results, table4)),
        comparison.training(results),
        "### Which minimum is flatter?\n",
        *_tests(results, table4),
        "### The train loss\n",
        CAUSE.format(
            orders=cause.orders_table(results, table4), lines=cause.regressions(results)
        ),
        "## Table 4, CIFAR-10\n",
        cifar_sections.cifar(results, table4),
        "## Figure 2\n",
        figure2_section.section(results),
        f"## {discussion.TITLE}\n",
        discussion.section(results, table4),
    ]
    return "\n".join(part for part in parts if part)


def _tests(results: Results, table4: list[dict[str, Any]]) -> list[str]:
    found = cells(results)
    if not found:
        return ["The networks of Table 4 were not run.\n"]
    pairs = max(len(cell.small) for cell in found)
    return [
        TESTS.format(
            pairs=pairs,
            smallest=number(2 / 2**pairs),
            error=f"{trust.largest_error(found):.2%}",
            bounds=trust.bounds(found),
            left_out=trust.left_out(found),
        ),
        comparison.summary(results, table4),
        comparison.details(results),
    ]
