"""Uploaded weights: what users see of them, and of which model they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from assay.service.catalog.catalog import Catalog, Checked
from assay.service.contract.problems import Loc, Report
from assay.service.contract.results import Answer, JobError
from assay.service.contract.weights_options import Normalization, Positions
from assay.service.submission.weights import check_same_model

# A name and never a path: no separators, no leading dot.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
# Of the files of training jobs, as `models/weights/layouts.py` calls it; all others have no normalisation.
OWN_LAYOUT = "assay"
# The layout of exported programs, which have no names of tensors to compare.
PROGRAM_LAYOUT = "program"
State = Literal["checking", "ready", "rejected"]
GIVEN: Loc = ("query", "model")
INSIDE: Loc = ("body", "__metadata__", "model")


class WrongShape(Answer):
    """A tensor that has another shape than the model's."""

    key: str
    given: list[int]
    wanted: list[int]


class Faults(Answer):
    """Everything that keeps weights from fitting their model, by the names that the file has."""

    missing: list[str] = Field(default_factory=list)
    unexpected: list[str] = Field(default_factory=list)
    shapes: list[WrongShape] = Field(default_factory=list)
    other: list[str] = Field(default_factory=list)


class ProgramFacts(Answer):
    """What is known of an exported program.

    Attributes:
        image_size: height and width of its images, in pixels.
        dtypes: the values of `execution.dtype` that it can be run with.
        random: whether it draws random numbers while it answers.
    """

    image_size: int
    dtypes: list[str]
    random: bool


class Verdict(Faults):
    """What a worker found out about a file.

    Attributes:
        layout: whose names the tensors have, as in `models/weights/layouts.py`; "program" for an exported
        program. classes: that the model was made for; None where the weights do not tell.
        channels: of its images; None where the weights do not tell.
        program: of an exported program; None for weights.
        left_out: tensors of the file that the model does not need, and that such files are known to have.
        resized: position embeddings that are resized, because the upload asked for it.
    """

    layout: str | None = None
    classes: int | None = None
    channels: int | None = None
    program: ProgramFacts | None = None
    left_out: list[str] = Field(default_factory=list)
    resized: list[str] = Field(default_factory=list)


class Checkpoint(Answer):
    """Uploaded weights or program. `sha256` is of the file; `error` and `faults` say why it was rejected.

    `normalization` and `positions` are as the upload stated them, null where it did not. `left_out` are the
    file's tensors that the model does not need, `resized` the position embeddings that are resized.
    """

    name: str
    state: State
    model: dict[str, Any]
    layout: str | None
    classes: int | None
    channels: int | None
    program: ProgramFacts | None
    normalization: Normalization | Literal["data"] | None
    positions: Positions | None
    left_out: list[str]
    resized: list[str]
    size: int
    sha256: str
    created_at: str
    error: JobError | None
    faults: Faults | None


def model_of_weights(
    catalog: Catalog, given: Mapping[str, Any] | None, inside: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The model of uploaded weights, with every parameter filled in.

    Args:
        catalog: has the models.
        given: {"name", "params"} as the caller says; None when nothing was said.
        inside: the same from the file's header; None when it says nothing.

    Raises:
        InvalidSpec: neither says it, it is no model, or the two disagree; the details name both values. Or
            nobody says how many heads a width has.
    """
    report = Report()
    if given is None and inside is None:
        message = "the file does not say of which model its weights are"
        report.add(GIVEN, message, allowed='a model\'s name, or {"name": ..., "params": ...} as JSON')
    checked: Checked | None = None
    if inside is not None:
        checked = _checked(catalog, inside, report, INSIDE)
    report.raise_if_any()
    if given is not None:
        trained = checked
        if trained is not None and trained.component.name == given.get("name"):
            given = {**given, "params": {**trained.params, **given.get("params", {})}}
        checked = _checked(catalog, given, report, GIVEN)
        if inside is None and checked is not None:
            _check_heads(given, report, (*GIVEN, "params"), checked.params)
        if trained is not None and checked is not None:
            inside = {"name": trained.component.name, "params": trained.params}
            check_same_model(checked, inside, report)
    report.raise_if_any()
    assert checked is not None
    return {"name": checked.component.name, "params": checked.params}


def _checked(catalog: Catalog, reference: Mapping[str, Any], report: Report, loc: Loc) -> Checked | None:
    checked = catalog.check_reference(("model",), {"params": {}, **reference}, report, loc)
    if checked is not None and checked.certain:
        known = {"model": checked.component.known(checked.params)}
        catalog.check_rules(checked.component, checked.params, known, report, (*loc, "params"))
    return checked


def _check_heads(given: Mapping[str, Any], report: Report, loc: Loc, params: Mapping[str, Any]) -> None:
    """Where a width is given, its heads must be too: no file tells them, and a default fits in silence."""
    own = given.get("params", {})
    if "width" in own and "heads" in params and "heads" not in own:
        message = "is required beside width: a file of weights does not tell its heads"
        report.add((*loc, "heads"), message, allowed="those of the training; of timm's, mostly width / 64")
    for name, value in own.items():
        inner = params.get(name)
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            _check_heads(value, report, (*loc, name, "params"), inner.get("params", {}))
