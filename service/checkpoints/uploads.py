"""The model of an uploaded file, as stated by the caller and by the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from assay.service.catalog.catalog import Catalog, Checked
from assay.service.contract.errors import MalformedJson
from assay.service.contract.problems import Loc, Problems
from assay.service.contract.stored_specs import ComponentReference
from assay.service.contract.strict_json import parse_json
from assay.service.contract.weights.options import WeightsReading, check_reading
from assay.service.files.class_names import BadClassNames, class_names_in
from assay.service.files.model_classes import names_in_program
from assay.service.files.program_file import BadProgram, is_archive
from assay.service.files.safetensors_header import LENGTH_BYTES, read_header
from assay.service.submission.weights import check_same_model

GIVEN: Loc = ("query", "model")
NAMES: Loc = ("query", "class_names")
INSIDE: Loc = ("body", "__metadata__", "model")
MAX_DEPTH = 16
OTHER_KINDS = {  # By first bytes; an ONNX model begins with its version, as a protocol buffer's field.
    **{
        bytes([8, version]): "the mark of an ONNX model; `assay import-onnx` converts it to a program"
        for version in range(3, 16)
    },
    b"\x80": "the mark of a Python pickle (torch.save); `assay import-pickle` converts it",
    b"\x89HDF": "the mark of HDF5",
    b"\x93NUMPY": "the mark of a NumPy array",
    b"GGUF": "the mark of GGUF",
    b"\x1f\x8b": "the mark of gzip",
    b"version https://git-lfs": "the text of a Git LFS pointer, which stands for the file",
}


def model_of_file(
    catalog: Catalog, given: Mapping[str, Any] | None, path: Path, reading: WeightsReading
) -> ComponentReference:
    """The full model of an uploaded file; InvalidSpec for another file, or against the caller's words."""
    model = model_of_weights(catalog, given, _model_inside(catalog.program_model, path, reading))
    if model["name"] == catalog.program_model and not is_archive(path):
        _refuse(GIVEN, f"the model {model['name']!r} is an exported program (.pt2), and this file is none")
    return model


def model_of_weights(
    catalog: Catalog, given: Mapping[str, Any] | None, inside: Mapping[str, Any] | None
) -> ComponentReference:
    """The full model of uploaded weights; InvalidSpec without model or heads, or if statements disagree."""
    problems = Problems()
    if given is None and inside is None:
        message = "the file does not name the model of its weights"
        problems.add(GIVEN, message, allowed='a model\'s name, or {"name": ..., "params": ...} as JSON')
    checked: Checked | None = None
    if inside is not None:
        checked = _checked(catalog, inside, problems, INSIDE)
    problems.raise_if_any()
    if given is not None:
        trained = checked
        if trained is not None and trained.component.name == given.get("name"):
            given = {**given, "params": {**trained.params, **given.get("params", {})}}
        checked = _checked(catalog, given, problems, GIVEN)
        if inside is None and checked is not None:
            _check_heads(given, problems, (*GIVEN, "params"), checked.params)
        if trained is not None and checked is not None:
            known: ComponentReference = {"name": trained.component.name, "params": trained.params}
            check_same_model(checked, known, problems)
    problems.raise_if_any()
    assert checked is not None
    return {"name": checked.component.name, "params": checked.params}


def _checked(catalog: Catalog, reference: Mapping[str, Any], problems: Problems, loc: Loc) -> Checked | None:
    checked = catalog.check_reference(("model",), {"params": {}, **reference}, problems, loc)
    if checked is not None and checked.certain:
        known = {"model": checked.component.known(checked.params)}
        catalog.check_rules(checked.component, checked.params, known, problems, (*loc, "params"))
    return checked


def _check_heads(given: Mapping[str, Any], problems: Problems, loc: Loc, params: Mapping[str, Any]) -> None:
    """A given width needs its heads: files do not tell them, and a wrong default would fit silently."""
    own = given.get("params", {})
    if "width" in own and "heads" in params and "heads" not in own:
        message = "is required beside width: a file of weights does not tell its heads"
        allowed = "the heads of the training; timm's models mostly have width / 64"
        problems.add((*loc, "heads"), message, allowed=allowed)
    for name, value in own.items():
        inner = params.get(name)
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            _check_heads(value, problems, (*loc, name, "params"), inner.get("params", {}))


def reference_in(text: str, loc: Loc) -> dict[str, Any]:
    """A model from a name, or {"name", "params", ...} as JSON; InvalidSpec for another text."""
    problems, reference = Problems(), None
    try:
        reference = parse_json(text.encode(), MAX_DEPTH) if text.lstrip().startswith("{") else {"name": text}
    except (MalformedJson, UnicodeEncodeError) as error:
        problems.add(loc, f"it begins like JSON and is none: {error}", given=text)
    if reference is not None and not isinstance(reference.get("name"), str):
        problems.add((*loc, "name"), "must be a model's name", given=reference.get("name"))
    if reference is not None and not isinstance(reference.get("params", {}), dict):
        problems.add((*loc, "params"), "must be an object", given=json.dumps(reference["params"])[:200])
    problems.raise_if_any()
    assert reference is not None
    return {key: reference[key] for key in ("name", "params") if key in reference}


def _model_inside(programs: str | None, path: Path, reading: WeightsReading) -> dict[str, Any] | None:
    if is_archive(path):
        return _program(programs, path, reading)
    _check_kind(path)
    header = read_header(path)
    check_reading(reading, header.shapes)
    stated = header.metadata.get("model")
    return None if stated is None else reference_in(stated, INSIDE)


def _check_kind(path: Path) -> None:
    """Refuses what begins like neither kind of file that is taken."""
    with path.open("rb") as file:
        start = file.read(32)
    if start[LENGTH_BYTES : LENGTH_BYTES + 1] == b"{":
        return
    shown = f"the bytes {start[:LENGTH_BYTES].hex(' ')}" if start else "nothing: it is empty"
    found = next((kind for magic, kind in OTHER_KINDS.items() if start.startswith(magic)), shown)
    neither = "this is neither a safetensors file nor an exported program (.pt2)"
    _refuse(("body",), f"{neither}: it begins with {found}")


def names_in(text: str) -> list[str]:
    """Names of logits from A,B,... or JSON; InvalidSpec for another text, or a name twice."""
    problems = Problems()
    try:
        names = class_names_in(text if text.lstrip()[:1] in ("[", "{") else "\n".join(text.split(",")))
        if len(names) > 1:
            return names
        problems.add(NAMES, "a classifier has at least two classes", given=text[:200], allowed="A,B,...")
    except BadClassNames as error:
        problems.add(NAMES, str(error), given=text[:200], allowed="A,B,... or a list or id2label as JSON")
    problems.raise_if_any()
    raise AssertionError("there is a remark")


def _program(programs: str | None, path: Path, reading: WeightsReading) -> dict[str, Any]:
    try:
        own = names_in_program(path)
    except BadProgram as error:
        _refuse(("body",), f"this is no exported program that can be taken: {error}")
    given = reading.get("class_names")
    if None not in (own, given) and list(own or ()) != given:
        _refuse(NAMES, "the file has other class names (extra/assay.json), which hold")
    for name, stated in reading.items():
        if stated is not None and name != "class_names":
            _refuse(("query", name), "an exported program takes pixels in [0, 1], and has everything inside")
    return {"name": programs}


def _refuse(loc: Loc, message: str) -> NoReturn:
    problems = Problems()
    problems.add(loc, message, allowed="a file that torch.export.save (.pt2) or safetensors has written")
    problems.raise_if_any()
    raise AssertionError("there is a remark")
