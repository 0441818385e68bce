"""The data that a person names by a word or a path, and their spec."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import Problems, nearest, path_text
from assay.service.submission.data_folders import NOT_UTF_8, shown_name

Component = Mapping[str, Any]
ROOT_VARIABLE = "ASSAY_DATA_ROOT"
PARTS = ("train", "val", "test")  # of a folder with parts
CROP = "crop_fraction"  # of data sets of image files
NAMES = "class_names"  # of a user's own data


@dataclass(frozen=True)
class DataPlace:
    """Where data are."""

    name: str | None  # of the data set; None for a path alone
    path: Path | None = None  # of its folder, resolved; None: in the data root
    params: Mapping[str, Any] = field(default_factory=dict)
    # for image files: side of the centre crop / short side after resizing; None: from `params`, else default
    crop_fraction: float | None = None
    # in the order of the model's logits; None: the data set's order
    class_names: tuple[str, ...] | None = None
    labels: str | None = None  # of these names; None where stated themselves

    def root(self) -> Path | None:
        """The data root that has the path: the present root, else the path's folder."""
        given = os.environ.get(ROOT_VARIABLE)
        present = Path(given).resolve() if given else None
        if self.path is None or (present is not None and self.path.is_relative_to(present)):
            return present
        return self.path.parent

    def with_paths(self, text: str) -> str:
        """A text of the service of this machine, with the data root itself in place of its variable."""
        root = self.root()
        return text if root is None else text.replace(f"${ROOT_VARIABLE}", str(root))


def place_of(
    text: str,
    crop_fraction: float | None = None,
    class_names: tuple[str, ...] | None = None,
    labels: str | Path | None = None,
) -> DataPlace:
    """The place that a text names; InvalidSpec: no folder or JSON data set, or the crop is not in (0, 1]."""
    if crop_fraction is not None and not 0 < crop_fraction <= 1:
        raise wrong((CROP,), "must be above 0 and at most 1", given=crop_fraction)
    file = None if labels is None else str(labels)
    return replace(_place_of(text), crop_fraction=crop_fraction, class_names=class_names, labels=file)


def _place_of(text: str) -> DataPlace:
    if text.lstrip().startswith("{"):
        given = json_object(text, ("data",))
        return DataPlace(str(given.get("name")), None, given.get("params", {}))
    name, colon, rest = text.partition(":")
    if colon and re.fullmatch(r"\w+", name):
        path = Path(rest).expanduser()
    elif "/" in text or text.startswith((".", "~")):
        name, path = "", Path(text).expanduser()
    elif Path(text).is_dir() and text not in load().names("data"):
        name, path = "", Path(text)
    else:
        return DataPlace(text)
    if path.is_file():
        raise wrong(("data",), "is a file: give its folder", given=text, allowed=str(path.parent))
    if not path.is_dir():
        raise wrong(("data",), f"there is no folder {path.absolute()}", given=text)
    check_utf_8(("data",), path)
    return DataPlace(name or None, path.resolve())


def check_root(place: DataPlace, components: Sequence[Component]) -> None:
    """Refuse a data set from a folder where there is no data root."""
    name = data_spec(place, components)["name"]
    component = next(one for one in components if one["name"] == name)
    needed = [
        key
        for key, schema in properties_of(component).items()
        if _is_folder(schema) and (place.params.get(key) or schema.get("default", "") is not None)
    ]
    if needed and place.root() is None:
        folder = place.params.get(needed[0]) or properties_of(component)[needed[0]].get("default") or "PATH"
        allowed = f"{name}:PATH, with its path; or --data-root FOLDER (ASSAY_DATA_ROOT), which has {folder}/"
        raise wrong(("data",), "is read from a folder, and no data root is set", given=name, allowed=allowed)


