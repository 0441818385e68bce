"""Reads Hugging Face models from local folders, with the library `transformers`.

Nothing is fetched, no code of a repository runs, and weights come from safetensors files alone. A folder that
lacks a part of the model is refused: `transformers` would draw that part at random.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import torch
from annotated_types import Len, doc
from torch import nn

INSTALL = "Hugging Face models need the extra hf: pip install 'assay-robustness[hf]'"
FORBIDDEN = {"adapter_config.json": "an adapter (PEFT), not a whole model"}

Repository = Annotated[str, Len(1, 200), doc("ORG/NAME.")]
Revision = Annotated[
    Annotated[str, Len(1, 200)] | None, doc("branch, tag or commit that was pulled; main if absent.")
]


def transformers() -> ModuleType:
    """The library. Raises ValueError: it is not installed; has the command."""
    try:
        import transformers as library
    except ImportError as error:
        raise ValueError(INSTALL) from error
    logging: Any = library.utils.logging
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    return library


def checked_folder(folder: Path | None, name: str) -> Path:
    """The folder of a pulled model for the component `name`; None where the job names no pulled weights."""
    if folder is None:
        raise ValueError(
            f'the model {name!r} has no weights but pulled ones: give it "weights": {{"pulled": true}}'
        )
    for file, what in FORBIDDEN.items():
        if (folder / file).exists():
            raise ValueError(f"{folder.name} holds {what}: {file}")
    if not any(folder.glob("*.safetensors")):
        raise ValueError(f"{folder} has no safetensors file: weights in other formats are not read")
    return folder


def config_of(folder: Path) -> Any:
    """The configuration of the model in a folder."""
    library = transformers()
    try:
        config = library.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"config.json of {folder} cannot be used: {_first(error)}") from error
    if getattr(config, "quantization_config", None) is not None:
        raise ValueError(f"the model in {folder} is quantized: models in full precision are evaluated")
    return config


def model_of(folder: Path, auto_class: str, what: str, **options: Any) -> nn.Module:
    """The folder's model, float32, for evaluation. Raises ValueError: no such model, or missing weights."""
    library = transformers()
    try:
        model, report = getattr(library, auto_class).from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            **options,
        )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        raise ValueError(f"no {what} can be read from {folder}: {_first(error)}") from error
    lost = sorted({str(key) for key in report["missing_keys"]})
    other = sorted({str(key[0]) if isinstance(key, tuple) else str(key) for key in report["mismatched_keys"]})
    if lost or other:
        named = ", ".join([*lost, *other][:5])
        raise ValueError(
            f"the weights in {folder} do not fit a {what}: {len(lost)} tensors are missing and"
            f" {len(other)} have another shape ({named}). transformers would draw them at random"
        )
    made: nn.Module = model.eval()
    return made


def json_of(folder: Path, name: str) -> Mapping[str, Any]:
    """A JSON file of the folder. Raises ValueError: it is missing or malformed."""
    try:
        found = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder / name} cannot be read: {_first(error)}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{folder / name} is no JSON object")
    return found


def label_names(config: Any) -> tuple[str, ...]:
    """The names of a classifier's logits, in order. Raises ValueError: a regression, with one output."""
    names = {int(number): str(name) for number, name in config.id2label.items()}
    if len(names) < 2 or getattr(config, "problem_type", None) in (
        "regression",
        "multi_label_classification",
    ):
        raise ValueError(
            f"the model is no classifier with one label for each example: it has {len(names)} outputs"
            f" and problem_type {getattr(config, 'problem_type', None)!r}"
        )
    return tuple(names[number] for number in sorted(names))


class OtherClasses(ValueError):
    """The data set has another number of classes than the model, by `excess` more."""

    def __init__(self, message: str, excess: int) -> None:
        super().__init__(message)
        self.excess = excess


def check_classes(names: tuple[str, ...], classes: int) -> None:
    """Refuse data with another number of classes. Raises OtherClasses: has both numbers."""
    if len(names) != classes:
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        message = f"the model has {len(names)} classes ({shown}), the data set has {classes}"
        raise OtherClasses(message, classes - len(names))


def classifier_of(folder: Path | None, name: str, classes: int) -> tuple[Path, Any, tuple[str, ...]]:
    """The checked folder of a classifier, its configuration, and the names of its logits."""
    where = checked_folder(folder, name)
    config = config_of(where)
    names = label_names(config)
    check_classes(names, classes)
    return where, config, names


def _first(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
