"""Hugging Face folders: model, task and loss from their configuration, without code.

A folder's own code is never run unless the user says so, weights are read as data, and
nothing is downloaded: a name of the hub is looked for in transformers' own cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from flatgauge.checkpoints.names import some
from flatgauge.errors import ModelError

COARSE = (torch.float16, torch.bfloat16)
TASKS = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForMaskedLM",
    "ForCausalLM",
    "ForConditionalGeneration",
)
"""The heads that texts can be prepared for, by how their classes' names end."""
SPELLINGS = {"LMHeadModel": "ForCausalLM"}


@dataclass(frozen=True)
class Folder:
    """A folder, or a name that transformers finds in its cache.

    Attributes:
        place: the folder or the name.
        trusted: whether code in it may be run.
    """

    place: str
    trusted: bool = False

    def config(self) -> Any:
        """Its configuration."""
        return self._loaded("AutoConfig")

    def tokenizer(self) -> Any:
        """Its tokenizer, which pads with the last token where it has none for that."""
        found = self._loaded("AutoTokenizer")
        if found.pad_token is None:
            found.pad_token = found.eos_token
        return found

    def model(self) -> nn.Module:
        """Its model, of the class that its configuration names.

        Raises:
            ModelError: if there is none, or tensors of it are not in the files.
        """
        config = self.config()
        name = self._class_name(config)
        model, info = self._loaded(name, dtype="auto", output_loading_info=True)
        missing = sorted(info["missing_keys"])
        if missing:
            raise ModelError(
                f"'{self.place}' lacks {some(missing)} of its {name}, which would be "
                "random: train it first, or use the folder that it was saved to."
            )
        if model.config.pad_token_id is None:
            # Models that look for the last token of a padded text need to know it.
            model.config.pad_token_id = self.tokenizer().pad_token_id
        return model.float() if model.dtype in COARSE else model

    def task(self) -> str:
        """What its model was trained for: one of `TASKS`.

        Raises:
            ModelError: for another task.
        """
        name = self._class_name(self.config())
        for ending, task in [*SPELLINGS.items(), *((one, one) for one in TASKS)]:
            if name.endswith(ending):
                return task
        raise ModelError(
            f"'{self.place}' holds a {name}, which texts cannot be prepared for (only "
            f"for {', '.join(TASKS)}): give DATA as file.py:function."
        )

    def loss(self) -> str:
        """The loss that its model was trained with."""
        config = self.config()
        return loss_of(self._class_name(config), config)

    def _class_name(self, config: Any) -> str:
        """The class of its model, or the automatic class of a trusted folder's own."""
        own = getattr(config, "auto_map", None) or {}
        autos = [name for name in own if name.startswith("AutoModelFor")]
        if self.trusted and autos:
            return autos[0]
        names = getattr(config, "architectures", None) or []
        if not names:
            raise ModelError(
                f"the configuration of '{self.place}' names no class of model: save it "
                "with save_pretrained."
            )
        return names[0]

    def _loaded(self, name: str, **more: Any) -> Any:
        """What `from_pretrained` of a class of transformers gives, or why not."""
        source = _transformers()
        kind = getattr(source, name, None)
        if kind is None:
            raise ModelError(
                f"'{self.place}' holds a {name}, which transformers "
                f"{source.__version__} does not have: code from the folder itself is "
                "run only with --trust-remote-code."
            )
        if name.startswith("Auto"):
            more["trust_remote_code"] = self.trusted
        return self._found(kind.from_pretrained, **more)

    def _found(self, load: Callable[..., Any], **more: Any) -> Any:
        try:
            with _quiet():
                return load(self.place, local_files_only=True, **more)
        # Whatever a broken folder makes transformers raise, pickle's refusal included.
        except Exception as error:
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise ModelError(
                f"'{self.place}' could not be opened as a Hugging Face folder, or as a "
                f"name that is in transformers' cache ({first.rstrip('.')}): nothing is "
                "downloaded, and its own code is run only with --trust-remote-code."
            ) from error


def loss_of(name: str, config: Any) -> str:
    """The loss that transformers trains a class of models with.

    Args:
        name: of the class.
        config: the model's.
    """
    kind = getattr(config, "problem_type", None)
    classifies = name.endswith(TASKS[0])
    if classifies and kind == "multi_label_classification":
        raise ModelError(
            "the model gives several labels to a text, and no built-in loss does: call "
            "flatgauge from Python with a loss of your own."
        )
    one_number = kind is None and getattr(config, "num_labels", 0) == 1
    return (
        "mse"
        if classifies and (kind == "regression" or one_number)
        else "cross-entropy"
    )


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ModelError(
            "Hugging Face folders need transformers: pip install "
            "'flatgauge[transformers]'."
        ) from error
    return transformers


@contextmanager
def _quiet() -> Iterator[None]:
    """No bars and no notes of transformers; its settings are given back."""
    logging = _transformers().utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
