"""What processes do together in tests: models, data, and functions of (rank, count, ...).

They run in other processes, which import this file by its name.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from support.cases import Residual
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import flatgauge as fg
import flatgauge.objective
import flatgauge.ranks
from flatgauge import vectors
from flatgauge.curvature import curvature_operator
from flatgauge.diagonals.output_probes import probe_diagonal
from flatgauge.ranks import ranks_of
from flatgauge.shards import joined

Batches = list[Any]
Problem = tuple[nn.Module, Batches, Any]


def _batches(inputs: Tensor, targets: Tensor, size: int) -> Batches:
    return list(zip(inputs.split(size), targets.split(size), strict=True))


def _mlp() -> Problem:
    model = nn.Sequential(
        nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)
    )
    return model, _batches(torch.randn(19, 5), torch.randint(0, 3, (19,)), 4), None


def _lenet() -> Problem:
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 2), nn.ReLU(),
        nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip
    inputs = torch.randn(13, 1, 8, 8)
    return model, _batches(inputs, torch.randint(0, 4, (13,)), 3), None


def _resnet() -> Problem:
    model = Residual().double()
    inputs = torch.randn(11, 1, 6, 6)
    # Other statistics than those of a new layer; in float64, since processes with other
    # numbers of threads add up in another order.
    model.train()(inputs.double())
    return model, _batches(inputs, torch.randint(0, 3, (11,)), 2), None


def _gpt2() -> Problem:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(
            n_layer=1, n_embd=4, n_head=2, vocab_size=7, n_positions=6,
            bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip
    data = []
    for rows in (2, 3, 1, 2):
        tokens = torch.randint(1, 7, (rows, 6))
        mask = torch.ones_like(tokens)
        mask[0, 4:] = 0
        labels = tokens.masked_fill(mask == 0, -100)
        data.append({"input_ids": tokens, "attention_mask": mask, "labels": labels})
    return model, data, None


def quartic(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of the user's own: a mean over samples."""
    return (outputs - targets).pow(4).sum(1).mean()


def _own_loss() -> Problem:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    return model, _batches(torch.randn(14, 4), torch.randn(14, 2).double(), 3), quartic


class Experts(nn.Module):
    """Two experts; which one a sample goes to is seen in its first input."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 5), nn.Linear(4, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        chosen = x[:, 0] > 0
        hidden = x.new_zeros(len(x), 5)
        hidden = hidden.index_add(0, chosen.nonzero()[:, 0], self.one(x[chosen]))
        hidden = hidden.index_add(0, (~chosen).nonzero()[:, 0], self.other(x[~chosen]))
        return self.head(hidden.relu())


def _experts() -> Problem:
    inputs = torch.randn(16, 4)
    # The first batches meet one expert only, the last ones the other.
    inputs = inputs[inputs[:, 0].sort().indices]
    return Experts(), _batches(inputs, torch.randint(0, 3, (16,)), 4), None


def _wider_gpt2() -> Problem:
    """More parameters than have a diagonal for each."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(
            n_layer=2, n_embd=16, n_head=2, vocab_size=50, n_positions=8,
            bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip
    tokens = torch.randint(1, 50, (8, 8))
    return model, [{"input_ids": t, "labels": t} for t in tokens.split(2)], None


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "mlp": _mlp,
    "lenet": _lenet,
    "resnet": _resnet,
    "gpt2": _gpt2,
    "own loss": _own_loss,
    "experts": _experts,
    "wider gpt2": _wider_gpt2,
}
SMALL = [name for name in PROBLEMS if "wider" not in name]


