"""The networks at the size people use: from torchvision and transformers, untrained."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.networks import Network, images, tokens


class Logits(nn.Module):
    """A causal language model as a map from tokens to logits, [tokens, vocabulary]."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, sequences: Tensor) -> Tensor:
        found: Any = self.model(input_ids=sequences, use_cache=False)
        return found.logits.flatten(0, 1)


def resnet50() -> nn.Module:
    from torchvision.models import resnet50 as build

    return build(weights=None)


def vit() -> nn.Module:
    from torchvision.models import vit_b_16

    model = vit_b_16(weights=None)
    # It begins with zeros, whose outputs say nothing about the rest.
    model.heads.head.reset_parameters()
    return model


def gpt2(**sizes: Any) -> nn.Module:
    """GPT-2 124M, or that of other sizes, without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        attn_implementation="eager",
        bos_token_id=None,
        eos_token_id=None,
        **sizes,
    )
    return Logits(GPT2LMHeadModel(config))


def llama() -> nn.Module:
    """22 layers of width 2048: 1.1 billion parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32_000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        attn_implementation="eager",
    )
    return Logits(LlamaForCausalLM(config))


def tiny_gpt2() -> nn.Module:
    return gpt2(n_layer=1, n_embd=16, n_head=2, vocab_size=60, n_positions=8)


def tiny_convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(36, 5),
    )


def _four_batches(name: str, build: Any, draw: Any, size: int) -> Network:
    return Network(name, build, draw, (4 * size, size), (4 * size, size))


_pictures = partial(images, 3, 224, 224, classes=1000)
SCALED = {
    "resnet50": _four_batches("ResNet-50", resnet50, _pictures(), 64),
    "vit": _four_batches("ViT-B/16", vit, _pictures(), 32),
    "gpt2": _four_batches("GPT-2 124M", gpt2, tokens(512, 50_257), 8),
    "llama": _four_batches("Llama 1.1B", llama, tokens(512, 32_000), 2),
}
TINY = {
    "convolutions": _four_batches(
        "tiny convolutions", tiny_convolutions, images(3, 8, 8, classes=5), 4
    ),
    "gpt2": _four_batches("tiny GPT-2", tiny_gpt2, tokens(8, 60), 2),
}


def built(network: Network, device: str) -> nn.Module:
    """The network in eval mode, drawn where it will live: a billion draws take time."""
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.device(device):
        torch.manual_seed(0)
        return network.build().eval()
