"""Convolutional networks of timm, and those of mixed kinds."""

from __future__ import annotations

from typing import Any

from torch import nn

from zoo.registry import CLASSES, Trial, network
from zoo.timm_sizes import classifier, seeing

THIN: dict[str, Any] = {"channels": (4, 4, 8, 8), "stem_width": 4}
SHORT: dict[str, Any] = {**THIN, "layers": (1, 1, 1, 1)}

# By name: the pictures' size and what is smaller than usual.
NETWORKS: dict[str, tuple[int, dict[str, Any]]] = {
    "resnet18": (32, SHORT),
    "resnet26d": (32, SHORT),
    "wide_resnet50_2": (32, SHORT),
    "resnext26ts": (32, {}),
    "seresnet18": (32, SHORT),
    "skresnet18": (32, {"channels": (16, 16, 16, 16), "layers": (1, 1, 1, 1)}),
    "resnest14d": (32, SHORT),
    "res2net50_26w_4s": (32, {**SHORT, "base_width": 26}),
    "densenet121": (32, {"growth_rate": 4, "block_config": (1, 1, 1, 1)}),
    "dla46_c": (32, {}),
    "cs3darknet_s": (32, {}),
    "hrnet_w18_small": (32, {}),
    "inception_v3": (96, {"aux_logits": False}),
    "xception41": (32, {}),
    "repvgg_a0": (32, {}),
    "regnety_002": (32, {}),
    "mobilenetv3_small_050": (32, {}),
    "ghostnet_050": (32, {}),
    "test_efficientnet": (32, {}),
    "test_efficientnet_gn": (32, {}),
    "test_efficientnet_evos": (32, {}),
    "test_nfnet": (32, {}),
    "test_mambaout": (32, {}),
    "convnext_atto": (32, {"depths": (1, 1, 1, 1), "dims": (8, 8, 8, 16)}),
    "convnextv2_atto": (32, {"depths": (1, 1, 1, 1), "dims": (8, 8, 8, 16)}),
    "test_vit": (32, {"img_size": 32, "patch_size": 16}),
    "test_convnext": (32, {}),
    "test_resnet": (32, {}),
    "starnet_s1": (32, {}),
    "fastvit_t8": (32, {"layers": (1, 1, 1, 1), "embed_dims": (8, 8, 8, 8)}),
}  # fmt: skip

for name, (size, options) in NETWORKS.items():
    classifier(name, size, options)
classifier("resnet18", 32, SHORT, mode="train")


@network("timm")
def convmixer() -> Trial:
    from timm.models.convmixer import ConvMixer

    model = ConvMixer(dim=16, depth=2, kernel_size=3, patch_size=4, num_classes=CLASSES)
    return seeing(model, 16)


@network("timm")
def focalnet() -> Trial:
    from timm.models.focalnet import FocalNet

    model = FocalNet(
        num_classes=CLASSES, embed_dim=6, depths=(1, 1), focal_levels=(2, 2),
        focal_windows=(3, 3),
    )  # fmt: skip
    return seeing(model, 32)


@network("timm")
def vgg_bn() -> Trial:
    from timm.models.vgg import VGG

    model = VGG(
        cfg=[4, "M", 8, "M", 512, "M"], num_classes=CLASSES, norm_layer=nn.BatchNorm2d,
        mlp_ratio=0.001,
    )  # fmt: skip
    return seeing(model, 64)
