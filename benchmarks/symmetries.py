"""How much longer than `torch.export` does the discovery of symmetries take?

Run as `python -m benchmarks.symmetries`. The final test on a rescaled copy is left out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from flatgauge.symmetry import discover
from flatgauge.symmetry.capture import read
from flatgauge.symmetry.graph import Example

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import models


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=8000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12,
        num_attention_heads=12, num_key_value_heads=4, use_cache=False,
        tie_word_embeddings=False,
    )  # fmt: skip
    return LlamaForCausalLM(config)


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...], dict[str, Any]]] = {
    "ResNet-50": (models.resnet50, (torch.randn(2, 3, 64, 64),), {}),
    "ViT-B/16": (models.vit_b16, (torch.randn(2, 3, 224, 224),), {}),
    "Llama 88M": (llama, (), {"input_ids": torch.arange(16).reshape(2, 8)}),
}


def logits(result: Any) -> Any:
    return result["logits"] if isinstance(result, Mapping) else result


def main() -> None:
    torch.set_num_threads(1)
    small = nn.Linear(2, 2)
    torch.export.export(small, (torch.ones(1, 2),), strict=False)  # imports
    header = f"{'model':<12}{'export':>9}{'discover':>10}{'extra':>8}{'exact':>8}"
    print(f"{header}{'up to eps':>11}   (CPU seconds, best of 3)")
    for name, (build, args, kwargs) in CASES.items():
        model = build().eval()
        export = discovery = float("inf")
        for _ in range(3):
            start = time.process_time()
            with torch.no_grad():
                torch.export.export(model, args, kwargs, strict=False)
            middle = time.process_time()
            reading = read(model, Example(args, kwargs, logits))
            group = discover(reading, strict=True, batchnorm="joint")
            stop = time.process_time()
            export = min(export, middle - start)
            discovery = min(discovery, stop - middle)
        print(
            f"{name:<12}{export:>9.2f}{discovery:>10.2f}{discovery - export:>8.2f}"
            f"{group.dimension:>8}{group.approximate_dimension:>11}"
        )


if __name__ == "__main__":
    main()
