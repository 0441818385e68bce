"""Programs with planted faults, and their refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.models.programs.reading import UnsafeProgram
from assay.service.files.program_file import BadProgram
from tests.support.archives import GRAPH
from tests.support.programs import edited, load

WEIGHTS = "data/weights/model_weights_config.json"


Edit = Callable[[Any], None]


CODE = "__import__('os').system('touch hacked')"


def refused(plain: Path, tmp_path: Path, edit: Edit, reason: str, entry: str = GRAPH) -> None:
    with pytest.raises((UnsafeProgram, BadProgram), match=reason):
        load(edited(plain, tmp_path / "bad.pt2", edit, entry))


def graph(content: Any) -> Any:
    return content["graph_module"]["graph"]


def calls(target: str, *arguments: Any, names: tuple[str, ...] = ()) -> Edit:
    """Puts a call before all others."""

    def edit(content: Any) -> None:
        inputs = [
            {"name": names[at] if at < len(names) else "", "arg": argument, "kind": 1}
            for at, argument in enumerate(arguments)
        ]
        node = {"target": target, "inputs": inputs, "outputs": [{"as_tensor": {"name": "evil"}}]}
        graph(content)["nodes"].insert(0, {**node, "metadata": {}})

    return edit
