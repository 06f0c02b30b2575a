"""Layer by layer: what (17) and the spectral norms should be where a layer is plain."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import flatgauge as fg
from fuzz.parts import Use, chunks, whole
from fuzz.truth import Answer, Truth
from zoo.reference import Reference

# Layers that are several in one, or used in part, as only the network knows.
NOT_PLAIN = (
    "rel_embeddings",
    "qkv",
    "query_key_value",
    "c_attn",
    "in_proj",
    "x_proj",
    "kv_a",
    "kv_b",
)


def plain_layers(reference: Reference) -> list[str]:
    """Weights of linear layers, convolutions without groups and embeddings, used once."""
    model = reference.model
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    alone = {name for name, _ in model.named_parameters()}
    shared = {
        id(tensor)
        for name, tensor in model.named_parameters(remove_duplicate=False)
        if name not in alone
    }
    found = []
    for name in reference.params:
        owner, _, own = name.rpartition(".")
        if own != "weight" or any(word in owner for word in NOT_PLAIN):
            continue
        module = model.get_submodule(owner)
        kinds = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d)
        if type(module) in kinds and getattr(module, "groups", 1) == 1:
            found.append(name)
    return [
        n
        for n in found
        if names.count(n) == 1 and id(reference.params[n]) not in shared
    ]


def sharpness_of(
    found: fg.Measurement, name: str, truth: Truth, loss: str
) -> tuple[float, Answer]:
    """The part of one layer in (17): as one matrix, or as two or three above each other."""
    use = Use(name, (whole, chunks(2), chunks(3)))
    answers = truth.sharpness(loss, [name], {name: use})
    return float(found.details["layers"][name]), answers


def norm_of(found: fg.Measurement, name: str, weight: Tensor) -> tuple[float, Answer]:
    """The spectral norm of one layer, kernel positions beside each other."""
    got = float(found.details["layers"][name]["spectral"])
    ways = (weight.flatten(1), weight.transpose(0, 1).flatten(1))
    return got, Answer([float(torch.linalg.matrix_norm(one, 2)) for one in ways])
