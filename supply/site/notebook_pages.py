"""Notebooks as pages: the text, the code and the stored outputs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def page(path: Path) -> str:
    """A notebook as Markdown, with a link to its file."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    first, *rest = ["\n".join(_cell(one)) for one in cells]
    heading, _, text = first.partition("\n")
    link = f"The notebook itself: [{path.name}]({path.name})"
    return "\n\n".join([heading, link, text.strip(), *rest]) + "\n"


def _cell(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
    elif cell["cell_type"] == "code":
        yield f"```python\n{source}\n```\n"
        for output in cell["outputs"]:
            yield _output(output)


def _output(output: Mapping[str, Any]) -> str:
    data = output.get("data", {})
    for kind in ("text/html", "image/svg+xml"):
        if kind in data:
            # Markdown ends a block of HTML at an empty line.
            lines = "".join(data[kind]).splitlines()
            return f'<div class="output">{" ".join(line for line in lines if line.strip())}</div>\n'
    if "text/markdown" in data:
        return "".join(data["text/markdown"])
    text = "".join(output.get("text", data.get("text/plain", []))).rstrip("\n")
    return f"```text\n{text}\n```\n"
