"""Classes of a folder and of a model's file, compared before a service is started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.service.catalog.catalog import Checked, load
from assay.service.client.data_place import DataPlace, by_labels, data_spec, wrong
from assay.service.client.one_line import Subject
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import Problems, renamed
from assay.service.files.class_names import BadClassNames, class_names_of, read_class_names
from assay.service.files.model_classes import ModelClasses, classes_in
from assay.service.submission.class_folders import (
    check_labelled,
    describe_classes,
    list_classes,
)
from assay.service.submission.compatibility import classes_of_model

NAMED = 5  # classes in a message


def stated_classes(
    class_names: str | Sequence[str] | None, labels: str | Path | None
) -> tuple[str, ...] | None:
    """The stated order of classes: names, A,B,... or a file, or None; InvalidSpec: both, or no names."""
    if class_names is not None and labels is not None:
        raise wrong(("labels",), "class_names states the order of the classes, too: give one", given=labels)
    try:
        if labels is not None:
            return tuple(read_class_names(Path(labels).expanduser()))
        if isinstance(class_names, str):
            return tuple(class_names_of(class_names))
    except BadClassNames as error:
        field = "class_names" if labels is None else "labels"
        raise wrong((field,), str(error), given=str(class_names if labels is None else labels)) from error
    return None if class_names is None else tuple(class_names)


def check_classes(subject: Subject, place: DataPlace) -> None:
    """Refuse a folder of other classes than stated, or other in number than the file's: InvalidSpec."""
    data, root = checked_data(place), place.root()
    folders = describe_classes(data, root)
    names = list_classes(data, root)
    problems = Problems()
    check_labelled(data, root, problems, ("data",))
    try:
        problems.raise_if_any()
    except InvalidSpec as error:
        raise renamed(by_labels(error, place), _as_asked) from None
    if names is None:
        return
    shown, found = _of_model(subject)
    if found.count not in (None, len(names)):
        own = (
            f" ({', '.join(found.names[:NAMED])}{', ...' if found.count > NAMED else ''})"
            if found.names
            else ""
        )
        message = (
            f"has {len(names)} classes, and {shown} has {found.count}{own}; the"
            f" {'class folders' if folders else 'labels'} are {folders or ', '.join(names[:NAMED])}"
        )
        raise wrong(("data",), message, given=str(place.path or data.params["folder"]))


def classes_of(place: DataPlace) -> tuple[str, ...] | None:
    """The classes of a model for the data: names of class folders, else numbers; None if unknown."""
    data = checked_data(place)
    names = list_classes(data, place.root()) if place.path is not None else None
    if names is None:
        count = classes_of_model(data.component.facts_for(data.params))
        names = [] if count is None else [*map(str, range(count))]
    return tuple(names) or None


def checked_data(place: DataPlace) -> Checked:
    """The data set at a place with every parameter."""
    catalog = load()
    spec = data_spec(place, [one.model_dump(by_alias=True) for one in catalog.list("data")])
    found = catalog.check_reference(("data",), spec, Problems(), ("data",))
    assert found is not None
    return found


def _of_model(subject: Subject) -> tuple[str, ModelClasses]:
    for text in (subject.model, subject.weights):
        if text is not None and (path := Path(text).expanduser()).is_file():
            return f"the model {subject.label or text}", classes_in(path)
    return "", ModelClasses()


def _as_asked(loc: list[str | int]) -> list[str | int]:
    return ["data"] if loc[-1:] == ["folder"] else loc
