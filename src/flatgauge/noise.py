"""Random numbers that are the same on every device, up to rounding.

torch's generators give other numbers on a GPU than on a CPU, and a GPU waits while the
host draws for it. Here every number is a hash of its place, made where it is needed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flatgauge.shapes import Float

# SplitMix64 (Steele, Lea and Flood 2014), as signed numbers: torch has no others.
GOLDEN = 0x9E3779B97F4A7C15 - 2**64
FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
LOW_BITS = 2**32 - 1
# Pairs that are made at a time, which bounds the memory beside the result.
PIECE = 2**20


def standard_normal(
    count: int, random: torch.Generator, like: Tensor
) -> Float[Tensor, " count"]:
    """Independent standard normal numbers, with the device and dtype of `like`.

    Up to rounding they are a function of the generator's state and of `count` alone: the
    generator gives a key, SplitMix64 two uniform numbers u, v of 32 bits for each pair of
    places, and Box and Muller the pair √(−2 ln u) (cos 2πv, sin 2πv).

    Args:
        count: how many.
        random: a generator, of which one number is taken.
        like: where they go.

    >>> import torch
    >>> standard_normal(3, torch.Generator().manual_seed(0), torch.zeros(()))
    tensor([-2.0801, -1.4561,  0.6453])
    """
    key = _key(random)
    half = (count + 1) // 2
    numbers = torch.empty(2, half, dtype=like.dtype, device=like.device)
    for start in range(0, half, PIECE):
        stop = min(start + PIECE, half)
        places = torch.arange(start, stop, dtype=torch.int64, device=like.device)
        bits = split_mix(places, key)
        u = shifted(bits, 32).double().add_(0.5).mul_(2.0**-32)
        angle = (bits & LOW_BITS).double().mul_(2 * math.pi * 2.0**-32)
        radius = u.log_().mul_(-2).sqrt_()
        numbers[0, start:stop] = angle.cos().mul_(radius)
        numbers[1, start:stop] = angle.sin_().mul_(radius)
    return numbers.view(-1)[:count]


def random_signs(
    count: int, random: torch.Generator, like: Tensor
) -> Float[Tensor, " count"]:
    """Independent signs ±1, with the device and dtype of `like`.

    They are a function of the generator's state and of their place alone: SplitMix64 gives
    the bits of 64 places at a time, and a table the signs of 8.

    Args:
        count: how many.
        random: a generator, of which one number is taken.
        like: where they go.

    >>> import torch
    >>> random_signs(4, torch.Generator().manual_seed(0), torch.zeros(()))
    tensor([ 1., -1.,  1., -1.])
    """
    key, words = _key(random), (count + 63) // 64
    octets = torch.arange(256, device=like.device)[:, None]
    table = (octets >> octets[:8, 0]).bitwise_and_(1).to(like.dtype).mul_(2).sub_(1)
    signs = torch.empty(words, 64, dtype=like.dtype, device=like.device)
    shifts = torch.arange(0, 64, 8, dtype=torch.int64, device=like.device)
    for start in range(0, words, PIECE // 64):
        stop = min(start + PIECE // 64, words)
        places = torch.arange(start, stop, dtype=torch.int64, device=like.device)
        bits = (split_mix(places, key)[:, None] >> shifts).bitwise_and_(255)
        chosen = signs[start:stop].view(-1, 8)
        torch.index_select(table, 0, bits.view(-1), out=chosen)
    return signs.view(-1)[:count]


def _key(random: torch.Generator) -> int:
    """A number of the generator's."""
    drawn = torch.empty((), dtype=torch.int64, device=random.device)
    return int(drawn.random_(generator=random))


def split_mix(places: Tensor, key: int) -> Tensor:
    """64 random bits for each place: the generator's outputs from the state `key`."""
    return mixed((places + 1).mul_(GOLDEN).add_(key))


def mixed(bits: Tensor) -> Tensor:
    """SplitMix64's last step: every bit of the result depends on all that are given."""
    bits = (bits ^ shifted(bits, 30)).mul_(FACTORS[0])
    bits = (bits ^ shifted(bits, 27)).mul_(FACTORS[1])
    return bits ^ shifted(bits, 31)


def shifted(bits: Tensor, by: int) -> Tensor:
    """64 bits moved to the right, with zeros before them."""
    return (bits >> by).bitwise_and_(2 ** (64 - by) - 1)
