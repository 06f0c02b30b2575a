"""What the contract suite measures: networks, batch layouts, precisions, and the truth.

The truth of a network is computed by plain autograd in float64 on the CPU, all samples
in one batch, with nothing of flatgauge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count

import torch
import torch.nn.functional as F
from support.cases import Gpt, Recurrent, Residual, mlp
from support.untouched import model_state
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import flatgauge as fg

SAMPLES = 12
LAYOUTS = {"one": [12], "many": [3, 3, 3, 3], "uneven": [5, 1, 4, 2]}
# The dtype, the precision, and the relative error that this precision may make.
PRECISIONS = {
    "float32": (torch.float32, "ieee", 1e-4),
    "tf32": (torch.float32, "tf32", 5e-2),
    "float64": (torch.float64, "ieee", 1e-9),
}
# Units of a kinked activation stay this far from the kink, whatever the rounding.
MARGIN = 0.003


class Experts(nn.Module):
    """Each sample goes to one of two experts, by the sign of its first input."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([mlp(4, 4, 3), mlp(4, 3, 3)])

    def forward(self, x):
        out = x.new_zeros(len(x), 3)
        for expert, mine in zip(self.experts, (x[:, 0] > 0, x[:, 0] <= 0), strict=True):
            rows = mine.nonzero()[:, 0]
            out = out.index_add(0, rows, expert(x[rows]))
        return out


class Convolutional(nn.Module):
    """A convolution with BatchNorm, pooled by its mean."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3)
        self.act, self.head = nn.ReLU(), nn.Linear(3, 3)

    def forward(self, x):
        return self.head(self.act(self.norm(self.conv(x))).mean((2, 3)))


@dataclass(frozen=True)
class Kind:
    """How to build a network, and the shape of one sample (None: three tokens)."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...] | None
    classes: int = 3


NETWORKS = {
    "relu": Kind(lambda: mlp(4, 5, 4, 3), (4,)),
    "tanh": Kind(lambda: mlp(4, 6, 3, activation=nn.Tanh), (4,)),
    "cnn": Kind(Convolutional, (1, 5, 5)),
    "residual": Kind(lambda: Residual(width=2), (1, 3, 3)),
    "gpt": Kind(lambda: Gpt(vocabulary=5, length=3), None, classes=5),
    "lstm": Kind(Recurrent, (4, 3)),
    "experts": Kind(Experts, (4,)),
}


