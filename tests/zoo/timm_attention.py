"""Networks of timm with attention, and others that see patches."""

from __future__ import annotations

from typing import Any

from zoo.registry import CLASSES, Trial, network
from zoo.timm_sizes import classifier, seeing

PATCHES: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 16,
    "embed_dim": 16,
    "depth": 1,
}
HEADS: dict[str, Any] = {**PATCHES, "num_heads": 2, "mlp_ratio": 2.0}

NETWORKS: dict[str, tuple[int, dict[str, Any]]] = {
    "vit_tiny_patch16_224": (32, HEADS),
    "deit_tiny_distilled_patch16_224": (32, HEADS),
    "vit_relpos_small_patch16_224": (32, HEADS),
    "eva02_tiny_patch14_224": (32, HEADS),
    "beit_base_patch16_224": (32, HEADS),
    "samvit_base_patch16_224": (32, {**HEADS, "global_attn_indexes": (0,), "neck_chans": 16}),
    "naflexvit_base_patch16_gap": (32, {"embed_dim": 16, "depth": 1, "num_heads": 2}),
    "cait_xxs24_224": (32, HEADS),
    "convit_tiny": (32, {**HEADS, "embed_dim": 8}),
    "xcit_nano_12_p16_224": (32, {**PATCHES, "num_heads": 2, "mlp_ratio": 2.0}),
    "tnt_s_legacy_patch16_224": (
        32,
        {"img_size": 32, "embed_dim": 16, "inner_dim": 8, "depth": 1, "num_heads_outer": 2},
    ),
    "swin_tiny_patch4_window7_224": (
        32,
        {"img_size": 32, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2),
         "window_size": 4},
    ),
    "swinv2_tiny_window8_256": (
        32,
        {"img_size": 32, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2),
         "window_size": 4},
    ),
    "twins_pcpvt_small": (
        32,
        {"img_size": 32, "embed_dims": (8, 8, 16, 16), "depths": (1, 1, 1, 1),
         "num_heads": (1, 1, 2, 2)},
    ),
    "davit_tiny": (
        32,
        {"depths": (1, 1), "embed_dims": (8, 16), "num_heads": (1, 2), "window_size": 4},
    ),
    "edgenext_xx_small": (
        32, {"dims": (8, 8, 16, 16), "depths": (1, 1, 1, 1), "heads": (2, 2, 2, 2)},
    ),
    "hiera_tiny_224": (
        32,
        {"img_size": (32, 32), "embed_dim": 8, "num_heads": 1, "stages": (1, 1),
         "mask_unit_size": (4, 4), "q_pool": 1, "mlp_ratio": 2.0},
    ),
    "levit_128s": (64, {"img_size": 64}),
    "botnet26t_256": (64, {"img_size": 64}),
    "lambda_resnet26t": (64, {"img_size": 64}),
    "maxvit_nano_rw_256": (64, {"img_size": 64}),
    "mobilevit_xxs": (64, {}),
    "mobilevitv2_050": (64, {}),
    "shvit_s1": (32, {}),
}  # fmt: skip

for name, (size, options) in NETWORKS.items():
    classifier(name, size, options)


def _mlp(block: str, ratio: Any, layer: str | None = None) -> Trial:
    from timm import layers
    from timm.models import mlp_mixer

    more = {} if layer is None else {"mlp_layer": getattr(layers, layer)}
    model = mlp_mixer.MlpMixer(
        num_classes=CLASSES, img_size=32, patch_size=8, num_blocks=1, embed_dim=8,
        mlp_ratio=ratio, block_layer=getattr(mlp_mixer, block), **more,
    )  # fmt: skip
    return seeing(model, 32)


@network("timm")
def mixer() -> Trial:
    return _mlp("MixerBlock", (0.5, 4.0))


@network("timm")
def resmlp() -> Trial:
    return _mlp("ResBlock", 4)


@network("timm")
def gmlp() -> Trial:
    return _mlp("SpatialGatingBlock", 4, "GatedMlp")


@network("timm")
def crossvit() -> Trial:
    from timm.models.crossvit import CrossVit

    model = CrossVit(
        img_size=32, img_scale=(1.0, 1.0), patch_size=(8, 16), num_classes=CLASSES,
        embed_dim=(8, 16), depth=((1, 1, 0),), num_heads=(2, 2), mlp_ratio=(2.0, 2.0, 1.0),
    )  # fmt: skip
    return seeing(model, 32)


@network("timm")
def volo() -> Trial:
    from timm.models.volo import VOLO

    model = VOLO(
        layers=(1, 1), img_size=32, num_classes=CLASSES, patch_size=8, stem_hidden_dim=8,
        embed_dims=(8, 16), num_heads=(1, 2), downsamples=(True, False),
        outlook_attention=(True, False), mlp_ratio=2.0, use_aux_head=False,
    )  # fmt: skip
    return seeing(model, 32)


@network("timm")
def poolformer() -> Trial:
    from timm.models.metaformer import MetaFormer

    model = MetaFormer(num_classes=CLASSES, depths=(1, 1), dims=(8, 16))
    return seeing(model, 32)


@network("timm")
def efficientformer() -> Trial:
    from timm.models.efficientformer import EfficientFormer

    model = EfficientFormer(
        depths=(1, 1, 1, 2), embed_dims=(8, 8, 8, 16), num_classes=CLASSES, num_vit=1,
    )  # fmt: skip
    return seeing(model, 224)


@network("timm")
def sequencer() -> Trial:
    from timm.models.sequencer import Sequencer2d

    model = Sequencer2d(
        num_classes=CLASSES, img_size=32, layers=(1, 1, 1, 1), patch_sizes=(8, 2, 1, 1),
        embed_dims=(8, 8, 8, 8), hidden_sizes=(4, 4, 4, 4), mlp_ratios=(2.0,) * 4,
    )  # fmt: skip
    return seeing(model, 32)
