"""Files with names of classes in order, as models come with them.

One name a line (labels.txt), or JSON: a list, an object of texts by number (`id2label`, also inside a larger
object such as a config.json), or of numbers by text (`label2id`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.service.contract.errors import MalformedJson
from assay.service.contract.problems import nearest
from assay.service.contract.strict_json import parse_json

MAX_BYTES = 8 * 2**20
MAX_DEPTH = 16
MAX_NAME = 200
FORMS = 'one name a line; or JSON: ["cat", "dog"], {"0": "cat", "1": "dog"}, or an object with id2label'


class BadClassNames(ValueError):
    """A file or text has no names of classes; the message says why."""


def class_names_of(text: str) -> list[str]:
    """The names that an option states, in a file or with commas between; BadClassNames as below."""
    if (path := Path(text).expanduser()).is_file():
        return read_class_names(path)
    if text.lstrip()[:1] in ("[", "{"):
        return class_names_in(text)
    if "," not in text:
        folder = path.parent if path.parent.is_dir() else Path()
        near = nearest(path.name, [entry.name for entry in folder.iterdir() if entry.is_file()])
        guess = f"; did you mean the file {str(folder / near)!r}?" if near else ""
        raise BadClassNames(
            f"{text[:100]!r} is a single name, and no file; wanted: the names of all classes with commas"
            f" between them (cat,dog), or a file with them{guess}"
        )
    return class_names_in("\n".join(text.split(",")))


def read_class_names(path: Path) -> list[str]:
    """The names in a file, class 0 first; BadClassNames names a file unread, too long or of another form."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadClassNames(f"{path} has more than {MAX_BYTES} bytes")
        text = path.read_text(encoding="utf-8-sig")
        return class_names_in(text)
    except (OSError, UnicodeDecodeError) as error:
        raise BadClassNames(f"{path} cannot be read: {error}") from error
    except BadClassNames as error:
        raise BadClassNames(f"{path}: {error}; wanted: {FORMS}") from error


def class_names_in(text: str) -> list[str]:
    """The names in a text, class 0 first; BadClassNames: none, one twice or too long, gaps in numbers."""
    if text.lstrip()[:1] in ("[", "{"):
        try:
            names = _of_json(parse_json(text.encode(), MAX_DEPTH))
        except (MalformedJson, UnicodeEncodeError) as error:
            raise BadClassNames(f"it begins like JSON and is none: {error}") from error
    else:
        names = [line.strip() for line in text.splitlines() if line.strip()]
    if not names:
        raise BadClassNames("it has no names of classes")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise BadClassNames(f"it has the class {twice[0]!r} twice")
    if odd := [name for name in names if not (1 <= len(name) <= MAX_NAME and name.isprintable())]:
        raise BadClassNames(f"the name {odd[0][:40]!r} is none of 1 to {MAX_NAME} printable characters")
    return names


def _of_json(content: Any) -> list[str]:
    if isinstance(content, Mapping):
        for key in ("id2label", "label2id", "label_names", "class_names"):
            if isinstance(content.get(key), Mapping | list):
                return _of_json(content[key])
        return _of_mapping(content)
    if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
        raise BadClassNames("the JSON is no list of texts and no object of numbers and texts")
    return content


def _of_mapping(content: Mapping[str, Any]) -> list[str]:
    if content and all(type(value) is int for value in content.values()):
        numbers = {value: name for name, value in content.items()}
    elif all(key.isdecimal() and len(key) < 10 and isinstance(value, str) for key, value in content.items()):
        numbers = {int(key): value for key, value in content.items()}
    else:
        raise BadClassNames("the JSON object has neither a text for each number nor a number for each text")
    if sorted(numbers) != list(range(len(content))):
        raise BadClassNames(f"the classes must have the numbers 0 to {len(content) - 1}, each once")
    return [numbers[number] for number in sorted(numbers)]
