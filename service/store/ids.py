"""Job ids: ULIDs (github.com/ulid/spec) in lower case, so that sorting by id sorts by creation.

48 bits of milliseconds, then 80 random bits, as 26 letters of Crockford's base 32.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import threading

from assay.service.contract.errors import ErrorDetail, InvalidSpec

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
LENGTH = 26
TIME_LENGTH = 10
RANDOM_BITS = 80
PATTERN = re.compile(f"[0-7][{ALPHABET}]{{{LENGTH - 1}}}")


class _Sequence:
    def __init__(self) -> None:
        self.last = 0
        self._lock = threading.Lock()

    def after(self, fresh: int) -> int:
        """The fresh number, or the successor of the last one if the clock stood still or ran back."""
        with self._lock:
            self.last = max(fresh, self.last + 1)
            return self.last


_sequence = _Sequence()


def new_id(seconds: float) -> str:
    """A ULID (unix seconds), later than all of this process. ValueError: before 1970 or after 10889."""
    milliseconds = int(seconds * 1000)
    if not 0 <= milliseconds < 2**48:
        raise ValueError(f"seconds is {seconds}, allowed: 0 to {2**48 // 1000}")
    fresh = (milliseconds << RANDOM_BITS) | secrets.randbits(RANDOM_BITS)
    value = _sequence.after(fresh)
    return "".join(ALPHABET[(value >> shift) & 31] for shift in range(5 * (LENGTH - 1), -1, -5))


def created_at(job_id: str) -> float:
    """When an id was made, in unix seconds, to the millisecond."""
    number = 0
    for letter in job_id[:TIME_LENGTH]:
        number = number * len(ALPHABET) + ALPHABET.index(letter)
    return number / 1000


def is_id(text: str) -> bool:
    """Whether the text has the shape of a job id."""
    return PATTERN.fullmatch(text) is not None


def encode_cursor(last_id: str) -> str:
    """The cursor of the page after this id, or another ASCII text."""
    return base64.urlsafe_b64encode(last_id.encode("ascii")).decode("ascii").rstrip("=")


def decode_cursor(cursor: str, pattern: str | None = None) -> str:
    """The id, or the text that matches a pattern, in a cursor. Raises InvalidSpec: a foreign cursor."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        last_id = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (UnicodeError, binascii.Error):
        last_id = ""
    known = is_id(last_id) if pattern is None else re.fullmatch(pattern, last_id) is not None
    if not known or encode_cursor(last_id) != cursor:
        raise foreign_cursor(cursor)
    return last_id


def foreign_cursor(cursor: str) -> InvalidSpec:
    """The error for a cursor that no page of the list has given."""
    detail = ErrorDetail(
        loc=["query", "cursor"],
        message="not a cursor of this service",
        given=cursor[:100].encode("ascii", "replace").decode("ascii"),
        allowed="the next_cursor of an earlier page",
    )
    return InvalidSpec("the cursor is not valid", [detail])
