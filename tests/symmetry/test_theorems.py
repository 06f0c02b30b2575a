"""The theorems of Dinh et al. (2017) and Tsuzuku et al. (2019), as checks that can fail.

Dense float64 derivatives of networks with a few parameters; corrected forms throughout.
"""

from __future__ import annotations

import pytest
import torch
from support.small_nets import (
    gradient,
    hessian,
    mlp,
    normal,
    params_of,
    squared_loss,
)
from torch import Tensor, distributions, nn
from torch.func import functional_call

from flatgauge.symmetry.maps.branch import split_branches
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers
from flatgauge.vectors import Params, norm, ravel, unravel
from papers.dinh2017.standardization import absorb_standardization


def inverse_scales(point: Params, chain: Chain, alphas) -> Tensor:
    """The diagonal of D_α: what T_α multiplies each parameter by, inverted."""
    ones = {name: torch.ones_like(tensor) for name, tensor in point.items()}
    return 1 / ravel(rescale_layers(ones, chain, alphas))


def minimum(seed: int, bias: bool) -> tuple[nn.Sequential, Tensor, Tensor]:
    """A [2,3,3,3] network at zero loss: it, its Hessian, and J with Jᵀ J = H."""
    net = mlp([2, 3, 3, 3], seed, bias)
    point, inputs = params_of(net), normal(200, 2, seed=100) * 3

    def outputs(flat: Tensor) -> Tensor:
        return functional_call(net, unravel(flat, point), (inputs,))

    derivative = torch.autograd.functional.jacobian(outputs, ravel(point))
    assert isinstance(derivative, Tensor)
    factor = derivative.flatten(0, 1) * (2 / len(inputs)) ** 0.5
    matrix = hessian(squared_loss(net, inputs, net(inputs).detach()), point)
    torch.testing.assert_close(factor.T @ factor, matrix, rtol=1e-11, atol=1e-11)
    return net, matrix, factor


def rank(matrix: Tensor) -> int:
    values = torch.linalg.svdvals(matrix)
    return int((values > 1e-10 * values[0]).sum())


def test_theorem_1_the_gradient_norm_grows_as_one_over_alpha():
    net = mlp([2, 3, 2], seed=0, bias=False)
    point, chain = params_of(net), Chain.of(net)
    loss = squared_loss(net, normal(9, 2, seed=1), normal(9, 2, seed=2))
    first, second = gradient(loss, point).values()
    for alpha in (1.0, 0.1, 0.01, 1e-4):
        moved = gradient(loss, rescale_layers(point, chain, (alpha, 1 / alpha)))
        torch.testing.assert_close(moved["0.weight"], first / alpha, rtol=1e-11, atol=0)
        torch.testing.assert_close(
            moved["2.weight"], second * alpha, rtol=1e-11, atol=0
        )
    assert float(norm(moved)) * 1e-4 == pytest.approx(float(first.norm()), rel=1e-7)


@pytest.mark.parametrize("bias", [True, False])
def test_d_alpha_acts_on_gradient_and_hessian_away_from_minima(bias):
    net = mlp([2, 2, 2, 1], seed=3, bias=bias)
    point, chain = params_of(net), Chain.of(net)
    loss = squared_loss(net, normal(9, 2, seed=4), normal(9, 1, seed=5))
    alphas = (3.0, 0.2, 1 / 0.6)
    moved, scales = (
        rescale_layers(point, chain, alphas),
        inverse_scales(point, chain, alphas),
    )
    torch.testing.assert_close(
        ravel(gradient(loss, moved)),
        ravel(gradient(loss, point)) * scales,
        rtol=1e-11,
        atol=1e-12,
    )
    torch.testing.assert_close(
        hessian(loss, moved),
        scales[:, None] * hessian(loss, point) * scales,
        rtol=1e-11,
        atol=1e-11,
    )


