"""Specs in files: JSON or YAML, and the line of every field, which errors name.

YAML is read as YAML 1.2 reads it, with less freedom: true and false are the only booleans (`no` and `on` are
texts), `1e-3` is a number, dates and `8/255` are texts, keys are texts. Refused are tags, merge keys (`<<`),
keys given twice, several documents, and aliases that would make the spec larger than a spec can be.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.service.cli import output
from assay.service.cli.profiles import UsageError
from assay.service.contract.errors import AssayError, MalformedJson
from assay.service.contract.problems import Loc
from assay.service.contract.strict_json import MAX_CONTAINERS, parse_json

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 40
YAML_ENDINGS = (".yaml", ".yml")

_LINE = re.compile(r"(?:the body is )?(.*) at line (\d+), column (\d+)", re.DOTALL)
# Plain texts that are no texts, as in the core schema of YAML 1.2.
_CONSTANTS: Mapping[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)


class RefusedSpec(Exception):
    """The service refuses a spec; the text names the line of each field."""


@dataclass(frozen=True)
class SpecFile:
    """A spec as it was read."""

    name: str
    body: bytes
    value: Any
    lines: Mapping[Loc, int] = field(default_factory=dict)

    def where(self, loc: Loc) -> str:
        """`train.yaml:7: ` for a place or what holds it; the file's name alone where no line is known."""
        line = self.lines.get(self._known(loc), 0)
        return f"{self.name}:{line}: " if line else f"{self.name}: "

    def rank(self, loc: Loc) -> int:
        """Rank of a place, or of what holds it, in the order of the file; 0 where none is known."""
        known = self._known(loc)
        return next((rank for rank, place in enumerate(self.lines, 1) if place == known), 0)

    def _known(self, loc: Loc) -> Loc:
        """The innermost place with a line: the place itself or a place around it; () without a line."""
        loc = self._of_defaults(loc) if self._is_default(loc) else loc
        return next((loc[:length] for length in range(len(loc), 0, -1) if loc[:length] in self.lines), ())

    def _is_default(self, loc: Loc) -> bool:
        return loc[:1] == ("jobs",) and loc[:3] not in self.lines and self._of_defaults(loc)[:3] in self.lines

    def _of_defaults(self, loc: Loc) -> Loc:
        try:
            kind = self.value["jobs"][loc[1]]["kind"]
        except (KeyError, IndexError, TypeError):
            return ()
        return ("defaults", str(kind), *loc[2:])

    @contextmanager
    def pointing(self) -> Iterator[None]:
        """Errors of the service inside name the lines of their fields, in the order of the file."""
        try:
            yield
        except AssayError as error:
            if not error.details or error.status >= 500:
                raise
            raise RefusedSpec(output.error_text(error, self.where, self.rank)) from None


def read_spec(file: str) -> SpecFile:
    """The spec in a file, or in standard input for "-"."""
    name = "<stdin>" if file == "-" else file
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{name}: has {len(raw)} bytes; allowed: {MAX_BYTES}")
    if not raw.strip():
        raise UsageError(f"{name}: the file is empty; allowed: a spec as JSON or YAML")
    as_yaml = file.endswith(YAML_ENDINGS) or (file == "-" and raw.lstrip()[:1] not in (b"{", b"[", b""))
    return _yaml_file(name, raw) if as_yaml else _json_file(name, raw)


def _json_file(name: str, raw: bytes) -> SpecFile:
    try:
        value = parse_json(raw, MAX_DEPTH)
    except MalformedJson as error:
        found = _LINE.fullmatch(error.message)
        place, message = (f":{found[2]}:{found[3]}", found[1]) if found else ("", error.message)
        raise UsageError(f"{name}{place}: {message.replace('the body', 'the spec', 1)}") from None
    try:
        # JSON is YAML in which a tabulator is no space.
        lines = _Reader(name, raw.decode().replace("\t", " ")).lines
    except (UsageError, ImportError):
        lines = {}
    return SpecFile(name, raw, value, lines)


