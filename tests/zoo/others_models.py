"""Networks of other packages: peft, graphs, flows, state spaces, torchvision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.registry import CLASSES, Trial, awakened, labels, network
from zoo.transformers_sizes import GPT, GROUPED, made, tokens

SAMPLES = 4


def _adapted(
    cls: str, options: dict[str, Any], modules: list[str], **more: Any
) -> Trial:
    from peft import LoraConfig, get_peft_model

    chosen = LoraConfig(r=2, lora_alpha=4, target_modules=modules, **more)
    base = made(cls, {"use_cache": False, **options})
    words = tokens()
    model = awakened(get_peft_model(base, chosen))
    return Trial(model, {"input_ids": words}, words.clone(), shifted=True)


@network("others")
def lora_gpt2() -> Trial:
    return _adapted("GPT2LMHeadModel", GPT, ["c_attn", "c_proj"])


@network("others")
def lora_llama() -> Trial:
    return _adapted("LlamaForCausalLM", GROUPED, ["q_proj", "v_proj"])


@network("others")
def dora_llama() -> Trial:
    """Its norms are detached, so that gradients are not the loss's."""
    adapted = _adapted("LlamaForCausalLM", GROUPED, ["q_proj", "v_proj"], use_dora=True)
    return replace(adapted, derivatives="as given")


@network("others")
def ia3_gpt2() -> Trial:
    from peft import IA3Config, get_peft_model

    base = made("GPT2LMHeadModel", {"use_cache": False, **GPT})
    chosen = IA3Config(
        target_modules=["c_attn", "c_proj"], feedforward_modules=["c_proj"]
    )
    words = tokens()
    model = awakened(get_peft_model(base, chosen))
    return Trial(model, {"input_ids": words}, words.clone(), shifted=True)


class Graph(nn.Module):
    """Convolutions on a graph, and a class for each node."""

    def __init__(self, one: nn.Module, two: nn.Module):
        super().__init__()
        self.one, self.two = one, two

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.two(F.relu(self.one(x, edges)), edges)


def _nodes(one: nn.Module, two: nn.Module) -> Trial:
    """One graph is one batch: its nodes cannot be split into samples of inputs."""
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])

    def forward(model: nn.Module, batch: Any) -> Tensor:
        return model(batch[0], edges)

    return Trial(
        awakened(Graph(one, two)), torch.randn(6, 4), labels(6), forward=forward
    )


@network("others")
def gnn_gcn() -> Trial:
    from torch_geometric.nn import GCNConv

    return _nodes(GCNConv(4, 6), GCNConv(6, CLASSES))


@network("others")
def gnn_gat() -> Trial:
    from torch_geometric.nn import GATConv

    return _nodes(GATConv(4, 3, heads=2), GATConv(6, CLASSES))


@network("others")
def gnn_sage_gin_nodes() -> Trial:
    from torch_geometric.nn import GINConv, SAGEConv

    inner = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, CLASSES))
    return _nodes(SAGEConv(4, 6), GINConv(inner))


class WholeGraphs(nn.Module):
    def __init__(self):
        super().__init__()
        from torch_geometric.nn import GraphConv

        self.one, self.two = GraphConv(3, 6), GraphConv(6, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor, edges: Tensor, graph: Tensor) -> Tensor:
        from torch_geometric.nn import global_mean_pool

        h = F.relu(self.two(F.relu(self.one(x, edges)), edges))
        return self.head(global_mean_pool(h, graph, 4))


@network("others")
def gnn_pyg() -> Trial:
    """Graphs of several sizes in one batch, and a class for each."""
    sizes = torch.tensor([3, 2, 4, 3])
    graph = torch.repeat_interleave(torch.arange(4), sizes)
    starts = torch.cumsum(sizes, 0) - sizes
    rings = [
        torch.stack([torch.arange(n), (torch.arange(n) + 1) % n]) + s
        for n, s in zip(sizes.tolist(), starts.tolist(), strict=True)
    ]
    inputs = (torch.randn(int(sizes.sum()), 3), torch.cat(rings, 1), graph)
    return Trial(awakened(WholeGraphs()), inputs, labels(4))


@network("others")
def nflows_maf_rqs() -> Trial:
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.transforms.autoregressive import (
        MaskedPiecewiseRationalQuadraticAutoregressiveTransform as Splines,
    )
    from nflows.transforms.base import CompositeTransform

    parts = [
        Splines(features=3, hidden_features=6, num_bins=3, tails="linear", tail_bound=3.0,
                num_blocks=1)
        for _ in range(2)
    ]  # fmt: skip
    model = Flow(CompositeTransform(parts), StandardNormal([3]))

    def forward(model: nn.Module, batch: Any) -> Tensor:
        return model.log_prob(batch[0])

    return Trial(
        model, torch.randn(8, 3), torch.zeros(8), lambda f, y: -(f - y), forward
    )


@network("others")
def neural_ode_rk4() -> Trial:
    class Flowing(nn.Module):
        def __init__(self):
            super().__init__()
            self.field = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
            self.head = nn.Linear(4, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            from torchdiffeq import odeint

            times = torch.linspace(0, 1, 3, dtype=x.dtype)
            return self.head(
                odeint(lambda t, h: self.field(h), x, times, method="rk4")[-1]
            )

    return Trial(Flowing(), torch.randn(8, 4), labels(8))


def _mambapy(**more: Any) -> Trial:
    from mambapy.mamba import Mamba, MambaConfig

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            chosen = MambaConfig(
                d_model=6, n_layers=1, d_state=3, expand_factor=1, **more
            )
            self.body = Mamba(chosen)
            self.head = nn.Linear(6, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x).mean(1))

    return Trial(awakened(Classifier()), torch.randn(SAMPLES, 4, 6), labels(SAMPLES))


@network("others", refused="the backward pass of its scan writes in place")
def mambapy() -> Trial:
    return _mambapy()


@network("others")
def mambapy_sequential() -> Trial:
    return _mambapy(pscan=False)


def _x_transformer(**more: Any) -> Trial:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=16, depth=1, heads=2, attn_dim_head=8, **more)
    model = TransformerWrapper(num_tokens=13, max_seq_len=8, attn_layers=layers)
    words = tokens()
    return Trial(awakened(model), words[:, :-1], words[:, 1:])


@network("others")
def x_transformers_alibi_relu2() -> Trial:
    return _x_transformer(alibi_pos_bias=True, alibi_num_heads=1, ff_relu_squared=True)


@network("others")
def x_transformers_qknorm_glu() -> Trial:
    return _x_transformer(attn_qk_norm=True, ff_glu=True, ff_mult=2)


@network("others")
def torchvision_resnet18_small() -> Trial:
    from torchvision.models import resnet18

    return Trial(
        awakened(resnet18(num_classes=CLASSES)), torch.randn(2, 3, 32, 32), labels(2)
    )


@network("others")
def torchvision_vit() -> Trial:
    from torchvision.models import VisionTransformer

    model = VisionTransformer(
        image_size=8, patch_size=4, num_layers=1, num_heads=2, hidden_dim=8, mlp_dim=12,
        num_classes=CLASSES,
    )  # fmt: skip
    return Trial(awakened(model), torch.randn(SAMPLES, 3, 8, 8), labels(SAMPLES))