def problem(name: str) -> tuple[nn.Module, Batches, Any]:
    """A model, batches and a loss, the same in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, data, loss = PROBLEMS[name]()
    double = model.double().eval()
    return double, [_double(one) for one in data], loss or "cross-entropy"


def _double(batch: Any) -> Any:
    if isinstance(batch, dict):
        return batch
    return tuple(one.double() if one.is_floating_point() else one for one in batch)


def shares(data: Batches, rank: int, count: int, how: str) -> Batches:
    """The batches of one process: as many for each, more for later ones, or none first."""
    if how == "even":
        edges = [len(data) * i // count for i in range(count + 1)]
    elif how == "uneven":
        edges = [round(len(data) * (i / count) ** 2) for i in range(count + 1)]
    else:
        edges = [0, *(len(data) * i // (count - 1) for i in range(count))]
    return data[edges[rank] : edges[rank + 1]]


def report_of(found: fg.Report) -> dict[str, Any]:
    """What must not depend on the number of processes."""
    return {
        request: (one.value, one.uncertainty, one.status.name, one.message)
        for request, one in ((key, found[key]) for key in found)
    }


def measured(
    rank: int,
    count: int,
    name: str,
    how: str,
    requests: tuple[str, ...],
    options: dict,
    device: str | None = None,
) -> dict[str, Any]:
    """What is measured of a problem together; by one process alone if count is 0."""
    model, data, loss = problem(name)
    own = data if count == 0 else shares(data, rank, count, how)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = False if count == 0 else None
        objective = fg.Objective(model, own, loss, device=device, process_group=alone)
        own: list[fg.Report] = []
        fg.measure(objective, *requests, so_far=own.append, **options)
    # Each process's own numbers: what `measure` returns are the first one's.
    return report_of(own[-1])


def everything(rank: int, count: int, name: str, how: str) -> dict[str, Any]:
    """Other things that can be asked of an objective."""
    model, data, loss = problem(name)
    own = data if count == 0 else shares(data, rank, count, how)
    objective = fg.Objective(
        model, own, loss, process_group=False if count == 0 else None
    )
    halves = fg.measure(objective, "hessian-trace", resamples=2)["hessian-trace"]
    audit = fg.audit(objective, "fisher-rao-norm", elements=1)
    group = fg.symmetries(objective)
    twin = objective.with_model(objective.model())
    return {
        "value": objective.value(),
        "samples": objective.sample_count,
        "gradient": {n: t.tolist() for n, t in objective.gradient().items()},
        "data uncertainty": halves.data_uncertainty,
        "audit": str(audit),
        "dimension": group.dimension,
        "twin": twin.value(),
        "dense": fg.Hessian(objective).to_dense().tolist(),
        # Random for every batch, and the same ones.
        "fisher": fg.Fisher(objective, "true", samples=2).to_dense().tolist(),
        "drawn": {
            name: entries.tolist()
            for name, entries in probe_diagonal(objective, 4, seed=0)[0].items()
        },
    }


def made_room(rank: int, count: int) -> list[bool]:
    """Products and what is kept of them, where one process alone has recordings."""
    model, data, _ = problem("mlp")
    objective = fg.Objective(model, shares(data, rank, count, "even"))
    hessian = fg.Hessian(objective)
    vector = {name: torch.ones_like(t) for name, t in objective.parameters.items()}
    before = hessian @ vector
    hessian.plan.route.replays = rank == 0
    with patch.object(curvature_operator, "memory_budget", lambda *_: 0):
        hessian.make_room()
    hessian.plan.route.replays = False
    after = hessian @ vector
    return [torch.equal(before[name], after[name]) for name in vector]


def provenance(rank: int, count: int) -> fg.Report:
    """The whole report, which is the same on every rank."""
    model, data, _ = problem("mlp")
    objective = fg.Objective(model, shares(data, rank, count, "even"))
    return fg.measure(objective, "hessian-trace", progress=rank == 0, budget="60s")


def wrapped(rank: int, count: int) -> float:
    """A model under DDP, whose running statistics differ as they do after training."""
    model, data, _ = problem("resnet")
    if rank:
        model.norm1.running_mean += 1.0
    parallel = nn.parallel.DistributedDataParallel(model)
    return fg.Objective(parallel, shares(data, rank, count, "even")).value()


def padded(rank: int, count: int) -> list[str]:
    """What a DistributedSampler that repeats samples is told."""
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    model, data, _ = problem("mlp")
    whole = TensorDataset(*(torch.cat(part) for part in zip(*data, strict=True)))
    sampler = DistributedSampler(whole, shuffle=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fg.Objective(model, DataLoader(whole, 4, sampler=sampler))
    return [str(one.message) for one in said]


def other_model(rank: int, count: int) -> None:
    """One process has another weight."""
    model, data, _ = problem("mlp")
    if rank == 1:
        model[2].weight.data[0, 0] += 1e-9
    fg.Objective(model, shares(data, rank, count, "even"))


class Trouble(nn.Module):
    """Fails, or kills its process, once it is armed."""

    armed = ""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        if Trouble.armed == "fails":
            raise RuntimeError("a cosmic ray")
        if Trouble.armed == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return self.model(x)


def failing(rank: int, count: int, when: str) -> tuple[str, str]:
    """The forward of one process fails, at first or in the middle."""
    model, data, _ = problem("mlp")
    Trouble.armed = "fails" if rank and when == "at first" else ""
    try:
        objective = fg.Objective(Trouble(model), shares(data, rank, count, "even"))
        fg.measure(objective, "fisher-rao-norm")
        Trouble.armed = "fails" if rank else ""
        found = fg.measure(objective, "hessian-spectral-norm")["hessian-spectral-norm"]
    finally:
        Trouble.armed = ""
    return found.status.name, found.message


def still_there(rank: int, count: int) -> float:
    """That the group can still be used."""
    model, data, _ = problem("mlp")
    return fg.Objective(model, shares(data, rank, count, "even")).value()


def on_the_first_only(rank: int, count: int) -> None:
    """A call that the others do not make."""
    flatgauge.ranks.MEETING_SECONDS = 2.0
    if rank == 0:
        still_there(rank, count)


def out_of_step(rank: int, count: int) -> None:
    """A rank that does something else than the others."""
    ranks = ranks_of(None)
    if rank == 0:
        ranks.added(torch.ones(3))
    else:
        ranks.gathered("something")


def other_arguments(rank: int, count: int, what: str) -> None:
    """Ranks that ask for different things."""
    model, data, _ = problem("mlp")
    objective = fg.Objective(model, shares(data, rank, count, "even"))
    random = torch.Generator().manual_seed(rank)
    other = {n: torch.randn(t.shape, generator=random).double()
             for n, t in objective.parameters.items()}  # fmt: skip
    if what == "requests":
        fg.measure(objective, "hessian-trace" if rank else "fisher-rao-norm")
    elif what == "seed":
        fg.measure(objective, "hessian-trace", seed=rank)
    elif what == "vector":
        fg.Hessian(objective) @ other
    else:
        objective.at(other)


def alone_in_trouble(rank: int, count: int) -> tuple[str, str]:
    """One rank fails between two sums, where the others do not see it."""
    from flatgauge.solvers import krylov

    model, data, _ = problem("mlp")
    objective = fg.Objective(model, shares(data, rank, count, "even"))
    if rank:
        krylov.room_for = _no_room
    report = fg.measure(objective, "hessian-spectral-norm", "hessian-trace")
    return report["hessian-trace"].status.name, ""


def _no_room(operator: Any) -> Any:
    raise torch.OutOfMemoryError("no room")


def callback_fails(rank: int, count: int) -> None:
    """Writing fails on the first rank."""
    model, data, _ = problem("mlp")
    objective = fg.Objective(model, shares(data, rank, count, "even"))

    def keep(report: fg.Report) -> None:
        if rank == 0:
            raise OSError("the disk is full")

    fg.measure(objective, "hessian-trace", so_far=keep)


def not_picklable(rank: int, count: int) -> None:
    """Something that cannot be sent."""
    ranks_of(None).given_by(0, lambda: None)


class Inner(nn.Module):
    """Holds a DDP module."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def nested_ddp(rank: int, count: int) -> None:
    """DDP inside of a model."""
    model, data, _ = problem("mlp")
    inner = nn.parallel.DistributedDataParallel(model)
    fg.Objective(Inner(inner), shares(data, rank, count, "uneven"))