def test_d_alpha_repeats_each_factor_for_every_parameter_of_the_layer():
    """n_k counts parameters (4, 4, 2), not neurons (2, 2, 1)."""
    net = mlp([2, 2, 2, 1], seed=3, bias=False)
    scales = inverse_scales(params_of(net), Chain.of(net), (2.0, 4.0, 0.125))
    assert scales.tolist() == [0.5] * 4 + [0.25] * 4 + [8.0] * 2


def escaping(point: Params, chain: Chain, grown: int, beta: float) -> Tensor:
    """D_α for α_k = 1/β except α_grown = β^(K-1)."""
    alphas = [1 / beta] * len(chain)
    alphas[grown] = beta ** (len(chain) - 1)
    return inverse_scales(point, chain, alphas)


def test_theorem_2_interlaces_the_eigenvalues():
    """λ_i(DHD) ≥ β² λ_{i + n_k}(H) in a bias-free network at a minimum."""
    net, matrix, factor = minimum(seed=3, bias=False)
    point, chain, beta = params_of(net), Chain.of(net), 10.0
    before = torch.linalg.svdvals(factor) ** 2
    torch.testing.assert_close(before.sum(), matrix.trace(), rtol=1e-12, atol=0)
    for grown, layer in enumerate(chain.layers):
        after = torch.linalg.svdvals(factor * escaping(point, chain, grown, beta)) ** 2
        shifted = before[point[layer.weight].numel() :]
        assert bool((after[: len(shifted)] >= beta**2 * shifted * (1 - 1e-9)).all())


@pytest.mark.parametrize("seed", [3, 5])
@pytest.mark.parametrize("bias", [False, True])
def test_theorem_2_counts_the_eigenvalues_that_escape(seed, bias):
    """They number rank(H_SS), S the parameters that shrink; the paper's count is lower
    than that without biases and wrong with them.
    """
    net, _, factor = minimum(seed, bias)
    point, chain = params_of(net), Chain.of(net)
    total = rank(factor)
    claimed = total - min(point[layer.weight].numel() for layer in chain.layers)
    reached, guaranteed = [], []
    for grown in range(len(chain)):
        scales = escaping(point, chain, grown, beta=1e6)
        shrinking = scales > 1
        escaped = int((torch.linalg.svdvals(factor * scales) ** 2 > 1e6).sum())
        assert escaped == rank(factor[:, shrinking])
        reached.append(escaped)
        kept = point[chain.layers[grown].weight].numel()
        if bias:
            kept += sum(
                point[str(layer.bias)].numel() for layer in chain.layers[grown:]
            )
        assert kept == int((~shrinking).sum())
        guaranteed.append(total - kept)
    assert max(reached) >= max(guaranteed)
    if bias:
        assert max(reached) < claimed
    else:
        assert max(reached) >= claimed


def test_theorem_2_with_biases_known_ranks():
    """Rank 26, of which the paper claims 20; at most 18 escape."""
    net, matrix, factor = minimum(seed=3, bias=True)
    point, chain = params_of(net), Chain.of(net)
    blocks = []
    for grown in range(3):
        shrinking = escaping(point, chain, grown, 10.0) > 1
        blocks.append(rank(factor[:, shrinking]))
    assert (rank(factor), len(matrix), max(blocks)) == (26, 33, 18)


def test_the_spectral_norm_grows_beyond_any_bound():
    """‖H(T_α θ)‖ ≥ M for α < sqrt(γ/M), γ a positive diagonal entry of layer 1."""
    net = mlp([2, 2, 1], seed=6, bias=False)
    point, chain = params_of(net), Chain.of(net)
    inputs = normal(20, 2, seed=7)
    loss = squared_loss(net, inputs, net(inputs).detach())
    entry = float(hessian(loss, point).diagonal()[:4].max())
    assert entry > 0
    for bound in (1e2, 1e6):
        alpha = 0.999 * (entry / bound) ** 0.5
        moved = rescale_layers(point, chain, (alpha, 1 / alpha))
        assert float(torch.linalg.matrix_norm(hessian(loss, moved), 2)) >= bound


