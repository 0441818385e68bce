"""One model, one data set, one list of evaluations, each said in a word: from these texts to a job's spec.

    model       example, which Assay brings; timm:resnet50, hf:ORG/NAME@REVISION or another source of pulled
                weights; job:ID; checkpoint:NAME; net.pt2; net.onnx; PACKAGE.MODULE:FUNCTION, which returns an
                `nn.Module`; the name of a model of the catalog with its weights; or {"name", "params"}
    data        a data set of the catalog; NAME:PATH for a data set with its files in a folder; the path of
                a folder of labelled images; or {"name", "params"} as JSON
    evaluation  the name of an attack or evaluation and its parameters: "pgd epsilon=8/255 steps=20"

Files are uploaded under a name made of file name and hash, so that the same file is uploaded once.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.service.client.data_place import Component, check_utf_8, json_object, properties_of, wrong
from assay.service.client.example_model import EXAMPLE, EXAMPLE_WEIGHTS
from assay.service.client.jobs import AssayClient
from assay.service.client.program_export import EXPORT, IMPORT_ONNX, PROGRAM, written_program
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import Problems, nearest, renamed
from assay.service.contract.weights.options import normalization_in
from assay.service.contract.weights.pulled import FORMS as PULLED
from assay.service.contract.weights.pulled import parse_reference
from assay.service.files.pickled_model import pickled_model
from assay.service.files.safetensors_header import read_header
from assay.service.files.state_lock import serving_text

ONNX, WEIGHTS = ".onnx", ".safetensors"
PICKLES = (".pt", ".pth", ".bin", ".ckpt")
# For error messages.
FORMS = (
    f"{EXAMPLE}, {PULLED}, job:ID, checkpoint:NAME, FILE.pt2, FILE.onnx, PACKAGE.MODULE:FUNCTION, or the name"
    " of a model of the catalog with --weights"
)
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
NAME_LENGTH, HASH_LENGTH = 60, 12


@dataclass(frozen=True)
class Subject:
    """A model as a person names it."""

    model: str  # a form at the module's head
    # safetensors file, for a catalog's model or a function; for the former also job:ID or checkpoint:NAME
    weights: str | None = None
    # of a function, an ONNX model, or a safetensors file from elsewhere, as for an upload
    normalization: str | None = None
    image_size: int | None = None  # height and width of a function's export; None: the data's
    folder: Path = Path()  # of a function's package
    # of the data, compared with a function's logits before its slow export; None: unknown
    data_classes: tuple[str, ...] | None = None
    label: str | None = None  # in errors; None: the model
    program: Path | None = (
        None  # made of a function or an ONNX model (`made_program`); None where it is not yet
    )
    # called with each step before it begins: "exporting nets:build"
    tell: Callable[[str], None] = field(default=lambda text: None, compare=False)

    def __post_init__(self) -> None:
        if self.model == EXAMPLE:
            object.__setattr__(self, "model", str(EXAMPLE_WEIGHTS))
            object.__setattr__(self, "label", EXAMPLE)


def check_subject(subject: Subject) -> None:
    """Refuse missing files, files that are no models and options without an effect, all at once."""
    problems, text = Problems(), subject.model
    with problems.gathered():
        if not text.lstrip().startswith("{"):
            _check_name(text)
    with problems.gathered():
        if subject.weights is not None and subject.weights.partition(":")[0] not in ("job", "checkpoint"):
            _refuse_pickle(subject.weights, ("model", "weights"), "then that file")
            _check_weights(_file(subject.weights, ("model", "weights")))
    with problems.gathered():
        mean_and_std(None if subject.normalization == "data" else subject.normalization)
    _check_effect(subject, problems)
    problems.raise_if_any()


def _check_name(text: str) -> None:
    module, colon, function = text.partition(":")
    if module.endswith(".py"):
        allowed = f"{module.removesuffix('.py').replace('/', '.')}:{function or 'FUNCTION'}"
        raise wrong(("model",), "names a file of code, not its module", given=text, allowed=allowed)
    if not colon:
        _refuse_pickle(text, ("model",), "then --weights with it")
    if text.endswith((PROGRAM, ONNX, WEIGHTS)):
        _file(text, ("model",))


def _refuse_pickle(text: str, loc: tuple[str, ...], then: str) -> None:
    if text.endswith(PICKLES):
        if (found := pickled_model(Path(text).expanduser())) is not None:
            raise wrong(loc, found.what, given=text, allowed=found.remedy)
        allowed = f"`assay import-pickle {text} {Path(text).stem}{WEIGHTS}`, {then}"
        raise wrong(loc, "is a pickle, which could run code", given=text, allowed=allowed)


def _check_weights(path: Path) -> None:
    try:
        read_header(path)
    except InvalidSpec as error:
        (detail,) = error.details
        allowed = "a safetensors file; `assay import-pickle` converts files of torch.save"
        raise wrong(("model", "weights"), detail.message, given=str(path), allowed=allowed) from None


def _check_effect(subject: Subject, problems: Problems) -> None:
    text, weights = subject.model, subject.weights
    named = subject.label or text
    source = text.startswith(("job:", "checkpoint:")) or _is_reference(text)
    if weights is not None and (source or text.endswith((PROGRAM, ONNX, WEIGHTS))):
        message = f"has no effect on {named}, which has weights of its own"
        allowed = "a function or a model of the catalog"
        problems.add(("model", "weights"), message, given=weights, allowed=allowed)
    if subject.normalization is not None and (source or text.endswith(PROGRAM)):
        message = f"has no effect on {named}, which is measured on pixels in [0, 1] as it is"
        allowed = (
            "a function, an ONNX model or a safetensors file; a program has it from its export (mean=, std=)"
        )
        problems.add(("normalization",), message, given=subject.normalization, allowed=allowed)
    if subject.image_size is not None and not is_made(subject):
        message = f"has no effect on {named}"
        allowed = (
            'a function or an ONNX model; in the catalog as {"name": ..., "params": {"image_size": ...}}'
        )
        problems.add(("image_size",), message, given=subject.image_size, allowed=allowed)


def _is_reference(text: str) -> bool:
    try:
        parse_reference(text)
    except ValueError:
        return False
    return True


def check_form(subject: Subject, models: Sequence[Component]) -> None:
    """Refuse a text that is none of the forms of a model."""
    text = subject.model
    prefix, colon, _ = text.partition(":")
    names = [str(one["name"]) for one in models]
    sources = {"job", "checkpoint", *(one["pulled"] for one in models if one.get("pulled"))}
    if (
        text.lstrip().startswith("{")
        or text.endswith((PROGRAM, ONNX, WEIGHTS))
        or (colon and (prefix in sources or FUNCTION.fullmatch(text)))
        or text in names
    ):
        return
    near = nearest(text, [EXAMPLE, *names]) or _nearest_pulled(text, models)
    if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", text):
        near = f"{text}:FUNCTION"
    raise wrong(("model",), "is no model", given=text, allowed=FORMS, nearest=near)


def trained_elsewhere(subject: Subject) -> bool:
    """Whether no training of this project can have shown the model a part of the data."""
    text = subject.model
    if text.endswith((PROGRAM, ONNX)):
        return True
    return ":" in text and not text.startswith(("job:", "checkpoint:", "{"))


def model_spec(client: AssayClient, subject: Subject, data: Mapping[str, Any]) -> dict[str, Any]:
    """A job's model; its file is uploaded and checked, its function called and exported."""
    models = client.catalog("model")
    check_form(subject, models)
    text = subject.model
    if text.lstrip().startswith("{"):
        return _of_catalog(client, subject, json_object(text, ("model",)))
    prefix, colon, rest = text.partition(":")
    if text.endswith((PROGRAM, WEIGHTS)):
        return _of_file(client, subject)
    if text.endswith(ONNX):
        return _of_made(client, subject, data)
    if colon and prefix in ("job", "checkpoint"):
        return _of_weights(client, prefix, rest)
    if colon and prefix in {one.get("pulled") for one in models}:
        return _of_source(client, text, data)
    if colon:
        return _of_made(client, subject, data)
    return _of_catalog(client, subject, {"name": text})


