"""Executes the notebooks of docs/; `python -m tests.docs.notebooks` stores them with the outputs of a run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 120
# In the text of an object: where it was in memory.
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def read(path: Path) -> Any:
    """The notebook."""
    return nbformat.read(path, as_version=4)


def execute(path: Path) -> Any:
    """The notebook with the outputs of a run; raises CellExecutionError with the first cell that fails."""
    notebook = read(path)
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3").execute(cwd=str(path.parent))
    return notebook


def strip(notebook: Any) -> None:
    """Removes what changes with each run: times, counts, addresses, and texts of what is shown as HTML."""
    notebook.metadata.pop("language_info", None)
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if {"text/html", "image/svg+xml", "text/markdown"} & data.keys():
                data.pop("text/plain", None)
            if "text/plain" in data:
                data["text/plain"] = ADDRESS.sub("", data["text/plain"])


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or NOTEBOOKS:
        executed = execute(path)
        strip(executed)
        nbformat.write(executed, path)
        print(path.name)
