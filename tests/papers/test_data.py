"""The experiments' data: MNIST from the user's folder, or digits in quick form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flatgauge.errors import DataError, OptionError
from papers.data import images
from papers.experiment import Context

CPU = torch.device("cpu")
QUICK = Context(quick=True, data=None, device=CPU)


def test_quick_needs_no_files():
    pixels, labels = images(QUICK, "mnist", "train")
    others, _ = images(QUICK, "mnist", "test")
    assert pixels.shape == (1397, 1, 8, 8)
    assert others.shape == (400, 1, 8, 8)
    assert pixels.dtype == torch.float32
    assert 0 <= pixels.min() < pixels.max() == 1
    assert labels[:5].tolist() == [0, 1, 2, 3, 4]
    assert images(QUICK, "mnist", "test", limit=7)[1].shape == (7,)


def test_full_reads_the_files(tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    pixels = np.arange(3 * 28 * 28, dtype=np.uint8)
    head = np.array([0x803, 3, 28, 28], dtype=">u4").tobytes()
    (folder / "t10k-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
    head = np.array([0x801, 3], dtype=">u4").tobytes()
    (folder / "t10k-labels-idx1-ubyte").write_bytes(head + bytes([7, 2, 1]))
    context = Context(quick=False, data=tmp_path, device=CPU)
    found, labels = images(context, "mnist", "test", limit=2)
    assert found.shape == (2, 1, 28, 28)
    assert found[0, 0, 0, 1] == 1 / 255
    assert labels.tolist() == [7, 2]
    with pytest.raises(DataError, match="train-images-idx3-ubyte' was not found"):
        images(context, "mnist", "train")


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(DataError, match="name the folder above it with --data"):
        images(Context(quick=False, data=None, device=CPU), "mnist")
    with pytest.raises(DataError, match="holds no folder mnist/"):
        images(Context(quick=False, data=tmp_path, device=CPU), "mnist")


def test_unknown_names():
    with pytest.raises(OptionError, match="'imagenet'"):
        images(QUICK, "imagenet")
    with pytest.raises(DataError, match="'dev'"):
        images(QUICK, "mnist", "dev")
