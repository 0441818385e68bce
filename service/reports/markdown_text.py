"""Text for Markdown documents: what users wrote is shown as they wrote it."""

from __future__ import annotations

import re

ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# Emphasis, code, links, footnotes, mathematics and cells of tables. An underscore inside a word has no
# meaning, nor have brackets without a target.
SPECIAL = re.compile(r"[\\`*~|$&<>]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])|\[(?=\^)")


def escape_markdown(text: str) -> str:
    """The text with a backslash before everything that Markdown gives a meaning, and without HTML."""
    return SPECIAL.sub(lambda found: ENTITIES.get(found[0], f"\\{found[0]}"), text)
