"""Lets torchvision be imported where its compiled operators do not fit this torch.

Its wheel on PyPI is built for CUDA. Beside a torch without CUDA the operators are missing,
and importing it fails where it describes their shapes; timm and segmentation models import
it, and a broken torchvision breaks transformers, too. No network here uses one of them.
"""

from __future__ import annotations

import sys

import torch

OPERATORS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float scale, int h, int w, "
    "int ratio, bool aligned) -> Tensor",
    "qroi_align": "(Tensor input, Tensor rois, float scale, int h, int w, "
    "int ratio, bool aligned) -> Tensor",
    "_roi_align_backward": "(Tensor grad) -> Tensor",
    "ps_roi_align": "(Tensor input) -> (Tensor, Tensor)",
    "_ps_roi_align_backward": "(Tensor grad) -> Tensor",
    "roi_pool": "(Tensor input) -> (Tensor, Tensor)",
    "_roi_pool_backward": "(Tensor grad) -> Tensor",
    "ps_roi_pool": "(Tensor input) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward": "(Tensor grad) -> Tensor",
    "deform_conv2d": "(Tensor input) -> Tensor",
    "_deform_conv2d_backward": "(Tensor grad) -> Tensor",
}  # fmt: skip
_kept: list[torch.library.Library] = []


def torchvision_importable() -> None:
    """Declare the operators, unless torchvision brings them itself."""
    try:
        import torchvision
    except (RuntimeError, AttributeError):
        pass
    except ModuleNotFoundError:
        return
    else:
        return
    for name in [one for one in sys.modules if one.startswith("torchvision")]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in OPERATORS.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(name + schema)
    _kept.append(library)
    import torchvision  # noqa: F401