def dying(rank: int, count: int, folder: str) -> None:
    """A process that is killed in the middle; finished measures are kept as they come."""
    model, data, _ = problem("mlp")
    objective = fg.Objective(Trouble(model), shares(data, rank, count, "even"))

    def keep(report: fg.Report) -> None:
        report.to_json(f"{folder}/{rank}.json")
        if rank and len(report.measurements) == 2:
            Trouble.armed = "dies"

    fg.measure(objective, so_far=keep)


def basics(rank: int, count: int) -> dict[str, Any]:
    """What ranks do."""
    ranks = ranks_of(None)
    own = {"a": torch.full((2,), float(rank)), "b": (rank, 0.5 * rank, None)}
    return {
        "added": ranks.added(own),
        "gathered": ranks.gathered(rank),
        "agreed": ranks.agreed(rank),
        "apart": ranks.together(lambda: ranks.agreed(rank)),
        "given": ranks.given_by(count - 1, rank),
        "least": ranks.least(5 - rank),
        "big": float(ranks.added(torch.ones(2**20 + 1)).sum()),
        "none": ranks.added(torch.ones(0)).shape,
        "world": dist.get_world_size(),
    }


def raising(rank: int, count: int, who: tuple[int, ...]) -> None:
    """Some of them raise."""

    def work() -> None:
        if rank in who:
            raise fg.errors.DataError("there is no such file: look for it.")

    ranks_of(None).together(work)


