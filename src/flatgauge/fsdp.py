"""What FSDP2 (`torch.distributed.fsdp.fully_shard`) made of a user's model."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from flatgauge.errors import ModelError
from flatgauge.ranks import Ranks
from flatgauge.shards import is_sharded

ADVICE = (
    "only parameters that FSDP2 cuts into rows, over a mesh of one dimension, can be "
    "measured; apply fully_shard alone."
)


def check_not_flattened(model: nn.Module) -> None:
    """Refuse a model of torch's first FSDP, which puts parameters into flat ones.

    Raises:
        ModelError: naming the module.
    """
    # By name: to import the class takes longer than to measure a small model.
    for name, module in model.named_modules():
        if type(module).__name__ == "FullyShardedDataParallel":
            what = f"'{name}' in model=" if name else "model="
            raise ModelError(
                f"{what} is FullyShardedDataParallel, which hides parameters in flat ones: "
                "use fully_shard (FSDP2), whose models are measured as they are, or load "
                "the full state dict into a plain model on every process."
            )


def mesh_of(model: nn.Module, ranks: Ranks) -> Any | None:
    """The mesh that a model's parameters are cut along, None if they are whole.

    Raises:
        ModelError: if they are cut in another way than FSDP2 cuts them, or over other
            processes than those that measure.
    """
    found: Any = None
    for name, parameter in model.named_parameters():
        if not is_sharded(parameter):
            continue
        from torch.distributed.tensor import Shard

        mesh, placements = parameter.device_mesh, tuple(parameter.placements)
        if placements != (Shard(0),):
            raise ModelError(
                f"the parameter '{name}' is placed as {placements} (by a tensor-parallel "
                f"plan, or FSDP over a mesh of two dimensions?): {ADVICE}"
            )
        if (mesh.size(), mesh.get_local_rank()) != (ranks.count, ranks.rank):
            raise ModelError(
                f"the parameter '{name}' is sharded over {mesh.size()} processes, but "
                f"{ranks.count} measure: pass process_group= with those of the mesh."
            )
        found = found or mesh
    for name, module in model.named_modules() if found is not None else ():
        for hook in module._forward_pre_hooks.values():
            if _source(hook).startswith("torch.distributed.tensor"):
                raise ModelError(
                    f"a tensor-parallel plan deals out the inputs of '{name}': {ADVICE}"
                )
    return found


def _source(hook: Any) -> str:
    """The module that a hook was written in."""
    return getattr(getattr(hook, "func", hook), "__module__", None) or ""


def check_resharded(model: nn.Module) -> None:
    """Refuse a model whose parameters FSDP2 has put together for a forward.

    What it left there may have been rounded for mixed precision.

    Raises:
        ModelError: naming the module.
    """
    for name, module in model.named_modules():
        if not _is_fsdp(module):
            continue
        state: Any = module._get_fsdp_state()  # type: ignore[operator]
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            # Up to torch 2.12 there is one, or none.
            groups = [getattr(state, "_fsdp_param_group", None)]
        if any(group is not None and not group.is_sharded for group in groups):
            what = f"'{name}' in model=" if name else "model="
            raise ModelError(
                f"{what} is not resharded after its last forward: call its reshard() first."
            )


def _is_fsdp(module: nn.Module) -> bool:
    return any(one.__name__ == "FSDPModule" for one in type(module).__mro__)


def unsharded_twins(model: nn.Module) -> dict[int, Any]:
    """For copy.deepcopy: what FSDP2 made of modules, as they were before.

    It changes their class and adds hooks, to those around and to those inside.

    Raises:
        ModelError: if they cannot be copied.
    """
    changed = [
        module
        for module in model.modules()
        if _is_fsdp(module)
        or any(_has_fsdp_hooks(*one) for one in vars(module).items())
    ]
    # FSDP2's own class comes first, then the one that marks it, then the user's.
    memo: dict[int, Any] = {
        id(one): object.__new__(type(one).__mro__[2] if _is_fsdp(one) else type(one))
        for one in changed
    }
    twins = dict(memo)
    for module in changed:
        own = {
            key: _without_fsdp(key, value)
            for key, value in vars(module).items()
            if "composable_api" not in key
        }
        try:
            vars(twins[id(module)]).update(copy.deepcopy(own, memo))
        except RuntimeError as error:
            raise ModelError(
                f"the sharded model could not be copied ({error}): take cached weights out "
                "of it, as torch.nn.utils.weight_norm leaves them."
            ) from error
    return memo


def _has_fsdp_hooks(key: str, value: Any) -> bool:
    if not key.endswith("_hooks") or not isinstance(value, dict):
        return False
    return any(map(_is_of_fsdp, value.values()))


def _is_of_fsdp(hook: Any) -> bool:
    owner = getattr(hook, "__self__", hook)
    return ".fsdp" in (type(owner).__module__ or "") or ".fsdp" in _source(hook)


def _without_fsdp(key: str, value: Any) -> Any:
    """A dictionary of hooks without those of FSDP2; anything else as it is."""
    if not _has_fsdp_hooks(key, value):
        return value
    kept = type(value)()
    kept.update({key: hook for key, hook in value.items() if not _is_of_fsdp(hook)})
    return kept
