import math

import pytest
import torch
from support.cases import KNOWN

from flatgauge.errors import OptionError
from papers.dinh2017.box_volume import sublevel_volume

BOXES = KNOWN["closed_forms"]["volume_flatness eps=0.02 in box (0,R)^2"]


def hyperbola(points):
    return 0.5 * (points[:, 0] * points[:, 1] - 1) ** 2


@pytest.mark.parametrize(
    ("side", "samples"), [(2, 10**6), (4, 10**6), (16, 10**6), (256, 3 * 10**7)]
)
def test_volumes_in_a_box(side, samples):
    found = sublevel_volume(
        hyperbola, (0.0, 0.0), (float(side),) * 2, 0.02, samples, seed=1
    )
    expected = float(BOXES[str(side)])
    assert found.standard_error < 0.02 * expected
    assert abs(found.volume - expected) <= 3 * found.standard_error


def test_standard_errors_are_honest():
    truth = math.pi / 4
    scores = []
    for seed in range(200):
        found = sublevel_volume(
            lambda x: x.norm(dim=1), (0.0, 0.0), (1.0, 1.0), 1.0, 500, seed
        )
        scores.append((found.volume - truth) / found.standard_error)
    scores = torch.tensor(scores)
    assert abs(float(scores.mean())) < 0.3
    assert 0.8 < float(scores.std()) < 1.25


def test_many_dimensions_fall_back_to_plain_sampling():
    found = sublevel_volume(
        lambda x: x.norm(dim=1), (-1.0,) * 30, (1.0,) * 30, 3.0, 20_000
    )
    share = found.volume / 2**30
    assert found.standard_error / 2**30 == pytest.approx(
        math.sqrt(share * (1 - share) / 20_000), rel=1e-3
    )


def test_empty_boxes_are_refused():
    with pytest.raises(OptionError, match="positive sides"):
        sublevel_volume(hyperbola, (0.0, 0.0), (1.0, 0.0), 0.02)
