from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from flatgauge import noise
from flatgauge.noise import random_signs, split_mix, standard_normal
from flatgauge.vectors import generator

FLOAT32, FLOAT64 = torch.zeros(()), torch.zeros((), dtype=torch.float64)


def draw(count, seed=0, like=FLOAT64):
    return standard_normal(count, generator(seed), like)


def test_the_bits_are_those_of_split_mix():
    bits = [int(one) % 2**64 for one in split_mix(torch.arange(3), 1234567)]
    state, expected = 1234567, []
    for _ in range(3):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        mixed = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        expected.append(mixed ^ mixed >> 31)
    assert bits == expected
    # The first of the author's published outputs for this seed.
    assert bits[0] == 6457827717110365317


@pytest.mark.parametrize("seed", range(3))
def test_they_are_normal(seed):
    numbers = draw(400_000, seed).numpy()
    assert stats.kstest(numbers, "norm").pvalue > 1e-4
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0), (6, 15.0)):
        powers = numbers**power
        error = powers.std() / np.sqrt(len(powers))
        assert abs(powers.mean() - moment) < 5 * error


@pytest.mark.parametrize("lag", [1, 2, 1000, 200_000])
def test_places_are_independent(lag):
    numbers = draw(400_000).numpy()
    left, right = numbers[:-lag], numbers[lag:]
    for one, other in ((left, right), (left**2 - 1, right**2 - 1)):
        products = one * other
        assert abs(products.mean()) < 5 * products.std() / np.sqrt(len(products))


def test_keys_are_independent():
    random = generator(0)
    rows = torch.stack([standard_normal(2000, random, FLOAT64) for _ in range(100)])
    correlations = (rows @ rows.T / 2000).numpy()[np.triu_indices(100, 1)]
    assert stats.kstest(correlations * np.sqrt(2000), "norm").pvalue > 1e-4


def test_nothing_but_seed_and_count_changes_them(monkeypatch):
    whole = draw(1001)
    assert torch.allclose(draw(1001, like=FLOAT32), whole.float(), rtol=1e-6)
    monkeypatch.setattr(noise, "PIECE", 7)
    # Up to rounding: the ends of a piece are computed by other instructions.
    assert torch.allclose(draw(1001), whole, rtol=1e-12, atol=1e-14)
    assert not torch.equal(draw(1001, seed=1), whole)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few(count):
    numbers = draw(count)
    assert numbers.shape == (count,)
    assert torch.isfinite(numbers).all()


def test_extreme_bits_are_finite(monkeypatch):
    extremes = torch.tensor([0, -1, 2**63 - 1, -(2**63)])
    monkeypatch.setattr(noise, "split_mix", lambda places, key: extremes[places])
    for like in (FLOAT32, FLOAT64):
        numbers = draw(8, like=like)
        assert torch.isfinite(numbers).all()
        assert numbers.abs().max() < 7


def test_the_global_state_stays():
    before = torch.get_rng_state()
    draw(10)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("like", [FLOAT32, FLOAT64])
def test_a_gpu_draws_the_same(like):
    host, device = draw(300_001, like=like), draw(300_001, like=like.cuda())
    assert device.is_cuda
    eps = torch.finfo(like.dtype).eps
    assert torch.allclose(device.cpu(), host, rtol=4 * eps, atol=1e-14)


class TestSigns:
    def test_they_are_signs(self):
        signs = random_signs(400_001, generator(0), FLOAT64)
        assert set(signs.unique().tolist()) == {-1.0, 1.0}
        assert abs(float(signs.sum())) < 5 * np.sqrt(len(signs))

    @pytest.mark.parametrize("lag", [1, 2, 32, 63, 64, 65, 4096])
    def test_places_are_independent(self, lag):
        signs = random_signs(400_000, generator(1), FLOAT64)
        assert abs(float(signs[:-lag] @ signs[lag:])) < 5 * np.sqrt(len(signs))

    def test_keys_are_independent(self):
        random = generator(0)
        rows = torch.stack([random_signs(2000, random, FLOAT64) for _ in range(100)])
        correlations = (rows @ rows.T / 2000).numpy()[np.triu_indices(100, 1)]
        assert stats.kstest(correlations * np.sqrt(2000), "norm").pvalue > 1e-4

    def test_nothing_but_seed_and_place_changes_them(self, monkeypatch):
        whole = random_signs(1001, generator(0), FLOAT64)
        few = random_signs(77, generator(0), FLOAT32)
        assert torch.equal(few.double(), whole[:77])
        monkeypatch.setattr(noise, "PIECE", 128)
        assert torch.equal(random_signs(1001, generator(0), FLOAT64), whole)

    @pytest.mark.gpu
    def test_a_gpu_makes_the_same(self):
        there = random_signs(1001, generator(0), FLOAT32.cuda())
        assert torch.equal(there.cpu(), random_signs(1001, generator(0), FLOAT32))


@pytest.mark.parametrize("count", [1, 2, 7, 64, 1001])
@pytest.mark.parametrize("drawn", [standard_normal, random_signs])
def test_some_places_have_the_numbers_of_all(drawn, count):
    everything = drawn(count, generator(5), FLOAT64)
    cuts = [0, count // 3, count // 3, (count + 1) // 2, count]
    for places in (
        [range(count)],
        [range(a, b) for a, b in itertools.pairwise(cuts)],
        [range(count // 2, count), range(count // 4)],
        [range(0)],
    ):
        found = drawn(count, generator(5), FLOAT64, places)
        wanted = [everything[own.start : own.stop] for own in places]
        assert torch.allclose(found, torch.cat(wanted), rtol=1e-14)
        assert found.dtype == torch.float64
