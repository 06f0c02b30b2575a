"""Random numbers that are the same on every device, up to rounding.

torch's generators give other numbers on a GPU than on a CPU, and a GPU waits while the
host draws for it. Here every number is a hash of its place, made where it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from flatgauge.shapes import Float

# SplitMix64 (Steele, Lea and Flood 2014), as signed numbers: torch has no others.
GOLDEN = 0x9E3779B97F4A7C15 - 2**64
FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
LOW_BITS = 2**32 - 1
# Pairs that are made at a time, which bounds the memory beside the result; and signs, which
# take less of it: on a GPU few and long pieces, on a CPU such as stay in its cache.
PIECE, SIGNS, SIGNS_ON_CPU = 2**20, 2**26, 2**20


def standard_normal(
    count: int,
    random: torch.Generator,
    like: Tensor,
    places: Sequence[range] | None = None,
) -> Float[Tensor, " count"]:
    """Independent standard normal numbers, with the device and dtype of `like`.

    Up to rounding they are a function of the generator's state and of `count` alone: the
    generator gives a key, SplitMix64 two uniform numbers u, v of 32 bits for each pair of
    places, and Box and Muller the pair √(−2 ln u) (cos 2πv, sin 2πv).

    Args:
        count: how many.
        random: a generator, of which one number is taken.
        like: where they go.
        places: the ranges of those that are wanted; all if None.

    >>> import torch
    >>> standard_normal(3, torch.Generator().manual_seed(0), torch.zeros(()))
    tensor([-2.0801, -1.4561,  0.6453])
    """
    key = _key(random)
    half = (count + 1) // 2
    if places is None:
        numbers = torch.empty(2, half, dtype=like.dtype, device=like.device)
        for pairs in _pieces(range(half), PIECE):
            angle, radius = _polar(pairs, key, like.device)
            numbers[0, pairs.start : pairs.stop] = angle.cos().mul_(radius)
            numbers[1, pairs.start : pairs.stop] = angle.sin_().mul_(radius)
        return numbers.view(-1)[:count]
    some: list[Tensor] = []
    for own in places:
        first = range(min(own.start, half), min(own.stop, half))
        second = range(max(own.start, half) - half, max(own.stop, half) - half)
        for turn, pairs in ((Tensor.cos_, first), (Tensor.sin_, second)):
            for piece in _pieces(pairs, PIECE):
                angle, radius = _polar(piece, key, like.device)
                some.append(turn(angle).mul_(radius).to(like.dtype))
    if not some:
        return torch.empty(0, dtype=like.dtype, device=like.device)
    return torch.cat(some)


def _polar(pairs: range, key: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The angles and radii of some pairs of normal numbers."""
    where = torch.arange(pairs.start, pairs.stop, dtype=torch.int64, device=device)
    bits = split_mix(where, key)
    u = shifted(bits, 32).double().add_(0.5).mul_(2.0**-32)
    angle = (bits & LOW_BITS).double().mul_(2 * math.pi * 2.0**-32)
    return angle, u.log_().mul_(-2).sqrt_()


def _pieces(whole: range, most: int) -> Iterator[range]:
    for start in range(whole.start, whole.stop, most):
        yield range(start, min(start + most, whole.stop))


def random_signs(
    count: int,
    random: torch.Generator,
    like: Tensor,
    places: Sequence[range] | None = None,
) -> Float[Tensor, " count"]:
    """Independent signs ±1, with the device and dtype of `like`.

    They are a function of the generator's state and of their place alone: SplitMix64 gives
    the bits of 64 places at a time, and a table the signs of 8.

    Args:
        count: how many.
        random: a generator, of which one number is taken.
        like: where they go.
        places: the ranges of those that are wanted; all if None.

    >>> import torch
    >>> random_signs(4, torch.Generator().manual_seed(0), torch.zeros(()))
    tensor([ 1., -1.,  1., -1.])
    """
    key, wanted = _key(random), [range(count)] if places is None else places
    octets = torch.arange(256, device=like.device)[:, None]
    table = (octets >> octets[:8, 0]).bitwise_and_(1).to(like.dtype).mul_(2).sub_(1)
    found = [_signs_at(own, key, table) for own in wanted]
    return found[0] if len(found) == 1 else torch.cat(found)


def _signs_at(own: range, key: int, table: Tensor) -> Tensor:
    """The signs of a range of places, by a table of those of 8 bits."""
    words = range(own.start // 64, (own.stop + 63) // 64)
    signs = torch.empty(len(words), 64, dtype=table.dtype, device=table.device)
    shifts = torch.arange(0, 64, 8, dtype=torch.int64, device=table.device)
    most = SIGNS_ON_CPU if table.device.type == "cpu" else SIGNS
    for piece in _pieces(words, most // 64):
        where = torch.arange(
            piece.start, piece.stop, dtype=torch.int64, device=table.device
        )
        bits = (split_mix(where, key)[:, None] >> shifts).bitwise_and_(255)
        rows = slice(piece.start - words.start, piece.stop - words.start)
        chosen = signs[rows].view(-1, 8)
        torch.index_select(table, 0, bits.view(-1), out=chosen)
    begin = own.start - 64 * words.start
    return signs.view(-1)[begin : begin + len(own)]


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
