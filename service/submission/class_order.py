"""The order of classes: whole numbers by value, other names as text, or the stated order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from assay.service.contract.problems import nearest
from assay.service.files.class_names import BadClassNames, read_class_names
from assay.service.submission.data_folders import check_inside

NUMBER = re.compile(r"-?[0-9]{1,300}")
NAMED = 10  # Names in a message.


class WrongClasses(ValueError):
    """Names of classes contradict each other or the data; the message names them."""


def in_order(names: Iterable[str]) -> list[str]:
    """Names of classes by value, if all whole numbers, else as text; WrongClasses for "1" beside "01"."""
    found = sorted(names)
    if not all(NUMBER.fullmatch(name) for name in found):
        return found
    counts = Counter(map(int, found))
    if same := [name for name in found if counts[int(name)] > 1]:
        raise WrongClasses(
            f"the classes {_quoted(sorted(same, key=int))} are the same numbers: which class comes first is"
            " not clear; rename them"
        )
    return sorted(found, key=int)


def are_places(names: Sequence[str]) -> bool:
    """Whether the names are the numbers of their own places, "0" to "n-1" in order: no other is meant."""
    return all(NUMBER.fullmatch(name) and int(name) == place for place, name in enumerate(names))


def in_stated_order(stated: Sequence[str], found: Sequence[str], where: str, noun: str) -> list[str]:
    """The names that the data have, in the order that is stated.

    Names that differ only in upper case, spaces, `_` and `-` are the same where only one name is so. Raises
    WrongClasses: a name is stated twice, or the names are not the same; names all, with the nearest.
    """
    if twice := [name for name, count in Counter(stated).items() if count > 1]:
        raise WrongClasses(f"the class names have {_quoted(twice)} twice")
    exact = {*found}
    same = {key: names for key, names in _by_plain(found).items() if len(names) == 1}
    alike = _by_plain(stated)
    order = {}
    for name in stated:
        if name in exact:
            order[name] = name
        elif len(alike[plain(name)]) == 1 and plain(name) in same:
            order[name] = same[plain(name)][0]
    missing = [name for name in stated if name not in order]
    surplus = [name for name in found if name not in order.values()]
    if missing or surplus:
        raise WrongClasses("; ".join(_differences(missing, surplus, where, noun)))
    return [order[name] for name in stated]


def stated_names(
    folder: Path, base: Path, class_names: Sequence[str] | None, class_names_file: str | None
) -> Sequence[str] | None:
    """The classes in order as names, or a file in the data set's folder, state them; None where unstated.

    `base` is the data root, without links. WrongClasses: both are stated, or the file is missing or has no
    names. ValueError: a symbolic link leads out of the root.
    """
    if class_names is not None and class_names_file is not None:
        raise WrongClasses("class_names and class_names_file both state the order of the classes: give one")
    if class_names_file is None:
        return class_names
    path = folder / class_names_file
    if Path(class_names_file).name != class_names_file or not path.is_file():
        there = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
        near = nearest(class_names_file, there)
        guess = f"; did you mean {near!r}?" if near else ""
        raise WrongClasses(
            f"{folder} has no file {class_names_file[:100]!r} with the names of its classes{guess}"
        )
    check_inside(path, base)
    try:
        return read_class_names(path)
    except BadClassNames as error:
        raise WrongClasses(str(error)) from error


def plain(name: str) -> str:
    """A name in lower case, with spaces for `_` and `-`."""
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def _by_plain(names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(plain(name), []).append(name)
    return found


def _differences(missing: Sequence[str], surplus: Sequence[str], where: str, noun: str) -> Iterable[str]:
    if missing:
        near = {name: nearest(name, list(surplus)) for name in missing[:NAMED]}
        shown = [f"{name!r} (did you mean {one!r}?)" if one else repr(name) for name, one in near.items()]
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        yield f"{where} has no {noun} for the class names {', '.join(shown)}{more}"
    if surplus:
        yield f"{where} has the {noun}s {_quoted(surplus)}, which the class names lack"


def _quoted(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(map(repr, names[:NAMED])) + more
