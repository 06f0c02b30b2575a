"""What must be the same before and after: snapshots to compare."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor, nn


def global_state() -> dict:
    """Random states and torch's switches.

    Python's own random state is left out: the run-time type checks of the test run draw
    from it (plain_checks.py looks at it).
    """
    backends = torch.backends
    numpy_state = [np.asarray(part).tolist() for part in np.random.get_state()]  # noqa: NPY002
    return {
        "torch": torch.get_rng_state().tolist(),
        "cuda": [state.tolist() for state in _cuda_states()],
        "numpy": numpy_state,
        "attention fast path": backends.mha.get_fastpath_enabled(),
        "flash": backends.cuda.flash_sdp_enabled(),
        "memory efficient": backends.cuda.mem_efficient_sdp_enabled(),
        "math": backends.cuda.math_sdp_enabled(),
        "cudnn attention": backends.cuda.cudnn_sdp_enabled(),
        "cudnn": backends.cudnn.enabled,
        "mkldnn": torch._C._get_mkldnn_enabled(),
        "matrix products": backends.mkldnn.matmul.fp32_precision,
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "dtype": torch.get_default_dtype(),
    }


def model_state(model: nn.Module) -> dict:
    """Bytes of every tensor, gradients, flags, modes and hooks."""
    found: dict = {"names": [name for name, _ in model.named_modules()]}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found[name] = (
            _bytes(tensor),
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
            tensor.data_ptr(),
            None if tensor.grad is None else _bytes(tensor.grad),
        )
    for name, module in model.named_modules():
        kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
        hooks = [list(getattr(module, kind).items()) for kind in kinds]
        found[f"module {name}"] = (module.training, hooks, sorted(vars(module)))
    return found


def disturb() -> None:
    """Draw from every global generator."""
    torch.rand(3)
    random.random()
    np.random.rand(2)  # noqa: NPY002


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().tobytes()


def _cuda_states() -> list[Tensor]:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.get_rng_state_all()
    return []
