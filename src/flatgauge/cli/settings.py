"""The arguments that the commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from flatgauge.cli.output import check_paths
from flatgauge.cli.processes import joined
from flatgauge.errors import OptionError


def _named(names: list[str]) -> Callable[[str], list[str]]:

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


MODEL = typer.Argument(
    help="file.py:function or package.module:function that returns a torch module; "
    "the file is run, so trust it. Or hf:DIR, a Hugging Face folder, which is not run.",
    show_default=False,
)
DATA = typer.Argument(
    help="The same, for a function that returns batches, a DataLoader or (X, y); or "
    "one of digits, mnist:DIR, mnist:DIR:test, cifar10:DIR, cifar10:DIR:test, whose "
    "inputs are images \\[n, channels, height, width] with pixels in 0 to 1; or, with "
    "hf:DIR, texts.jsonl with a text a line.",
    show_default=False,
    autocompletion=_named(["digits", "mnist:", "cifar10:"]),
)
WEIGHTS = typer.Option(
    help="A checkpoint: a .safetensors file, what torch.save or Lightning wrote, an "
    "index of shards, or a folder with one of these. It is never run.",
    show_default=False,
)
KEY = typer.Option(
    help="Where in the checkpoint the weights are, if it has several, such as ema.",
    show_default=False,
)
MEASURE = typer.Option(
    help="What to measure, again for each: a name of `flatgauge list`, or "
    "'name\\[option=value]'; the default set if left out.",
    show_default=False,
)
OPTION = typer.Option(
    help="NAME.KEY=VALUE, an option of a measure, again for each.", show_default=False
)
LOSS = typer.Option(
    help="cross-entropy, mse or normalized-cross-entropy; what a Hugging Face folder "
    "says, else cross-entropy, if left out.",
    show_default=False,
    autocompletion=_named(["cross-entropy", "mse", "normalized-cross-entropy"]),
)
OUT = typer.Option(
    help="Write the page here (.html), a table (.csv, .tex) or the figures (.svg, .png).",
    show_default=False,
)
JSON = typer.Option(
    "--json", help="Write the results here; - is standard output.", show_default=False
)
DEVICE = typer.Option(
    help="Where to compute; the model's own device if left out.", show_default=False
)
DTYPE = typer.Option(
    help="float32 or float64; the model's own if left out.",
    show_default=False,
    autocompletion=_named(["float32", "float64"]),
)
SEED = typer.Option(help="For every random draw.")
MAX_SAMPLES = typer.Option(
    help="Use only the first so many samples.", min=1, show_default=False
)
BATCH_SIZE = typer.Option(
    help="For tensors and Datasets; a DataLoader has its own.",
    min=1,
    show_default=False,
)
MODE = typer.Option(
    help="eval, or train for batch statistics.",
    autocompletion=_named(["eval", "train"]),
)
DERIVATIVES = typer.Option(
    help="checked, or 'as given' to take autograd's word.",
    autocompletion=_named(["checked", "as given"]),
)
MEMORY = typer.Option(
    help="What may be in use of the device, such as 12GiB; else a part of what is free.",
    show_default=False,
)
STRICT = typer.Option(
    "--strict", help="Exit with 1 if a number did not converge or does not apply."
)
TRUST = typer.Option(
    "--trust-remote-code", help="Run the code that a Hugging Face folder brings."
)
DEBUG = typer.Option("--debug", help="Show the traceback of an error.")


@dataclass(frozen=True)
class Settings:
    """What every command takes: the fields are the arguments and options."""

    model: Annotated[str, MODEL]
    data: Annotated[str, DATA]
    weights: Annotated[Path | None, WEIGHTS] = None
    key: Annotated[str | None, KEY] = None
    measure: Annotated[list[str] | None, MEASURE] = None
    option: Annotated[list[str] | None, OPTION] = None
    loss: Annotated[str | None, LOSS] = None
    out: Annotated[Path | None, OUT] = None
    json: Annotated[Path | None, JSON] = None
    device: Annotated[str | None, DEVICE] = None
    dtype: Annotated[str | None, DTYPE] = None
    seed: Annotated[int, SEED] = 0
    max_samples: Annotated[int | None, MAX_SAMPLES] = None
    batch_size: Annotated[int | None, BATCH_SIZE] = None
    mode: Annotated[str, MODE] = "eval"
    derivatives: Annotated[str, DERIVATIVES] = "checked"
    memory: Annotated[str | None, MEMORY] = None
    strict: Annotated[bool, STRICT] = False
    trust_remote_code: Annotated[bool, TRUST] = False
    debug: Annotated[bool, DEBUG] = False

    @property
    def requests(self) -> tuple[str, ...]:
        """The measures that were asked for."""
        return tuple(self.measure or ())

    @property
    def options(self) -> dict[str, dict[str, Any]]:
        """Options by measure."""
        return parse_options(self.option or ())


def parse_options(texts: list[str] | tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """NAME.KEY=VALUE, again for each, as options by measure.

    >>> parse_options(["hessian-trace.target=0.1"])
    {'hessian-trace': {'target': 0.1}}
    """
    from flatgauge.requests import parse_value

    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        left, equals, value = text.partition("=")
        name, dot, key = left.rpartition(".")
        if not (equals and dot and name and key):
            raise OptionError(
                f"--option '{text}' is not understood: write NAME.KEY=VALUE, as in "
                "hessian-trace.target=0.1."
            )
        found.setdefault(name, {})[key] = parse_value(value)
    return found


# The names of the commands that several processes run together.
TOGETHER: set[str] = set()


def shared(command: Callable[..., None]) -> Callable[..., None]:
    """Put the fields of `Settings` in place of a command's first parameter."""
    common = inspect.signature(Settings, eval_str=True).parameters
    model, data, *options = common.values()
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    # Positional arguments come in this order on the command line.
    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for one in (model, data, *own, *options)
    ]

    @wraps(command)
    def wrapper(**given: Any) -> None:
        settings = Settings(**{name: given.pop(name) for name in common})
        check_paths(settings.out, settings.json)
        with joined():
            command(settings, **given)

    TOGETHER.add(command.__name__)

    wrapper.__dict__["__signature__"] = inspect.Signature(parameters)
    wrapper.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapper
