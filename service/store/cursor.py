"""Cursors of keyset pagination: opaque to clients, the last id or name of the page inside."""

from __future__ import annotations

import base64
import binascii
import re

from assay.service.contract.errors import ErrorDetail, InvalidSpec
from assay.service.store.ids import is_id


def encode(last_id: str) -> str:
    """The cursor of the page that follows this id."""
    return base64.urlsafe_b64encode(last_id.encode("ascii")).decode("ascii").rstrip("=")


def decode(cursor: str, pattern: str | None = None) -> str:
    """The id in a cursor, or with a pattern the name that matches it.

    Raises:
        InvalidSpec: when the cursor is none that this service made.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        last_id = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (UnicodeError, binascii.Error):
        last_id = ""
    known = is_id(last_id) if pattern is None else re.fullmatch(pattern, last_id) is not None
    if not known or encode(last_id) != cursor:
        detail = ErrorDetail(
            loc=["query", "cursor"],
            message="not a cursor of this service",
            given=cursor[:100].encode("ascii", "replace").decode("ascii"),
            allowed="the next_cursor of an earlier page",
        )
        raise InvalidSpec("the cursor is not valid", [detail])
    return last_id
