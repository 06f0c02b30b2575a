"""Data that the command line knows by name: digits, MNIST and CIFAR-10 files.

Nothing is downloaded: digits come with scikit-learn, the others are read from the
standard files in a folder that the user names.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from flatgauge.errors import DataError
from flatgauge.shapes import Float, Int

PARTS = ("train", "test")
IDX_PREFIX = {"train": "train", "test": "t10k"}
CIFAR_FOLDER = "cifar-10-batches-bin"
CIFAR_FILES = {
    "train": [f"data_batch_{index}.bin" for index in range(1, 6)],
    "test": ["test_batch.bin"],
}
CIFAR_SHAPE = (3, 32, 32)

Images = Float[Tensor, "n channels height width"]
Labels = Int[Tensor, " n"]


def digits(limit: int | None = None) -> tuple[Images, Labels]:
    """The 1797 handwritten digits of scikit-learn, [n, 1, 8, 8] in [0, 1].

    >>> images, labels = digits(limit=5)
    >>> images.shape, labels.tolist()
    (torch.Size([5, 1, 8, 8]), [0, 1, 2, 3, 4])
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError(
            "the digits come with scikit-learn: pip install scikit-learn."
        ) from error
    images, labels = load_digits(return_X_y=True)
    pixels = torch.from_numpy(images[:limit]).float().reshape(-1, 1, 8, 8) / 16
    return pixels, torch.from_numpy(labels[:limit]).long()


def mnist(
    folder: str | Path, part: str = "train", limit: int | None = None
) -> tuple[Images, Labels]:
    """MNIST from its idx files, compressed or not, [n, 1, 28, 28] in [0, 1].

    Args:
        folder: where train-images-idx3-ubyte and its three companions lie.
        part: "train" or "test".
        limit: take only the first so many.
    """
    prefix = IDX_PREFIX[_part(part)]
    images = _read_idx(Path(folder), f"{prefix}-images-idx3-ubyte", 3)
    labels = _read_idx(Path(folder), f"{prefix}-labels-idx1-ubyte", 1)
    if len(images) != len(labels):
        raise DataError(
            f"'{folder}' has {len(images)} images and {len(labels)} labels: get the "
            "files again."
        )
    return _as_tensors(images[:limit, None], labels[:limit])


def cifar10(
    folder: str | Path, part: str = "train", limit: int | None = None
) -> tuple[Images, Labels]:
    """CIFAR-10 from its binary files, [n, 3, 32, 32] in [0, 1].

    Args:
        folder: where data_batch_1.bin and its companions lie, or the folder above
            cifar-10-batches-bin.
        part: "train" or "test".
        limit: take only the first so many.
    """
    names = CIFAR_FILES[_part(part)]
    place = Path(folder)
    place = place / CIFAR_FOLDER if (place / CIFAR_FOLDER).is_dir() else place
    size = 1 + int(np.prod(CIFAR_SHAPE))
    records = np.concatenate([_read_records(place / name, size) for name in names])
    images = records[:limit, 1:].reshape(-1, *CIFAR_SHAPE)
    return _as_tensors(images, records[:limit, 0])


def _part(part: str) -> str:
    if part not in PARTS:
        raise DataError(f"the part '{part}' is not known: use 'train' or 'test'.")
    return part


def _read_idx(folder: Path, name: str, dimensions: int) -> np.ndarray:
    content = _read_first([folder / name, folder / f"{name}.gz"])
    header = 4 * (1 + dimensions)
    if len(content) < header or content[:4] != bytes([0, 0, 8, dimensions]):
        raise DataError(f"'{folder / name}' is no idx file: get it again.")
    shape = np.frombuffer(content[4:header], dtype=">u4").astype(int)
    if len(content) != header + int(shape.prod()):
        raise DataError(f"'{folder / name}' is cut short: get it again.")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _read_records(path: Path, size: int) -> np.ndarray:
    content = _read_first([path])
    if not content or len(content) % size:
        raise DataError(
            f"'{path}' is no CIFAR-10 file: its length is no multiple of {size}."
        )
    return np.frombuffer(content, dtype=np.uint8).reshape(-1, size)


def _read_first(paths: Sequence[Path]) -> bytes:
    """The content of the first file that exists, unpacked."""
    for path in paths:
        if not path.is_file():
            continue
        try:
            content = path.read_bytes()
            return gzip.decompress(content) if path.suffix == ".gz" else content
        except (OSError, EOFError) as error:
            raise DataError(f"'{path}' could not be read: {error}.") from error
    raise DataError(
        f"'{paths[0]}' was not found: name the folder that holds the standard files."
    )


def _as_tensors(images: np.ndarray, labels: np.ndarray) -> tuple[Images, Labels]:
    pixels = torch.from_numpy(images.astype(np.float32) / 255)
    return pixels, torch.from_numpy(labels.astype(np.int64))