def talking_apart(rank: int, count: int) -> None:
    """What each does by itself cannot be talked about."""
    ranks = ranks_of(None)
    ranks.together(lambda: ranks.gathered(rank))


def sharded_model(name: str, count: int) -> tuple[nn.Module, Batches, Any]:
    """A problem whose modules are sharded one by one, as for training."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, data, loss = problem(name)
    mesh = init_device_mesh("cpu", (count,))
    blocks = [
        block
        for module in model.modules()
        if isinstance(module, nn.ModuleList | nn.Sequential)
        for block in module
        if any(True for _ in block.parameters())
    ]
    for block in blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh), data, loss


def measured_on_shards(
    rank: int, count: int, name: str, how: str, fits: bool, requests: tuple[str, ...]
) -> dict[str, Any]:
    """`measured` with FSDP2, whether there is room for whole copies or not."""
    model, data, loss = sharded_model(name, count)
    before = [parameter.to_local().clone() for parameter in model.parameters()]
    room = flatgauge.objective.WHOLE_VECTORS
    try:
        if not fits:
            flatgauge.objective.WHOLE_VECTORS = 2**60
        objective = fg.Objective(model, shares(data, rank, count, how), loss)
    finally:
        flatgauge.objective.WHOLE_VECTORS = room
    assert objective.sharded
    assert objective.fits_whole == fits
    own: list[fg.Report] = []
    with NoPartNumbers():
        fg.measure(objective, *requests, so_far=own.append)
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter.to_local(), old)
        assert parameter.grad is None
    return report_of(own[-1])


class NoPartNumbers(TorchFunctionMode):
    """Refuses to read this process's part of a sum for the sum."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        reads = ("item", "tolist", "__float__", "__bool__", "__int__", "numpy")
        if getattr(func, "__name__", "") in reads and args:
            placements = getattr(args[0], "placements", ())
            assert not any(one.is_partial() for one in placements), "a part was read"
        return func(*args, **(kwargs or {}))


