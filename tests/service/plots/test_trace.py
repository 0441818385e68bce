"""The plot of an attack's steps on an example, and the warnings of which they are a case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.service.contract.findings.traces import VERSION, TracedStep
from assay.service.files.file_store import FolderFiles
from assay.service.plots.trace import MAX_SERIES, PANELS, read_steps, seen_codes, trace
from assay.service.store.rows import ArtifactRow

JOB = "0" * 26


def step(
    number: int, objective: float | None, margin: float = 1.0, gradient: float | None = 0.5
) -> TracedStep:
    return TracedStep("pgd", 0, number, objective, margin, 0.1, 0.2, gradient)


def test_a_panel_for_each_number_has_all_iterates_in_order() -> None:
    steps = [step(0, 1.0), step(1, None), TracedStep("square", 1, 0, 2.0, -0.5, 0.1, 0.2, None)]
    spec = trace(steps, "x3")
    rows = spec["data"]["values"]
    assert [row["iterate"] for row in rows] == [0, 1, 2]
    assert [row["series"] for row in rows] == ["pgd, restart 0", "pgd, restart 0", "square, restart 1"]
    assert [panel["encoding"]["y"]["field"] for panel in spec["concat"]] == list(PANELS)
    assert "3 iterates, margin from 1 to -0.5" in spec["description"]


@pytest.mark.parametrize("stages", [1, 100])
def test_more_series_than_colours_are_drawn_by_stage_or_as_others(stages: int) -> None:
    steps = [TracedStep(f"s{one % stages}", one, 0, 1.0, 1.0, 0.1, 0.2, None) for one in range(100)]
    spec = trace(steps, "x")
    shown = [row["series"] for row in spec["data"]["values"]]
    wanted = ["s0"] if stages == 1 else [*(f"s{one}" for one in range(MAX_SERIES - 1)), "others"]
    assert list(dict.fromkeys(shown)) == wanted
    assert spec["concat"][0]["encoding"]["color"]["scale"]["domain"] == wanted


@pytest.mark.parametrize(
    ("place", "given"),
    [(0, "a" * 65), (0, "a\x1b"), (0, "a\n"), (0, ""), (1, -1), (1, 2**31), (2, -1), (2, 10**30)],
)
def test_a_step_out_of_bounds_is_not_drawn(tmp_path: Path, place: int, given: object) -> None:
    good: list[Any] = ["apgd-ce", 0, 1, 1.0, 1.0, 0.1, 0.2, None]
    bad = [*good[:place], given, *good[place + 1 :]]
    for listed, count in ([good], 1), ([good, bad], 0):
        content = {"version": VERSION, "columns": TracedStep._fields, "examples": {"x": listed}}
        path = tmp_path / JOB / "trace-000-apgd-00000000.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
        row = ArtifactRow(JOB, path.name, str(path), path.stat().st_size, "a", "", 0.0, None)
        assert len(read_steps(FolderFiles(tmp_path), row, "x")) == count


def test_steps_are_cases_of_warnings_by_their_rules() -> None:
    rising = [step(number, 0.1 * number) for number in range(20)]
    assert seen_codes(rising) == {"unconverged"}
    assert seen_codes([*rising[:-1], step(19, 9.0, margin=-1.0)]) == set()
    assert seen_codes([*rising[:-2], step(18, 1.71), step(19, 1.71)]) == set()
    assert seen_codes([step(0, 1.0, gradient=0.0), step(1, None)]) == {"zero_gradient"}
    assert seen_codes([step(0, 1.0, gradient=None), step(1, 1.0)]) == set()
    assert seen_codes([]) == set()
