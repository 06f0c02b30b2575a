"""What users do to a plain network: wrap, compile, quantize, checkpoint, reparametrize."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from zoo.others_plain import (
    INPUTS,
    SAMPLES,
    WIDTH,
    chain,
    classified,
    features,
)
from zoo.registry import CLASSES, Trial, labels, network


def plain() -> nn.Sequential:
    return chain(nn.ReLU())


@network("others")
def torch_transformer_encoder() -> Trial:
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    model = nn.Sequential(
        nn.Linear(INPUTS, 8), encoder, nn.Flatten(), nn.Linear(24, CLASSES)
    )
    return classified(model, features(3, INPUTS))


class Attended(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, kdim=4, vdim=4, batch_first=True)
        self.query, self.head = nn.Linear(INPUTS, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(self.query(x), x, x)[0].mean(1))


@network("others")
def multihead_attention() -> Trial:
    return classified(Attended(), features(3, INPUTS))


@network("others")
def torch_compile() -> Trial:
    return classified(torch.compile(plain(), backend="aot_eager"))


@network("others")
def torch_compile_inductor() -> Trial:
    return classified(torch.compile(plain()))


@network("others", refused="a ScriptModule cannot be copied and differentiated twice")
def jit_script() -> Trial:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return classified(torch.jit.script(plain()))


@network("others", refused="a ScriptModule cannot be copied and differentiated twice")
def jit_trace() -> Trial:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return classified(torch.jit.trace(plain(), features()))


@network("others")
def data_parallel() -> Trial:
    return classified(nn.DataParallel(plain()))


@network("others", refused="no floating-point parameters")
def quantized_dynamic() -> Trial:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return classified(torch.ao.quantization.quantize_dynamic(plain(), {nn.Linear}))


@network("others", refused="rounding to a grid has a backward pass of its own")
def qat_fake_quant() -> Trial:
    model = plain().train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
        model = torch.ao.quantization.prepare_qat(model)
        model(features())
    return classified(model.eval())


@network("others", refused="dropout in training mode is random")
def dropout_train() -> Trial:
    return classified(chain(nn.ReLU(), nn.Dropout(0.5)), mode="train")


@network("others", refused="its parameters are complex")
def complex_params() -> Trial:
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(INPUTS, WIDTH, dtype=torch.complex64))
            self.head = nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head((x.to(self.w.dtype) @ self.w).abs())

    return classified(Turned())


class Recomputed(nn.Module):
    def __init__(self, reentrant: bool):
        super().__init__()
        self.first, self.last = nn.Linear(INPUTS, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.middle = nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.reentrant, self.recomputes = reentrant, True

    def forward(self, x: Tensor) -> Tensor:
        if not self.recomputes:
            return self.last(self.middle(self.first(x)))
        h = checkpoint(self.middle, self.first(x), use_reentrant=self.reentrant)
        return self.last(h)


@network("others")
def checkpoint_reentrant() -> Trial:
    return classified(Recomputed(True))


@network("others")
def checkpoint_nonreentrant() -> Trial:
    return classified(Recomputed(False))


def reparametrized(wrap: Any) -> Trial:
    model = plain()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for index in (0, 2):
            wrap(model[index])
    return classified(model)


@network("others")
def weight_norm_new() -> Trial:
    return reparametrized(parametrizations.weight_norm)


@network("others")
def weight_norm_old() -> Trial:
    return reparametrized(nn.utils.weight_norm)


@network("others")
def weight_norm_grouped() -> Trial:
    convolution = parametrizations.weight_norm(nn.Conv1d(4, 4, 3, groups=2), dim=2)
    model = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES))
    return classified(model, features(4, 6))


@network("others")
def spectral_norm_new() -> Trial:
    return reparametrized(parametrizations.spectral_norm)


@network("others")
def spectral_norm_old() -> Trial:
    return reparametrized(nn.utils.spectral_norm)


@network("others")
def orthogonal_param() -> Trial:
    model = plain()
    parametrizations.orthogonal(model[0])
    return classified(model)


@network("others")
def pruned() -> Trial:
    from torch.nn.utils import prune

    model = plain()
    prune.l1_unstructured(model[0], "weight", 0.3)
    return classified(model)


@network("others")
def weight_tied() -> Trial:
    class Tied(nn.Module):
        """An autoencoder whose decoder is its encoder's transpose."""

        def __init__(self):
            super().__init__()
            self.encode = nn.Linear(INPUTS, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.encode(x)) @ self.encode.weight

    inputs = features()
    return Trial(Tied(), inputs, inputs.clone(), "mse")


class Fixed(nn.Module):
    """z = f(z, x), iterated until it stands still: as long as the data say."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(WIDTH, WIDTH), nn.Linear(INPUTS, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)
        with torch.no_grad():
            self.inner.weight.mul_(0.2)

    def forward(self, x: Tensor) -> Tensor:
        z, base = torch.zeros(len(x), WIDTH, dtype=x.dtype), self.outer(x)
        for _ in range(50):
            following = torch.relu(self.inner(z) + base)
            done = (following - z).norm() < 1e-3
            z = following
            if done:
                break
        return self.head(z)


@network("others")
def deq_while_loop() -> Trial:
    return classified(Fixed())


class Pinned(nn.Module):
    """u(x), and what u'' + u misses."""

    def __init__(self):
        super().__init__()
        self.u = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))


@network("others")
def pinn() -> Trial:
    def forward(model: nn.Module, batch: Any) -> Tensor:
        x = batch[0].detach().requires_grad_()
        u = model.u(x)
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
        return bend + u

    return Trial(Pinned(), features(1), torch.zeros(SAMPLES, 1), "mse", forward)


@network("others")
def pinn_functional() -> Trial:
    def forward(model: nn.Module, batch: Any) -> Tensor:
        slope = torch.func.grad(lambda x: model.u(x[None])[0, 0])
        bend = torch.func.vmap(torch.func.jacfwd(slope))(batch[0])
        return bend[:, 0] + model.u(batch[0])

    return Trial(Pinned(), features(1), torch.zeros(SAMPLES, 1), "mse", forward)


class Written(nn.Module):
    """Slices and views written in place."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(INPUTS, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), WIDTH, dtype=x.dtype)
        h[:, :4] = self.one(x).relu()[:, :4]
        h.view(-1).mul_(1.5)
        return self.two(h)


@network("others")
def in_place() -> Trial:
    return classified(Written())


@network("others")
def lightning_module() -> Trial:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = plain()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

    return classified(Module())


@network("others")
def contrastive_pairs() -> Trial:
    """Samples are each other's classes."""

    def info_nce(found: Tensor, targets: Tensor) -> Tensor:
        unit = F.normalize(found, dim=1)
        return F.cross_entropy(unit @ unit.roll(1, 0).T / 0.5, targets)

    return Trial(plain(), features(), torch.arange(SAMPLES), info_nce)


@network("others")
def one_dimensional_cnn() -> Trial:
    model = nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.ELU(), nn.Conv1d(4, 4, 3, groups=4), nn.SiLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, CLASSES),
    )  # fmt: skip
    return Trial(model, features(2, 8), labels(SAMPLES))
