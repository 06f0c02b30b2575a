from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from flatgauge.datasets import cifar10, digits, mnist
from flatgauge.errors import DataError


def write_idx(path: Path, values: np.ndarray) -> None:
    head = bytes([0, 0, 8, values.ndim]) + struct.pack(
        f">{values.ndim}I", *values.shape
    )
    content = head + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_mnist(folder: Path, suffix: str = "", count: int = 4) -> np.ndarray:
    images = np.arange(count * 28 * 28).reshape(count, 28, 28) % 256
    for prefix in ("train", "t10k"):
        write_idx(folder / f"{prefix}-images-idx3-ubyte{suffix}", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte{suffix}", np.arange(count))
    return images


def test_digits():
    images, labels = digits()
    assert images.shape == (1797, 1, 8, 8)
    assert (float(images.min()), float(images.max())) == (0.0, 1.0)
    assert labels.unique().tolist() == list(range(10))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("part", ["train", "test"])
def test_mnist(tmp_path, suffix, part):
    expected = write_mnist(tmp_path, suffix)
    images, labels = mnist(tmp_path, part, limit=3)
    assert images.shape == (3, 1, 28, 28)
    assert np.allclose(images[:, 0].numpy() * 255, expected[:3], atol=1e-4)
    assert labels.tolist() == [0, 1, 2]


def write_cifar(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        records = np.zeros((2, 3073), np.uint8)
        records[:, 0] = [3, 8]
        records[:, 1] = 255
        (folder / name).write_bytes(records.tobytes())


@pytest.mark.parametrize("inner", ["", "cifar-10-batches-bin"])
def test_cifar10(tmp_path, inner):
    write_cifar(tmp_path / inner)
    images, labels = cifar10(tmp_path)
    assert images.shape == (10, 3, 32, 32)
    assert labels.tolist() == [3, 8] * 5
    assert images[0, 0, 0, 0] == 1
    assert images.sum() == 10
    assert len(cifar10(tmp_path, "test")[1]) == 2


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match="train-images-idx3-ubyte' was not found"):
        mnist(tmp_path)
    with pytest.raises(DataError, match=r"data_batch_1\.bin' was not found"):
        cifar10(tmp_path)
    with pytest.raises(DataError, match="the part 'other'"):
        mnist(tmp_path, "other")


def test_broken_files_are_refused(tmp_path):
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(DataError, match="cut short"):
        mnist(tmp_path)
    path.write_bytes(b"no idx file at all")
    with pytest.raises(DataError, match="no idx file"):
        mnist(tmp_path)
    write_idx(path, np.zeros((2, 28, 28)))
    with pytest.raises(DataError, match="2 images and 4 labels"):
        mnist(tmp_path)
    path.unlink()
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match="could not be read"):
        mnist(tmp_path)
    write_cifar(tmp_path)
    (tmp_path / "data_batch_2.bin").write_bytes(b"short")
    with pytest.raises(DataError, match="no CIFAR-10 file"):
        cifar10(tmp_path)