@pytest.mark.parametrize("bias", [True, False])
def test_a_split_branch_doubles_the_curvature_that_merging_halves(bias):
    """(26)-(30): the split layer's trace and largest eigenvalue, at any point."""
    net = mlp([2, 2, 2], seed=8, bias=bias)
    inputs, targets = normal(9, 2, seed=9), normal(9, 2, seed=10)

    def block(model: nn.Module) -> Tensor:
        point = params_of(model)
        chosen = {name: point[name] for name in point if name.startswith("0.")}
        loss = squared_loss(model, inputs, targets)
        return hessian(lambda part: loss({**point, **part}), chosen)

    whole, merged = block(net), block(split_branches(net, 0, 1.0))
    for share in (0.5, 0.2, 0.9):
        split = block(split_branches(net, 0, share))
        for measure in (torch.trace, lambda matrix: torch.linalg.eigvalsh(matrix)[-1]):
            assert float(measure(merged)) == pytest.approx(float(measure(whole)))
            assert float(measure(split)) == pytest.approx(2 * float(measure(merged)))


MEAN = torch.tensor([1.0, -2.0], dtype=torch.float64)
DEVIATION = torch.tensor([10.0, 0.1], dtype=torch.float64)


def test_section_d_mean_squared_error_ranks_by_representation():
    """Two autoencoders of raw x, and the same two functions of z = (x - m)/s."""
    inputs = normal(50, 2, seed=11) * DEVIATION + MEAN
    errors = {}
    for name, offset in (("first", [1.0, 0.0]), ("second", [0.0, 0.5])):
        model = nn.Sequential(nn.Linear(2, 2)).double()
        with torch.no_grad():
            model[0].weight.copy_(torch.eye(2))
            model[0].bias.copy_(torch.tensor(offset))
        standardized = absorb_standardization(model, -MEAN / DEVIATION, 1 / DEVIATION)
        z = (inputs - MEAN) / DEVIATION
        torch.testing.assert_close(standardized(z), model(inputs))
        raw_error = (model(inputs) - inputs).square().sum(1).mean()
        rebuilt = (standardized(z) - MEAN) / DEVIATION
        errors[name] = (raw_error.item(), (rebuilt - z).square().sum(1).mean().item())
    assert errors["first"] == pytest.approx((1.0, 0.01))
    assert errors["second"] == pytest.approx((0.25, 25.0))


def test_section_d_log_likelihood_ratios_do_not_depend_on_the_representation():
    inputs = normal(50, 2, seed=12) * DEVIATION + MEAN
    z = (inputs - MEAN) / DEVIATION
    standardize = distributions.AffineTransform(
        -MEAN / DEVIATION, 1 / DEVIATION, event_dim=1
    )
    raw, standardized = [], []
    for seed in (13, 14):
        factor = normal(2, 2, seed=seed)
        density = distributions.MultivariateNormal(
            normal(2, seed=seed), factor @ factor.T + torch.eye(2, dtype=torch.float64)
        )
        moved = distributions.TransformedDistribution(density, [standardize])
        raw.append(float(density.log_prob(inputs).mean()))
        standardized.append(float(moved.log_prob(z).mean()))
    change = float(DEVIATION.log().sum())
    assert standardized[0] - raw[0] == pytest.approx(change, rel=1e-9)
    assert standardized[0] - standardized[1] == pytest.approx(raw[0] - raw[1], rel=1e-9)


def test_section_d_flatness_depends_on_the_representation_of_one_function():
    net = mlp([2, 2, 1], seed=15)
    raw = absorb_standardization(net, MEAN, DEVIATION)
    inputs = normal(30, 2, seed=16) * DEVIATION + MEAN
    standardized = (inputs - MEAN) / DEVIATION
    torch.testing.assert_close(raw(inputs), net(standardized), rtol=1e-12, atol=1e-12)
    targets = normal(30, 1, seed=17)
    traces = [
        float(hessian(squared_loss(model, x, targets), params_of(model)).trace())
        for model, x in ((net, standardized), (raw, inputs))
    ]
    assert traces[1] > 10 * traces[0]
