"""Collects all errors of a body, so that the user gets them in one answer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.service.contract.errors import ErrorDetail, InvalidSpec, WeightsUnavailable, nearest_name

Loc = tuple[str | int, ...]

MAX_DETAILS = 100
MAX_TEXT = 200
MAX_MESSAGE = 1500  # Maximum length of a message, which may list the gaps of a folder.
MAX_ITEMS = 20
MAX_SHOWN_DEPTH = 4
MAX_SHOWN = 2000  # Characters of a rendered value; a longer one is cut to its outermost level.
MAX_ALLOWED = 100
MAX_INTEGER = 2**63 - 1


class Problems:
    """Wrong fields in the order in which they are found; after `max_details` they are only counted."""

    def __init__(self, max_details: int = MAX_DETAILS) -> None:
        self.max_details = max_details
        self.details: list[ErrorDetail] = []
        self.unlisted = 0
        self.not_pulled = 0  # How many of the details are weights that are not pulled.

    def __len__(self) -> int:
        return len(self.details)

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return len(self.details) >= self.max_details

    def add(
        self,
        loc: Loc,
        message: str,
        *,
        given: object = None,
        allowed: Iterable[object] | str | None = None,
        nearest: str | None = None,
    ) -> None:
        """Note a wrong field; of `given` a safe, short form is kept, `allowed` are values or a text."""
        if self.full:
            self.unlisted += 1
            return
        self.details.append(
            ErrorDetail(
                loc=[readable(part) if isinstance(part, str) else part for part in loc],
                message=message,
                given=show(given),
                allowed=_listed(allowed),
                nearest=nearest,
            )
        )

    def add_not_pulled(self, loc: Loc, message: str, *, given: object, allowed: str) -> None:
        """Note weights that are not pulled: alone they make a `WeightsUnavailable`."""
        self.add(loc, message, given=given, allowed=allowed)
        self.not_pulled += 1

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Notes the details of an InvalidSpec of the block, in place of raising it."""
        try:
            yield
        except InvalidSpec as error:
            self.details += error.details

    def raise_if_any(self) -> None:
        """Raise InvalidSpec with all details, if any; WeightsUnavailable if weights alone are not pulled."""
        if not self.details:
            return
        first = self.details[0]
        others = len(self) - 1 + self.unlisted
        more = f" (and {others} more)" if others else ""
        if self.unlisted:
            more = f" (and at least {others} more; {len(self) - 1} listed)"
        kind = WeightsUnavailable if self.not_pulled == len(self) else InvalidSpec
        raise kind(f"{path_text(first.loc)}: {first.message}{more}", self.details)


def nearest(
    given: object, known: Iterable[str], also: Mapping[str, Iterable[str]] | None = None
) -> str | None:
    """The known name most similar to the given one, ignoring case; None for anything but a short text.

    `also` has other words for names, which go first; capitals and punctuation in them do not count.
    """
    if not isinstance(given, str) or len(given) > MAX_TEXT:
        return None
    by_lower = {name.lower(): name for name in known}
    if given.lower() in by_lower:
        return by_lower[given.lower()]
    word = _letters(given)
    for name, words in (also or {}).items():
        if word and word in map(_letters, words):
            return name
    found = nearest_name(given.lower(), by_lower)
    return by_lower[found] if found is not None else None


def message_of(error: Mapping[str, Any]) -> str:
    """An error of pydantic (an item of `ValidationError.errors()`) in the words of every other refusal."""
    kind, context = str(error["type"]), error.get("ctx") or {}
    if context.get("min_length") == 1:
        return "must not be empty"
    if kind in _MESSAGES:
        limits = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in context.items()}
        return _MESSAGES[kind].format(**limits)
    if kind == "string_pattern_mismatch":
        counted = re.fullmatch(r"\^\[([^\]]+)\]\{(\d+)\}\$", context["pattern"])
        form = f"{counted[2]} characters of {counted[1]}" if counted else f"the form {context['pattern']}"
        return f"must have {form}"
    return str(error["msg"]).removeprefix("Value error, ")


# By pydantic's name of an error; the limits are in its context.
_MESSAGES: dict[str, str] = json.loads(Path(__file__).with_name("problems.json").read_text(encoding="utf-8"))


def _letters(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())


def path_text(loc: Iterable[str | int]) -> str:
    """A place as readable text: `evaluations[0].params.epsilon`; `body` for the whole."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "body"


def readable(text: str, max_length: int = MAX_TEXT) -> str:
    """Text safe for any encoder and database, cut to so many characters."""
    cut = text if len(text) <= max_length else text[:max_length] + "..."
    return cut.encode("utf-8", "backslashreplace").decode().replace("\0", "\\u0000")


def show(value: object, depth: int = 0) -> Any:
    """A short rendering of any value that is always valid JSON: no NaN, no endless text, no deep nesting."""
    shown = _shown(value, depth)
    if depth or not isinstance(shown, dict | list) or len(json.dumps(shown)) <= MAX_SHOWN:
        return shown
    outermost = _shown(value, MAX_SHOWN_DEPTH - 1)
    return outermost if len(json.dumps(outermost)) <= 2 * MAX_SHOWN else "..."


def _shown(value: object, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, int):
        return value if abs(value) <= MAX_INTEGER else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping | list | tuple):
        return _show_container(value, depth)
    return type(value).__name__


def _show_container(value: Mapping[Any, Any] | list[Any] | tuple[Any, ...], depth: int) -> Any:
    if depth >= MAX_SHOWN_DEPTH:
        return "..."
    if isinstance(value, Mapping):
        most = MAX_ITEMS + ("..." in value)  # What was shortened before keeps its count.
        items = list(value.items())[:most]
        shown = {readable(str(key)): _shown(item, depth + 1) for key, item in items}
        return shown | ({"...": f"{len(value) - most} more"} if len(value) > most else {})
    last = value[-1] if len(value) == MAX_ITEMS + 1 else None
    most = MAX_ITEMS + (isinstance(last, str) and last.startswith("... ") and last.endswith(" more"))
    shown_items = [_shown(item, depth + 1) for item in value[:most]]
    return shown_items + ([f"... {len(value) - most} more"] if len(value) > most else [])


def _listed(allowed: Iterable[object] | str | None) -> Any:
    if allowed is None or isinstance(allowed, str):
        return allowed
    values = [readable(one, MAX_MESSAGE) if isinstance(one, str) else one for one in allowed]
    return values if len(values) <= MAX_ALLOWED else f"one of {len(values)} values, listed in the catalog"


def renamed(error: InvalidSpec, name: Callable[[list[str | int]], list[str | int]]) -> InvalidSpec:
    """The same error, its places as the caller knows them."""
    details = [one.model_copy(update={"loc": name(one.loc)}) for one in error.details]
    message = error.message
    if details:
        message = message.replace(path_text(error.details[0].loc), path_text(details[0].loc), 1)
    return type(error)(message, details)