@cache
def network(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A model and its data: float64 on the CPU, with entries that float32 holds."""
    kind = NETWORKS[name]
    for seed in count():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = kind.build().eval()
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.running_mean.normal_(std=0.2)
                    module.running_var.uniform_(0.5, 2.0)
            if kind.shape is None:
                x = torch.randint(0, kind.classes, (SAMPLES, 3))
                y = torch.randint(0, kind.classes, (SAMPLES, 3))
            else:
                x = torch.randn(SAMPLES, *kind.shape).double()
                y = torch.arange(SAMPLES) % kind.classes
        model = model.double()
        if _distance_from_kinks(model, x) > MARGIN:
            return model, x, y
    raise AssertionError("unreachable")


def _distance_from_kinks(model: nn.Module, x: Tensor) -> float:
    """The smallest magnitude that a ReLU reads, as a share of the largest."""
    near: list[float] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func in (F.relu, torch.relu) and args[0].numel():
                sizes = args[0].detach().abs()
                near.append(float(sizes.min() / sizes.max()))
            return func(*args, **(kwargs or {}))

    with Watch():
        model(x)
    return min(near, default=1.0)


def rows_of(outputs: Tensor) -> Tensor:
    """Outputs with one row for each target."""
    return outputs.flatten(0, -2)


class Truth:
    """Dense derivatives of a model, in float64 by plain autograd."""

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor):
        self.x, self.y, self.model = x, y, model
        self.names = [name for name, _ in model.named_parameters()]
        self.leaves = list(model.parameters())
        self.point = self._flat(self.leaves).detach()
        with sdpa_kernel(SDPBackend.MATH):
            rows = rows_of(model(x))
            losses = F.cross_entropy(rows, y.flatten(), reduction="none")
            loss = losses.mean()
            gradient = self._slope(loss, create_graph=True)
            self.hessian = torch.stack([self._slope(one) for one in gradient])
            self.jacobian = torch.stack(
                [self._slope(one) for one in rows.flatten()]
            ).unflatten(0, rows.shape)
            slopes = torch.stack([self._slope(one) for one in losses])
        self.outputs, self.value = rows.detach(), float(loss)
        self.gradient = gradient.detach()
        self.fisher = slopes.T @ slopes / len(slopes)

    def _flat(self, tensors) -> Tensor:
        return torch.cat([tensor.reshape(-1) for tensor in tensors])

    def _slope(self, value: Tensor, create_graph: bool = False) -> Tensor:
        found = torch.autograd.grad(
            value,
            self.leaves,
            retain_graph=True,
            create_graph=create_graph,
            materialize_grads=True,
        )
        return self._flat(found)

    @cached_property
    def gauss_newton(self) -> Tensor:
        """(1/rows) Σ Jᵀ (diag p − p pᵀ) J."""
        p = self.outputs.softmax(1)
        curved = torch.diag_embed(p) - p[:, :, None] * p[:, None]
        return torch.einsum("rkn,rkl,rlm->nm", self.jacobian, curved, self.jacobian) / (
            len(p)
        )

    @cached_property
    def eigenvalues(self) -> Tensor:
        """Of the Hessian, ascending."""
        return torch.linalg.eigvalsh((self.hessian + self.hessian.T) / 2)

    def scaled(self, kind: str) -> Tensor:
        """The eigenvalues of S H S, with S the norms of tensors or the magnitudes."""
        sizes = [
            t.detach().abs() if kind == "node" else t.detach().norm().expand(t.shape)
            for t in self.leaves
        ]
        s = self._flat(sizes)
        return torch.linalg.eigvalsh(
            s[:, None] * (self.hessian + self.hessian.T) / 2 * s
        )

    def loss_at(self, change: Tensor) -> float:
        """The loss at the point plus a change."""
        moved, parts = {}, change.split([leaf.numel() for leaf in self.leaves])
        for name, leaf, part in zip(self.names, self.leaves, parts, strict=True):
            moved[name] = leaf.detach() + part.view_as(leaf)
        with torch.no_grad():
            outputs = torch.func.functional_call(self.model, moved, (self.x,))
        return float(F.cross_entropy(rows_of(outputs), self.y.flatten()))


@cache
def truth(name: str) -> Truth:
    """The truth of one network."""
    return Truth(*network(name))


@dataclass(frozen=True)
class Subject:
    """A network in one layout and precision on one device, as a user would have it."""

    network: str
    layout: str
    precision: str
    device: str

    @property
    def tolerance(self) -> float:
        """The relative error that the precision may make."""
        coarse = self.precision == "tf32" and self.device == "cpu"
        return PRECISIONS["float32" if coarse else self.precision][2]

    @property
    def truth(self) -> Truth:
        return truth(self.network)

    @property
    def reference(self) -> fg.Objective:
        """The same network in float64 on the CPU, in one batch."""
        return Subject(self.network, "one", "float64", "cpu").objective

    @property
    def objective(self) -> fg.Objective:
        return _objective(self)[0]

    def check_untouched(self) -> None:
        """The user's model is what it was when the objective was made."""
        _, model, before = _objective(self)
        assert model_state(model) == before, "the user's model was changed"


@cache
def _objective(subject: Subject) -> tuple[fg.Objective, nn.Module, dict]:
    model, x, y = network(subject.network)
    dtype, precision, _ = PRECISIONS[subject.precision]
    own = NETWORKS[subject.network].build()
    own.load_state_dict(model.state_dict())
    own = own.eval().to(subject.device, dtype)
    sizes = LAYOUTS[subject.layout]
    x = x.to(dtype) if x.is_floating_point() else x
    batches = list(zip(x.split(sizes), y.split(sizes), strict=True))
    before = model_state(own)
    return fg.Objective(own, batches, precision=precision), own, before
