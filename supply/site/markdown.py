"""Pieces of Markdown: cells, tables, and the lists of CommonMark as Python-Markdown reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from assay.service.catalog.schema_text import describe

ITEM = re.compile(r"( *)([-*+]|\d{1,9}[.)])( +)(?=\S)")
FENCE = re.compile(r" *(```+|~~~+)")
INDENT = 4


def code(text: str) -> str:
    """Text as code, also if it has backticks."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def value(given: Any) -> str:
    """A JSON value as code."""
    return code(json.dumps(given, ensure_ascii=False))


def cell(text: str) -> str:
    """Text for one cell of a table: its code stays code, everything else is shown as it is written."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    shown = [part if part.startswith("`") else re.sub(r"([<*|\\\[\]_])", r"\\\1", part) for part in parts]
    return "".join(part.replace("|", r"\|") if part.startswith("`") else part for part in shown)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def allowed(schema: Any) -> str:
    """The values that a schema allows, in words and with every name of an enumeration."""
    branches = schema.get("anyOf", [schema])
    texts = []
    for branch in sorted(branches, key=lambda one: one.get("type") == "null"):
        if "$ref" in branch:
            texts.append(branch["$ref"].rpartition("/")[2])
        elif "enum" in branch:
            texts.append(", ".join(value(one) for one in branch["enum"]))
        elif "const" in branch:
            texts.append(value(branch["const"]))
        elif branch.get("type") == "array" and "$ref" in branch.get("items", {}):
            texts.append(f"a list of {branch['items']['$ref'].rpartition('/')[2]}")
        elif branch.get("type") == "array" and "enum" in branch.get("items", {}):
            texts.append("a list of " + ", ".join(value(one) for one in branch["items"]["enum"]))
        elif "allOf" in branch or "oneOf" in branch:
            texts.append(" or ".join(allowed(one) for one in branch.get("allOf", branch.get("oneOf", []))))
        elif "type" not in branch and "anyOf" not in branch:
            texts.append("any JSON")
        else:
            texts.append(_words(branch))
    return " or ".join(dict.fromkeys(texts))


def _words(schema: Any) -> str:
    if isinstance(schema.get("type"), list) and "component" in schema:
        return f"a component of kind {code(schema['component'])}: its name, or its `name` and `params`"
    if schema.get("type") == "array":
        items = schema.get("items", {})
        if "anyOf" in items or "oneOf" in items or "type" not in items:
            return f"a list of {allowed(items)}" if items else "a list"
    if schema.get("format") == "date-time":
        return "a time, ISO 8601"
    return describe(schema)


def for_python_markdown(text: str) -> str:
    """The same document, its lists indented by four for each level and with an empty line before each.

    In CommonMark, which GitHub shows, a list may follow a paragraph at once, and what belongs to an item is
    indented as far as its text. Python-Markdown, which MkDocs uses, needs an empty line and four spaces.
    """
    lines: list[str] = []
    depths: list[int] = []  # column of the text of each open item
    fence = ""
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if not line.strip():
            lines.append("")
            continue
        if not fence:
            item = ITEM.match(line)
            lazy = bool(lines and lines[-1]) and not item and not FENCE.match(line)
            if not lazy or (indent == 0 and line[0] in "#|<"):
                while depths and indent < depths[-1]:
                    depths.pop()
            if item:
                if not depths and lines and lines[-1] and not lines[-1].startswith("#"):
                    lines.append("")
                lines.append(" " * (INDENT * len(depths)) + line[indent:])
                depths.append(item.end())
                continue
        mark = FENCE.match(line)
        base = depths[-1] if depths else 0
        lines.append(" " * (INDENT * len(depths) + max(indent - base, 0)) + line[indent:])
        if mark:
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
    return "\n".join(lines)
