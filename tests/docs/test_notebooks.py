"""The notebooks run, and are stored with outputs that hold on every machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.notebooks import NOTEBOOKS, execute, read
from tests.e2e.running import RunningService

MAX_BYTES = 150_000
PATH = re.compile(r"/(?:tmp|home|root|work|Users)/")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    service = RunningService(tmp_path_factory.mktemp("notebooks") / "state", ASSAY_WORKERS="2")
    service.start()
    yield service
    service.close()


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["comparing-models", "first-results"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_whole_small_and_the_same_everywhere(path: Path) -> None:
    notebook = read(path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(cell.metadata for cell in notebook.cells)
    outputs = [output for cell in cells for output in cell.outputs]
    assert len(outputs) >= 5
    assert not [
        output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"
    ]
    text = json.dumps(outputs)
    assert not PATH.findall(text)
    assert "127.0.0.1" not in text
    assert path.stat().st_size < MAX_BYTES


@pytest.mark.tutorial
@pytest.mark.trains
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, service: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_URL", service.client.url)
    assert execute(path).cells[-1].execution_count


@pytest.mark.tutorial
@pytest.mark.trains
def test_a_notebook_starts_a_service_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_URL", raising=False)
    assert execute(NOTEBOOKS[-1]).cells[-1].execution_count