def _nearest_pulled(text: str, models: Sequence[Component]) -> str | None:
    found: dict[str, str] = {}
    for one in models:
        architectures = (
            properties_of(one).get("architecture", {}).get("enum", ()) if one.get("pulled") else ()
        )
        for name in architectures:
            found.setdefault(name, f"{one['pulled']}:{name}")
    name = nearest(text, found)
    return None if name is None else found[name]


def _of_source(client: AssayClient, text: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Pulled weights, by their source's model that does the data's task."""
    try:
        reference = parse_reference(text)
    except ValueError as error:
        raise wrong(("model",), str(error), given=text) from None
    tasks = set(client.component("data", str(data["name"]))["tasks"])
    able = [one for one in client.catalog("model") if one.get("pulled") == reference.source]
    fitting = [one for one in able if tasks & set(one["tasks"])] or able
    params = {name: value for name, value in reference.params.items() if value is not None}
    return {"name": fitting[0]["name"], "params": params, "weights": {"pulled": True}}


def _of_weights(client: AssayClient, kind: str, name: str) -> dict[str, Any]:
    if kind == "checkpoint":
        return {"name": client.checkpoint(name).model["name"], "weights": {"checkpoint": name}}
    return {"name": client.job(name).spec["model"]["name"], "weights": {"job": name}}


def _of_catalog(client: AssayClient, subject: Subject, model: Mapping[str, Any]) -> dict[str, Any]:
    if subject.weights is None:
        message = "this model has random weights unless its own are named"
        allowed = "--weights FILE.safetensors, job:ID or checkpoint:NAME; `assay submit` takes random ones"
        raise wrong(("model", "weights"), message, allowed=allowed)
    kind, colon, name = subject.weights.partition(":")
    if colon and kind in ("job", "checkpoint"):
        return {**model, "weights": {kind: name}}
    path = _file(subject.weights, ("model", "weights"))
    return {
        **model,
        "weights": {"checkpoint": _uploaded(client, subject, path, model, subject.normalization)},
    }


def _of_file(client: AssayClient, subject: Subject) -> dict[str, Any]:
    path = _file(subject.model, ("model",))
    name = _uploaded(client, subject, path, None, subject.normalization if path.suffix == WEIGHTS else None)
    return _of_weights(client, "checkpoint", name)


def _of_made(client: AssayClient, subject: Subject, data: Mapping[str, Any]) -> dict[str, Any]:
    facts = client.component("data", str(data["name"])).get("facts") or {}
    ready = subject.program
    with made_program(subject, data, facts) if ready is None else nullcontext(ready) as program:
        return _of_weights(client, "checkpoint", _uploaded(client, subject, program))


def is_made(subject: Subject) -> bool:
    """Whether a program is made of a function or an ONNX file."""
    text = subject.model
    source = text.startswith(("job:", "checkpoint:")) or _is_reference(text)
    return text.endswith(ONNX) or (FUNCTION.fullmatch(text) is not None and not source)


@contextmanager
def made_program(subject: Subject, data: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Path]:
    """The program of an ONNX model or function, from another process, until the block ends."""
    size = subject.image_size
    if subject.model.endswith(ONNX):
        path = _file(subject.model, ("model",))
        arguments = [str(path), *_normalization_flags(subject)]
        if size is not None:
            arguments += ["--image-size", str(size)]
        subject.tell(f"importing {subject.label or subject.model}")
        with written_program(IMPORT_ONNX, arguments, ("model",), path.stem, tell=subject.tell) as program:
            yield program
        return
    size = size or facts.get("size")
    channels = (data.get("params") or {}).get("channels", facts.get("channels", 3))
    arguments = [subject.model, "--channels", str(channels)]
    if size is not None:  # else the module may say it
        arguments += ["--image-size", str(size)]
    if subject.weights is not None:
        arguments += ["--weights", str(_file(subject.weights, ("model", "weights")))]
    arguments += _normalization_flags(subject)
    if subject.data_classes is not None:
        arguments += ["--data-classes", json.dumps(subject.data_classes)]
    subject.tell(f"exporting {subject.label or subject.model}")
    stem = subject.model.replace(":", ".")
    with written_program(EXPORT, arguments, ("model",), stem, subject.folder, subject.tell) as program:
        yield program


def _normalization_flags(subject: Subject) -> list[str]:
    mean, std = mean_and_std(subject.normalization)
    if mean is None or std is None:
        return []
    return ["--mean", *map(str, mean), "--std", *map(str, std)]


def _uploaded(
    client: AssayClient,
    subject: Subject,
    path: Path,
    model: Mapping[str, Any] | None = None,
    normalization: str | None = None,
) -> str:
    """The name of a checked upload; errors show what the person named."""
    shown = subject.label or (subject.model if model is None else str(path))
    subject.tell(f"checking {shown}: an evaluator loads torch and opens the file")
    with path.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    name = f"{re.sub(r'[^A-Za-z0-9._-]', '-', path.stem)[:NAME_LENGTH]}-{sha256[:HASH_LENGTH]}"
    try:
        client.upload_checkpoint(name, path, model=model, normalization=normalization)
    except InvalidSpec as error:
        about = error.details[0] if error.details else None
        if about is not None and about.loc == ["query", "model"] and model is None:
            weights = f"this file with --weights {shlex.quote(str(path))}"
            allowed = f"the name of a model of the catalog, and {weights}"
            raise wrong(("model",), about.message, given=shown, allowed=allowed) from None
        if about is None or about.loc[:1] != ["body"]:  # the file
            raise renamed(error, _without_query) from None
        raise wrong(("model",), f"{shown}: {about.message}", allowed=about.allowed) from None
    found = client.wait_for_checkpoint(name)  # what it is for is known then
    if found.state == "rejected":
        reason = found.error.message if found.error is not None else "it does not fit the model"
        there = "" if client.state is None else serving_text(client.state)
        shows = f"; {there}`assay checkpoints show {name}` lists every fault"
        more = shows if found.faults is not None else ""
        raise wrong(("model",), f"the file is rejected: {reason}{more}", given=shown)
    return name


def _without_query(loc: list[str | int]) -> list[str | int]:
    return loc[1:] if loc[:1] == ["query"] else loc


def mean_and_std(normalization: str | None) -> tuple[list[float] | None, list[float] | None]:
    """A normalisation's numbers for a function or ONNX model; None for None."""
    if normalization is None:
        return None, None
    try:
        found = normalization_in(normalization)
    except InvalidSpec as error:
        raise renamed(error, _without_query) from None
    if found == "data":
        allowed = '"imagenet", "inception" or {"mean": [...], "std": [...]}'
        raise wrong(("normalization",), "is not known before the data", given="data", allowed=allowed)
    return found["mean"], found["std"]


def _file(text: str, loc: tuple[str, ...]) -> Path:
    path = Path(text).expanduser()
    if not path.is_file():
        raise wrong(loc, "there is no such file", given=text)
    check_utf_8(loc, path.resolve())
    return path
