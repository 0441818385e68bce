"""The pages of evidence follow from the outcomes beside them, and a change of an outcome shows."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
from pathlib import Path

import pytest

from assay.service.studies.primary import Primary
from assay.service.studies.results import MeasuredArm, StudyPlan
from benchmarks.evidence import __main__ as command
from benchmarks.evidence.__main__ import differences
from benchmarks.evidence.archive import FOLDER, Archive, joined, load, reduced, save
from benchmarks.evidence.pages import _table, drawn, label, section, stale
from tests.support.studies import Method, study_arms

CELLS = [(Method(0.5), Method(0.6)), (Method(0.3), Method(0.3))]
FACTS = {
    "study": "0" * 26,
    "fixed_at": "2026-11-29T20:00:00.000Z",
    "first_run": "2026-11-29T20:00:05.000Z",
    "seconds": 3600,
    "jobs": 24,
    "code": {"commit": "0" * 40},
    "packages": {"torch": "2.15"},
    "device": {"name": "a processor", "instruction_set": "AVX2", "threads": 1},
}


def simulated(seeds: range) -> Archive:
    """A study of two arms with these seeds, of 8."""
    whole = study_arms(CELLS, 8, 61, "evidence")
    arms = [
        MeasuredArm(arm.name, arm.trained, [run for run in arm.runs if run.seed in seeds], arm.configuration)
        for arm in whole
    ]
    plan = StudyPlan("0" * 26, "one", "holm", list(seeds), None, Primary(0, None, "other"))
    return Archive({"kind": "study", "seeds": list(seeds)}, plan, reduced(plan, arms), dict(FACTS))


def test_the_committed_evidence_agrees() -> None:
    files = sorted(FOLDER.glob("*.json.gz"))
    assert [problem for path in files for problem in differences(path)] == []
    assert stale(FOLDER, write=False) == []


def test_a_study_comes_back_from_its_file(tmp_path: Path) -> None:
    study = simulated(range(6))
    path = tmp_path / "one.json.gz"
    save(path, study)
    found, stated = load(path)
    assert found.results() == stated == study.results()
    assert stated.primary is not None
    save(tmp_path / "two.json.gz", found)
    assert (tmp_path / "two.json.gz").read_bytes() == path.read_bytes()


def test_a_changed_outcome_shows(tmp_path: Path) -> None:
    path = tmp_path / "one.json.gz"
    save(path, simulated(range(6)))
    assert differences(path) == []
    value = json.loads(gzip.decompress(path.read_bytes()))
    columns = value["arms"][1]["runs"][0]["columns"]["0"]
    assert columns["correct"][0] != "0"
    columns["correct"] = "0" + columns["correct"][1:]
    path.write_bytes(gzip.compress(json.dumps(value).encode()))
    assert any("cells does not follow" in problem for problem in differences(path))


def test_studies_of_other_seeds_are_one_study(tmp_path: Path) -> None:
    save(tmp_path / "later.json.gz", simulated(range(3, 6)))
    later, _ = load(tmp_path / "later.json.gz")
    whole = joined([later, simulated(range(3))])
    assert whole.results() == simulated(range(6)).results()
    assert (whole.facts["jobs"], whole.facts["seconds"]) == (48, 7200)
    assert [part["study"] for part in whole.facts["parts"]] == ["0" * 26] * 2
    with pytest.raises(ValueError, match="share seeds"):
        joined([whole, later])
    other = Archive({**later.spec, "limit": 5}, later.plan, later.arms, later.facts)
    with pytest.raises(ValueError, match="more than their seeds"):
        joined([other, simulated(range(3))])


def test_files_of_earlier_sessions_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    moved = simulated(range(3, 6))
    moved.facts.update({"fixed_at": "2026-11-30T01:00:00.000Z", "code": {"commit": "1" * 40}})
    for name, part in (("early", simulated(range(3))), ("late", moved)):
        save(tmp_path / f"{name}.json.gz", part)
    files = [str(tmp_path / f"{name}.json.gz") for name in ("late", "early")]
    monkeypatch.setattr("sys.argv", ["evidence", "collect", "whole", *files])
    assert command.main() == 0
    found, _ = load(tmp_path / "whole.json.gz")
    assert found.results() == simulated(range(6)).results()
    design = tmp_path / "whole.study.json"
    design.write_text('{"seeds": [0, 1, 2, 3, 4, 5, 6, 7]}')
    text = section("whole", tmp_path / "whole.json.gz")
    assert "48 jobs, seeds 0 to 5 of 8 designed, 2.0 hours" in text
    assert f"SHA-256 of the file `{hashlib.sha256(design.read_bytes()).hexdigest()[:16]}`" in text
    assert "code `00000000`, `11111111`" in text
    assert "Fixed at 2026-11-29 20:00 UTC, before" in text
    monkeypatch.setattr("sys.argv", ["evidence", "collect", "whole", "0" * 26])
    with pytest.raises(SystemExit):
        command.main()


def test_metrics_of_an_evaluation_are_rows_of_their_own() -> None:
    found = simulated(range(3)).results()
    first, *others = found.cells
    again = first.model_copy(update={"metric": "top5"})
    several = found.model_copy(update={"cells": [first, again, *others]})
    assert [text.split("|")[1].strip() for text in _table(several)[2:-1:2]] == [
        "cell 0: top1", "cell 0: top5", *(label(cell) for cell in others),
    ]  # fmt: skip
    assert "cell 0: top1" in drawn(several)


def test_each_mean_stands_below_its_arm() -> None:
    """Also where the baseline is not the first arm of the design."""
    study = simulated(range(8))
    plan = dataclasses.replace(study.plan, baseline="other", primary=None)
    results = dataclasses.replace(study, plan=plan).results()
    head, _, means, differences_row, *_ = _table(results)
    told = dict(zip(*(row.strip("|").split(" | ") for row in (head, means)), strict=True))
    for arm in results.cells[0].arms:
        assert arm.mean is not None
        (cell,) = (cell for name, cell in told.items() if name.strip(" |") == arm.arm)
        assert cell.startswith(f"{100 * arm.mean:.1f} ±")
    assert "less the baseline" in differences_row


def test_pages_are_made_and_checked(tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    save(folder / "one.json.gz", simulated(range(6)))
    (folder / "one.study.json").write_text('{"seeds": 6}')
    page = folder / "page.md"
    folder.with_suffix(".md").write_text("no study\n")
    page.write_text("before\n<!-- evidence one -->\n<!-- end -->\nafter\n")
    assert len(stale(folder, write=False)) == 2
    assert stale(folder, write=True) == []
    assert stale(folder, write=False) == []
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert section("one", folder / "one.json.gz") in text
    page.write_text(text.replace("primary p", "p"))
    assert len(stale(folder, write=False)) == 1
    page.write_text("<!-- evidence two -->\n<!-- end -->\n")
    assert stale(folder, write=False) == ["page.md: there is no two.json.gz"]