def data_spec(place: DataPlace, components: Sequence[Component], *, whole: bool = False) -> dict[str, Any]:
    """A job's data at a place below the service's data root, by the components of kind "data".

    `whole`: every example of a folder without parts trains and is evaluated; else a fifth is evaluated.
    """
    known = {str(one["name"]): one for one in components}
    labelled = (one for one, about in known.items() if (about.get("facts") or {}).get("class_folders"))
    name = place.name or next(labelled)
    if name not in known:
        message = "there is no such data set"
        raise wrong(("data",), message, given=name, allowed=sorted(known), nearest=nearest(name, known))
    given = {
        **place.params,
        **_crop(place, known[name], components),
        **_names(place, known[name], components),
    }
    if place.path is None:
        return {"name": name, "params": given}
    root = place.root()
    assert root is not None
    parameter = next((key for key, schema in properties_of(known[name]).items() if _is_folder(schema)), None)
    if parameter is None:
        raise wrong(("data",), f"the data set {name!r} is at no path", given=str(place.path))
    params = {**given, parameter: place.path.relative_to(root).as_posix()}
    splits = properties_of(known[name]).get("splits", {}).get("enum", ())
    if whole and "all" in splits and not any((place.path / part).is_dir() for part in PARTS):
        params["splits"] = "all"
    return {"name": name, "params": params}


def _crop(place: DataPlace, data: Component, components: Sequence[Component]) -> dict[str, float]:
    if place.crop_fraction is None:
        return {}
    if CROP not in properties_of(data):
        message = f"the data set {data['name']!r} does not crop its images: they are resized as a whole"
        able = sorted(str(one["name"]) for one in components if CROP in properties_of(one))
        raise wrong((CROP,), message, given=place.crop_fraction, allowed=able)
    return {CROP: place.crop_fraction}


def _names(place: DataPlace, data: Component, components: Sequence[Component]) -> dict[str, list[str]]:
    if place.class_names is None:
        return {}
    if NAMES not in properties_of(data):
        message = f"the data set {data['name']!r} has an order of classes of its own"
        able = sorted(str(one["name"]) for one in components if NAMES in properties_of(one))
        error = wrong((NAMES,), message, given=list(place.class_names[:10]), allowed=able)
        raise by_labels(error, place)
    return {NAMES: [*place.class_names]}


def by_labels(error: InvalidSpec, place: DataPlace) -> InvalidSpec:
    """The same error; about names of classes it names the option, and the file, that states them."""
    details = [
        one.model_copy(
            update={"loc": [NAMES]}
            if place.labels is None
            else {"loc": ["labels"], "message": f"{place.labels}: {one.message}", "given": place.labels}
        )
        if one.loc[-1:] == [NAMES]
        else one
        for one in error.details
    ]
    message = error.message
    for old, new in zip(error.details[:1], details, strict=False):
        first = f"{path_text(new.loc)}: {new.message}"
        message = message.replace(f"{path_text(old.loc)}: {old.message}", first, 1)
    return type(error)(message, details)


def properties_of(component: Component) -> Mapping[str, Any]:
    """The schema of each parameter of a component, by name."""
    found: Mapping[str, Any] = component["schema"].get("properties", {})
    return found


def _is_folder(schema: Mapping[str, Any]) -> bool:
    return any(branch.get("folder", False) for branch in schema.get("anyOf", [schema]))


def check_utf_8(loc: tuple[str, ...], path: Path) -> None:
    """Refuse a path that torch, safetensors and a job's spec cannot hold."""
    if NOT_UTF_8.search(str(path)):
        raise wrong(loc, "the path is not UTF-8; rename it", given=shown_name(str(path)))


def json_object(text: str, loc: tuple[str, ...]) -> dict[str, Any]:
    """The object that a text is in JSON."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise wrong(loc, f"is no JSON: {error}", given=text) from None
    if not isinstance(found, dict):
        raise wrong(loc, "must be an object", given=text)
    return dict(found)


def wrong(loc: tuple[str, ...], message: str, **more: Any) -> InvalidSpec:
    """The error about one field; `more` as in `Problems.add`."""
    problems = Problems()
    problems.add(loc, message, **more)
    return InvalidSpec(f"{path_text(loc)}: {message}", problems.details)
