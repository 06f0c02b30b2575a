"""Networks that make pictures or maps of them: diffusers and segmentation models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from zoo.registry import CLASSES, Trial, awakened, labels, network

SAMPLES = 4


def _denoise(model: nn.Module, batch: Any) -> Tensor:
    (noisy, times), _ = batch
    return model(noisy, times).sample


@network("others")
def diffusers_unet() -> Trial:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, layers_per_block=1,
        block_out_channels=(4, 8), norm_num_groups=2, attention_head_dim=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    noisy = torch.randn(SAMPLES, 1, 8, 8)
    inputs = (noisy, torch.arange(SAMPLES))
    return Trial(awakened(model), inputs, torch.randn_like(noisy), "mse", _denoise)


@network("others")
def diffusers_unet_conditional() -> Trial:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=8, in_channels=1, out_channels=1, layers_per_block=1,
        block_out_channels=(4, 8), norm_num_groups=2, cross_attention_dim=4,
        attention_head_dim=2, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip

    def forward(model: nn.Module, batch: Any) -> Tensor:
        (noisy, times, text), _ = batch
        return model(noisy, times, text).sample

    noisy = torch.randn(SAMPLES, 1, 8, 8)
    inputs = (noisy, torch.arange(SAMPLES), torch.randn(SAMPLES, 3, 4))
    return Trial(awakened(model), inputs, torch.randn_like(noisy), "mse", forward)


@network("others")
def diffusers_dit() -> Trial:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=4, in_channels=1, out_channels=1,
        num_layers=1, sample_size=4, patch_size=2, num_embeds_ada_norm=5,
    )  # fmt: skip

    def forward(model: nn.Module, batch: Any) -> Tensor:
        (noisy, times, classes), _ = batch
        return model(noisy, timestep=times, class_labels=classes).sample

    noisy = torch.randn(SAMPLES, 1, 4, 4)
    inputs = (noisy, torch.arange(SAMPLES), labels(SAMPLES))
    return Trial(awakened(model), inputs, torch.randn_like(noisy), "mse", forward)


@network("others")
def diffusers_vae() -> Trial:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        in_channels=1, out_channels=1, latent_channels=2, layers_per_block=1,
        block_out_channels=(4, 8), norm_num_groups=2, sample_size=8,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip

    def forward(model: nn.Module, batch: Any) -> Tensor:
        return model.decode(model.encode(batch[0]).latent_dist.mean).sample

    pictures = torch.randn(SAMPLES, 1, 8, 8)
    return Trial(awakened(model), pictures, pictures.clone(), "mse", forward)


@network("others")
def segmentation_unet() -> Trial:
    import segmentation_models_pytorch as smp

    model = smp.Unet(
        "timm-mobilenetv3_small_minimal_100", encoder_weights=None, classes=CLASSES,
        decoder_channels=(8, 8, 4, 4, 4),
    )  # fmt: skip
    return _segmented(model)


@network("others")
def smp_unet_resnet18() -> Trial:
    import segmentation_models_pytorch as smp

    return _segmented(
        smp.Unet(
            "resnet18",
            encoder_weights=None,
            encoder_depth=3,
            decoder_channels=(8, 8, 4),
            classes=CLASSES,
        )
    )


def _segmented(model: nn.Module) -> Trial:
    def forward(model: nn.Module, batch: Any) -> Tensor:
        return model(batch[0]).permute(0, 2, 3, 1).flatten(0, 2)

    pictures = torch.randn(2, 3, 32, 32)
    return Trial(awakened(model), pictures, labels(2 * 32 * 32), forward=forward)
