"""`assay study` and `assay studies`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.service.cli import commands, main
from assay.service.client import AssayClient
from assay.service.client import transport as transport_module
from assay.service.store.results import ResultRows
from assay.service.store.store import Store
from assay.service.store.tenants import View
from assay.service.studies.store import Studies


@pytest.fixture
def assay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, transport: Any, tmp_path: Path
) -> Any:
    """Runs the command line on a study of two arms: exit code, standard output, standard error."""
    spec = {
        "kind": "study",
        "name": "widths",
        "arms": [
            {"name": "narrow", "model": {"name": "tiny_vit", "params": {"width": 16}}},
            {"name": "wide", "model": {"name": "tiny_vit", "params": {"width": 64}}},
        ],
        "data": {"name": "digits"},
        "recipe": {"name": "short"},
        "seeds": [0, 1],
        "evaluations": [{"name": "clean"}, {"name": "pgd", "params": {"epsilon": "2/255"}}],
    }
    (tmp_path / "a.study.json").write_text(json.dumps(spec))

    def assay(*arguments: str) -> tuple[int, str, str]:
        code = main.main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    return assay


@pytest.fixture
def working(monkeypatch: pytest.MonkeyPatch, worker: Any, app_store: Store) -> None:
    """While the client waits, the jobs are done one after another."""

    def work(seconds: float) -> None:
        (job, *_) = app_store.jobs.page(state="queued")[0][::-1]
        if job.kind == "train":
            worker.train(job.id)
        else:
            better = job.spec["model"]["params"]["width"] == 64
            worker.run(job.id, [1, int(better), 0, job.spec["seed"] % 2] * 20, [int(better), 1, 0, 0] * 20)

    monkeypatch.setattr(transport_module.time, "sleep", work)


@pytest.mark.usefixtures("working")
def test_a_study_becomes_a_table_of_its_arms(assay: Any) -> None:
    code, out, err = assay("study", "a.study.json")
    assert code == 0
    table = out.split("\n\n")[0].splitlines()
    assert table[0].startswith("| evaluation | metric | narrow | arm | mean ± sd | difference [95 %] |")
    assert [line.split(" | ")[0] for line in table[2:]] == ["| clean", "| pgd 2/255"]
    assert "8 jobs" in err, "progress goes to standard error"
    assert "succeeded, 100% (8/8 jobs): 8 succeeded" in err


@pytest.mark.usefixtures("working")
def test_another_number_of_seeds(assay: Any) -> None:
    answer = json.loads(assay("study", "a.study.json", "--seeds", "3", "--json")[1])
    assert (answer["seeds"], answer["complete"]) == ([0, 1, 2], True)


@pytest.mark.costly
@pytest.mark.usefixtures("working")
@pytest.mark.parametrize("more", [("--json",), ("--dry-run",), ()])
def test_study_is_the_older_name_of_studies_run(assay: Any, more: Any) -> None:
    line = ("a.study.json", *more, "--idempotency-key", "k")
    old, new = assay("study", *line), assay("studies", "run", *line)
    assert (old[0], old[1]) == (new[0], new[1])
    assert old[0] == 0


def test_a_dry_run_prints_the_plan(assay: Any, app_store: Store) -> None:
    code, out, _ = assay("study", "a.study.json", "--dry-run", "--seeds", "1")
    assert code == 0
    assert "4 jobs (2 trainings, 2 evaluations)" in out
    assert "every column is over 1 seed, ~ is not measured\n" in out
    assert "note: one seed" in out
    assert Studies(app_store, View(None, everything=True)).page()[0] == []


def test_the_columns_of_a_plan_are_over_all_seeds(assay: Any) -> None:
    def planned(seeds: str) -> tuple[list[list[str]], dict[str, Any]]:
        asked = ("study", "a.study.json", "--dry-run", "--seeds", seeds)
        lines = assay(*asked)[1].splitlines()
        assert f"every column is over {seeds} seed" in "\n".join(lines)
        assert "note: not measured yet: a guess of 100,000 forward passes a second" in "\n".join(lines)
        return [line.replace("~", "").split() for line in lines[1:3]], json.loads(assay(*asked, "--json")[1])

    once, answer = planned("1")
    thrice, _ = planned("3")
    for one, three, arm in zip(once, thrice, answer["arms"], strict=True):
        name, jobs, training, _, evaluation, _ = one
        assert (name, jobs, float(training), float(evaluation)) == (
            arm["name"],
            str(arm["jobs"]),
            pytest.approx(arm["train_seconds"], rel=0.01),
            pytest.approx(arm["evaluate_seconds"], rel=0.01),
        )
        assert [int(three[1]), float(three[2]), float(three[4])] == [
            3 * int(jobs),
            pytest.approx(3 * float(training), rel=0.02),
            pytest.approx(3 * float(evaluation), rel=0.02),
        ]


def test_a_wrong_study_is_2(assay: Any, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text('{"kind": "study", "arms": [{"name": "a"}], "seeds": 2}')
    code, out, err = assay("study", "b.json")
    assert (code, out) == (2, "")
    assert "arms[0].model: is required" in err


def test_its_life_from_the_command_line(assay: Any) -> None:
    code, out, _ = assay("study", "a.study.json", "--no-wait")
    study = out.strip()
    assert code == 0
    listing = assay("studies", "list")[1]
    assert assay("studies")[1] == listing
    assert study in listing
    assert "widths" in listing
    shown = assay("studies", "show", study)[1]
    assert "narrow" in shown
    assert "0/8 jobs" in shown
    _, shown, said = assay("studies", "extend", study, "1", "2")
    assert "0/12 jobs" in shown
    assert said == "the study has the seeds 1 already; added: 1\n"
    assert assay("studies", "extend", study, "2")[2] == "the study has the seeds 2 already; added: none\n"
    for verb in ("status", "results", "cancel", "report"):
        code, _, said = assay(verb, study)
        assert code == 2
        assert f"{study} is a study, not a job: `assay studies show {study}` shows it" in said
    assert "there is no job" in assay("status", study[::-1])[2]
    assert json.loads(assay("studies", "show", study, "--json")[1])["seeds"] == [0, 1, 2]
    assert assay("studies", "results", study)[0] == 2, "no results yet"
    assert assay("studies", "cancel", study)[2].strip() == "canceled"
    assert assay("studies", "retry", study)[2].strip() == "queued"
    assert assay("studies", "delete", study)[0] == 2, "it has not ended"
    assay("studies", "cancel", study)
    assert assay("studies", "delete", study)[0] == 0
    assert assay("studies", "show", study)[0] == 2


@pytest.mark.usefixtures("working")
def test_results_in_every_format(assay: Any) -> None:
    study = assay("study", "a.study.json", "--no-wait")[1].strip()
    assert assay("studies", "watch", study)[0] == 0
    assert assay("studies", "results", study)[1].startswith("| evaluation |")
    assert assay("studies", "results", study, "--format", "csv")[1].startswith("evaluation,params,")
    assert json.loads(assay("studies", "results", study, "--format", "json")[1])["study"] == study


def test_a_failed_study_is_1_and_says_how_to_resume(
    assay: Any, monkeypatch: pytest.MonkeyPatch, worker: Any, app_store: Store
) -> None:
    def work(seconds: float) -> None:
        for job in app_store.jobs.page(state="queued")[0]:
            worker.fail(job.id)

    monkeypatch.setattr(transport_module.time, "sleep", work)
    code, _, err = assay("study", "a.study.json")
    assert code == 1
    assert "8 GB were not enough" in err
    assert "assay studies retry" in err


def test_a_study_is_measured_and_cut_to_a_budget(
    assay: Any, worker: Any, app_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two arms that no job has measured: a job for each, then the study, which says what it gave up."""
    measured: list[str] = []

    def work(seconds: float) -> None:
        (job, *_) = app_store.jobs.page(state="queued")[0][::-1]
        assert (job.tags, job.spec["limit"], len(job.spec["evaluations"])) == (["budget"], 256, 1)
        assert job.spec["model"]["weights"] is None
        worker.run(job.id, [1] * 20)
        measured.append(job.name)
        if len(measured) == 2:
            monkeypatch.setattr(ResultRows, "seconds_per_pass", lambda *_: (1e-3, 5000))

    monkeypatch.setattr(transport_module.time, "sleep", work)
    code, _, err = assay("studies", "run", "a.study.json", "--seeds", "6", "--budget", "3m", "--no-wait")
    assert (code, sorted(measured)) == (0, ["speed of narrow", "speed of wide"])
    assert "changed by a budget of 180 s: 4 seeds of 6" in " ".join(err.split())
    with pytest.raises(SystemExit):
        assay("studies", "run", "a.study.json", "--budget", "soon")