def _yaml_file(name: str, raw: bytes) -> SpecFile:
    try:
        reader = _Reader(name, raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: is not UTF-8: {error.reason} at byte {error.start}") from None
    body = json.dumps(reader.value).encode()
    try:
        value = parse_json(body, MAX_DEPTH)
    except MalformedJson as error:
        raise UsageError(f"{name}: {error.message.replace('the body', 'the spec', 1)}") from None
    return SpecFile(name, body, value, reader.lines)


class _Reader:
    """Reads a document from PyYAML's events, which construct nothing."""

    def __init__(self, name: str, text: str) -> None:
        import yaml

        self._name = name
        self._kinds = yaml
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0
        self.lines: dict[Loc, int] = {}
        try:
            self._events = yaml.parse(text, Loader=yaml.SafeLoader)
            next(self._events)
            first = next(self._events)
            empty = isinstance(first, yaml.StreamEndEvent)
            self.value: Any = None if empty else self._value(next(self._events), (), 0)
            if not empty:
                next(self._events)
                if not isinstance(last := next(self._events), yaml.StreamEndEvent):
                    raise self._wrong(last, "another document begins; allowed: one")
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            raise UsageError(f"{name}{place}: not YAML: {error.problem or error.context}") from None
        except yaml.YAMLError as error:
            raise UsageError(f"{name}: not YAML: {' '.join(str(error).split())}") from None

    def _wrong(self, event: Any, message: str) -> UsageError:
        mark = event.start_mark
        return UsageError(f"{self._name}:{mark.line + 1}:{mark.column + 1}: {message}")

    def _value(self, event: Any, loc: Loc, depth: int) -> Any:
        self.lines.setdefault(loc, event.start_mark.line + 1)
        before = self._count
        self._count += 1
        if isinstance(event, self._kinds.AliasEvent):
            if event.anchor not in self._anchors:
                raise self._wrong(event, f"*{event.anchor} has no anchor before it")
            found, size = self._anchors[event.anchor]
            self._count += size
        elif event.tag is not None:
            raise self._wrong(event, f"the tag {event.tag} is not read; allowed: plain YAML without tags")
        elif isinstance(event, self._kinds.ScalarEvent):
            found = _plain(event.value) if event.style is None else event.value
        elif depth >= MAX_DEPTH:
            raise self._wrong(event, f"is nested too deeply; allowed: {MAX_DEPTH} levels")
        elif isinstance(event, self._kinds.SequenceStartEvent):
            found = self._list(loc, depth)
        else:
            found = self._object(loc, depth)
        if self._count > MAX_CONTAINERS:
            raise self._wrong(
                event, f"the spec has too many values; allowed: {MAX_CONTAINERS}, aliases included"
            )
        if not isinstance(event, self._kinds.AliasEvent) and event.anchor is not None:
            self._anchors[event.anchor] = found, self._count - before
        return found

    def _list(self, loc: Loc, depth: int) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self._events), self._kinds.SequenceEndEvent):
            found.append(self._value(event, (*loc, len(found)), depth + 1))
        return found

    def _object(self, loc: Loc, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), self._kinds.MappingEndEvent):
            if not isinstance(event, self._kinds.ScalarEvent):
                raise self._wrong(event, "a key must be text")
            key = event.value
            if key == "<<" and event.style is None:
                raise self._wrong(event, "merge keys (<<) are not read; a list of jobs has defaults")
            if key in found:
                raise self._wrong(event, f"the key {key!r} is given twice")
            self.lines[*loc, key] = event.start_mark.line + 1
            found[key] = self._value(next(self._events), (*loc, key), depth + 1)
        return found


def _plain(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    # An integer of so many digits is refused later, with its place.
    if _INTEGER.fullmatch(text) and len(text) < 4000:
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text