def trains_on(rank: int, count: int) -> tuple[float, float]:
    """The loss of a sharded model before a step of training and after it."""
    model, data, _ = sharded_model("mlp", count)
    own = shares(data, rank, count, "even")
    fg.measure(fg.Objective(model, own), "hessian-spectral-norm")
    inputs, targets = own[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(2):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses[0], losses[1]


def sharded_vectors(rank: int, count: int) -> dict[str, Any]:
    """What can be done with named vectors of sharded parameters, whole for comparison."""
    model, data, _ = sharded_model("mlp", count)
    objective = fg.Objective(model, shares(data, rank, count, "even"))
    hessian = fg.Hessian(objective)
    vector = vectors.gaussian(objective.parameters, vectors.generator(3))
    whole = {name: tensor.full_tensor() for name, tensor in vector.items()}
    image = hessian @ vector
    flat = vectors.ravel(vector)
    back = vectors.unravel(flat, objective.parameters)
    moved = objective.at(vectors.add(objective.parameters, vector, 0.1))
    return {
        "drawn": whole,
        "signs": {
            name: tensor.full_tensor()
            for name, tensor in vectors.rademacher(
                objective.parameters, vectors.generator(3)
            ).items()
        },
        "product": {name: tensor.full_tensor() for name, tensor in image.items()},
        "product with whole": {
            name: tensor.full_tensor() for name, tensor in (hessian @ whole).items()
        },
        "norm": float(vectors.norm(vector)),
        "dot": float(vectors.dot(vector, image)),
        "back": all(
            torch.equal(back[n].to_local(), vector[n].to_local()) for n in back
        ),
        "moved": moved.value(),
        "model": objective.model()(data[0][0]).detach(),
        "top": fg.top_eigenvalues(objective, k=3, tol=1e-8).values,
    }


def reduced_piece(rank: int, count: int) -> None:
    """A sum over the entries of one process, which is no sum over the vector."""
    model, data, _ = sharded_model("mlp", count)
    objective = fg.Objective(model, shares(data, rank, count, "even"))
    vectors.ravel(objective.parameters).sum()


def refused_on_shards(rank: int, count: int, what: str) -> None:
    """What sharded models cannot be, or be asked for."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    if what == "tensor parallel":
        model, data, _ = problem("mlp")
        mesh = init_device_mesh("cpu", (count,))
        plan = {"0": ColwiseParallel(), "2": ColwiseParallel()}
        parallelize_module(model, mesh, plan)
        fg.Objective(model, shares(data, rank, count, "even"))
        return
    model, data, _ = sharded_model("mlp", count)
    own = shares(data, rank, count, "uneven")
    if what == "alone":
        fg.Objective(model, own, process_group=False)
    elif what == "checkpoint":
        fg.Objective(model, own, checkpoint=True)
    elif what == "uneven":
        fg.Objective(model, own, memory=1000)
    elif what == "dense":
        fg.Hessian(fg.Objective(model, own)).to_dense()
    elif what == "route":
        fg.Hessian(fg.Objective(model, own), "reverse-over-forward")
    elif what == "after a forward":
        # The outermost module keeps its parameters together for a backward.
        whole = fully_shard(problem("mlp")[0])
        whole(data[0][0])
        fg.Objective(whole, own)
    elif what == "other vectors":
        objective = fg.Objective(model, own)
        other = {
            name: torch.full(tensor.shape, 1.0 + rank).double()
            for name, tensor in objective.parameters.items()
        }
        fg.Hessian(objective) @ other
    elif what == "whole":
        objective = fg.Objective(model, shares(data[:4], rank, count, "even"), memory=1)
        objective.whole()


def failing_on_shards(rank: int, count: int) -> tuple[str, str]:
    """The forward of one process fails while the others wait for its rows."""
    from torch.distributed.fsdp import fully_shard

    model, data, _ = problem("mlp")
    whole = Trouble(model)
    Trouble.armed = ""
    objective = fg.Objective(fully_shard(whole), shares(data, rank, count, "even"))
    fg.measure(objective, "spectral-norm-product")
    Trouble.armed = "fails" if rank else ""
    try:
        found = fg.measure(objective, "hessian-spectral-norm")["hessian-spectral-norm"]
    finally:
        Trouble.armed = ""
    return found.status.name, found.message


class Spectral(nn.Module):
    """Reads a weight as complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.irfft(
            torch.fft.rfft(x) * torch.view_as_complex(self.weight), n=6
        )


class Written(nn.Linear):
    """Writes to its weight past autograd."""

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data.clamp_(-0.2, 0.2)
        return super().forward(x)


class ReadOutside(nn.Module):
    """Uses the weight of another module, and a number made of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 6)
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        back = nn.functional.linear(torch.tanh(self.head(hidden)), self.first.weight)
        return back / (1 + self.first.weight.detach().norm().item())


ODD: dict[str, Callable[[], nn.Module]] = {
    "complex": lambda: nn.Sequential(nn.Linear(5, 6), Spectral(), nn.Linear(6, 3)),
    "written": lambda: nn.Sequential(Written(5, 6), nn.Tanh(), Written(6, 3)),
    "read outside": ReadOutside,
}


def odd_model(rank: int, count: int, name: str) -> dict[str, Any]:
    """Derivatives of a model that uses its weights in an unusual way."""
    from torch.distributed.fsdp import fully_shard

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ODD[name]().double()
    _, data, _ = problem("mlp")
    own = data
    if count:
        fully_shard(model)
        own = shares(data, rank, count, "uneven")
    objective = fg.Objective(
        model,
        own,
        derivatives="as given",
        process_group=None if count else False,
    )
    vector = vectors.gaussian(objective.parameters, vectors.generator(1))
    image = fg.Hessian(objective) @ vector
    squares = fg.gauss_newton_diagonal(objective).values
    return {
        "gradient": {n: joined(t) for n, t in objective.gradient().items()},
        "product": {n: joined(t) for n, t in image.items()},
        "diagonal": {n: joined(t) for n, t in squares.items()},
    }
