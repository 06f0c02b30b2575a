"""The images that the experiments train on: MNIST and CIFAR-10, digits in quick form."""

from __future__ import annotations

import hashlib

from flatgauge import datasets
from flatgauge.errors import DataError, OptionError
from papers.experiment import Context

QUICK_TRAIN = 1397  # of the 1797 digits; the other 400 are the test part
READERS = {"mnist": datasets.mnist, "cifar10": datasets.cifar10}
FILES = {
    "mnist": "the four idx files of MNIST (.gz or not)",
    "cifar10": "the six binary files of CIFAR-10",
}


def check_data(context: Context, name: str = "mnist") -> None:
    """Refuse a full run without the folder of the data.

    Raises:
        DataError: if --data was not given or holds no folder of that name.
    """
    if context.quick:
        return
    if context.data is None:
        raise DataError(
            f"it needs data: put {FILES[name]} into a folder {name}/ and name the folder "
            "above it with --data."
        )
    if not (context.data / name).is_dir():
        raise DataError(
            f"'{context.data}' holds no folder {name}/: put {FILES[name]} there."
        )


def images(
    context: Context, name: str, part: str = "train", limit: int | None = None
) -> tuple[datasets.Images, datasets.Labels]:
    """Images in [0, 1] and their labels, on the context's device.

    Args:
        context: the full form reads MNIST, [n, 1, 28, 28], or CIFAR-10, [n, 3, 32, 32],
            from --data; the quick form takes the 8 x 8 digits of scikit-learn,
            [n, 1, 8, 8], for either, which need no files.
        name: "mnist" or "cifar10".
        part: "train" or "test".
        limit: take only the first so many.
    """
    if name not in READERS:
        known = " or ".join(f"'{one}'" for one in READERS)
        raise OptionError(f"the data '{name}' are not known here: use {known}.")
    check_data(context, name)
    if context.quick:
        pixels, labels = _digits(part)
    else:
        assert context.data is not None
        pixels, labels = READERS[name](context.data / name, part)
    return pixels[:limit].to(context.device), labels[:limit].to(context.device)


def digest(context: Context, name: str = "mnist") -> str:
    """The SHA-256 of all images and labels, so that a result says what it was made from."""
    found = hashlib.sha256()
    for part in datasets.PARTS:
        for tensor in images(context, name, part):
            found.update(tensor.cpu().numpy().tobytes())
    return found.hexdigest()


def _digits(part: str) -> tuple[datasets.Images, datasets.Labels]:
    if part not in datasets.PARTS:
        raise DataError(f"the part '{part}' is not known: use 'train' or 'test'.")
    chosen = slice(QUICK_TRAIN) if part == "train" else slice(QUICK_TRAIN, None)
    pixels, labels = datasets.digits()
    return pixels[chosen], labels[chosen]
