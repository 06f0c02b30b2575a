"""Networks that once had a wrong number: each stays a test of what was mended."""

from __future__ import annotations

import pytest

from fuzz.one import check

FOUND = {
    "rounding behind a root": [(0, 13), (0, 2535), (5, 2840)],
    "a Hessian that vanishes": [(0, 1350), (2, 1600)],
    "parts in float32": [(0, 750), (0, 1300)],
    "a small unsound part": [(0, 1562), (3, 355)],
    "a small reference past an attribute": [(0, 3739)],
    "class weights behind equal outputs": [(0, 1947), (1, 42), (2, 1081)],
    "class weights in one batch only": [(2, 490)],
    "a batch that depends on nothing": [(14, 226), (14, 428)],
    "no second derivative": [(14, 25)],
    "an unsound part where the loss is as good as 0": [(5, 2812)],
    "a gradient that is right, without a second derivative": [(5, 291), (5, 1222)],
    "an unsound part that few samples reach": [(5, 4417), (5, 5046)],
    "a reference past an attribute that few samples reach": [(5, 5771)],
    "curvature of samples that are certain and wrong": [(5, 4927), (5, 6340)],
    "rounding of a loss of one's own": [(5, 4735)],
    "curvature too large for coarse steps": [(0, 3025)],
}


@pytest.mark.slow
@pytest.mark.parametrize("what", FOUND)
def test_what_was_found(what):
    for seed, index in FOUND[what]:
        found = [one for one in check(seed, index).findings if one.failed]
        # The types of every call are checked here, by chance.
        assert [one for one in found if one.note != "Python's random state"] == []
