"""Which of a checkpoint's tensors are the model's, under whatever names they lie there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

# What torch puts into the names of modules that it wraps.
WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
# Optimizers keep tensors of the parameters' own shapes, some under their own names.
OPTIMIZERS = "optim"


class Found(NamedTuple):
    """A tensor of a checkpoint, and the path of the mapping that holds it."""

    tensor: Tensor
    inside: str


def plain_name(name: str) -> str:
    """A name without what torch's wrappers put into it.

    >>> plain_name("net._orig_mod.0.weight")
    'net.0.weight'
    """
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def flattened(content: Any, key: str | None = None) -> dict[str, Found]:
    """Every tensor by its path through the mappings, joined with dots.

    Args:
        content: what was read.
        key: take only what lies below this path; else all but an optimizer's.
    """
    found = dict(_tensors(content, ""))
    if key is not None:
        below = plain_name(key) + "."
        return {name: one for name, one in found.items() if name.startswith(below)}
    return {
        name: one
        for name, one in found.items()
        if OPTIMIZERS not in name.partition(".")[0].lower()
    }


def _tensors(content: Any, path: str) -> Iterator[tuple[str, Found]]:
    if not isinstance(content, Mapping):
        return
    for key, value in content.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, Tensor):
            yield plain_name(name), Found(value, path)
        yield from _tensors(value, name)


def prefixes(found: Iterable[str], own: Sequence[str]) -> list[tuple[str, int]]:
    """What stands before the model's names, with the number that it stands before.

    Those that most follow come first.

    >>> prefixes(["model.0.weight", "model.0.bias", "loss.weight"], ["0.weight", "0.bias"])
    [('model.', 2)]
    """
    wanted = set(own)
    counts: Counter[str] = Counter()
    for name in found:
        starts = [0, *(i + 1 for i, letter in enumerate(name) if letter == ".")]
        counts.update(name[:i] for i in starts if name[i:] in wanted)
    return counts.most_common()


def some(names: Sequence[str]) -> str:
    """A few names, and how many more there are.

    >>> some(["a", "b", "c", "d"])
    "'a', 'b', 'c' and 1 more"
    """
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
