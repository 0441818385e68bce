"""`assay run`: a list of jobs, posted, waited for and shown as one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.cli import commands, main
from assay.service.cli.job_lists import read, resolved, stand_in
from assay.service.client import AssayClient
from assay.service.client import transport as transport_module
from assay.service.submission.validate import validate

ROOT = Path(__file__).resolve().parents[3]
LISTS = sorted((ROOT / "docs").glob("*.jobs.json"))


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, transport: Any, tmp_path: Path
) -> Any:
    def run(jobs: list[dict[str, Any]], *arguments: str) -> tuple[int, str, str]:
        (tmp_path / "jobs.json").write_text(json.dumps({"jobs": jobs}))
        code = main.main(["run", "jobs.json", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    return run


@pytest.fixture
def pair(train_body: Any, evaluate_body: Any) -> list[dict[str, Any]]:
    """A training, and an attack on its model."""
    attack = evaluate_body(name="attacked")
    attack["model"] = {"name": "tiny_vit", "weights": {"job": "@trained"}}
    return [train_body(name="trained"), attack]


@pytest.fixture
def working(monkeypatch: pytest.MonkeyPatch, worker: Any, app_store: Any) -> None:
    """While the client waits, the jobs are done one after another."""

    def work(seconds: float) -> None:
        (job, *_) = app_store.jobs.page(state="queued")[0][::-1]
        if job.kind == "train":
            worker.train(job.id)
        else:
            worker.run(job.id, [1, 1, 1, 0], [1, 0, 0, 0])

    monkeypatch.setattr(transport_module.time, "sleep", work)


@pytest.mark.usefixtures("working")
def test_a_list_becomes_a_table_of_what_nothing_else_is_made_from(run: Any, pair: Any) -> None:
    code, out, err = run(pair)
    assert code == 0
    table = out.split("\n\n")[0].splitlines()
    assert table[0] == "| job | clean: top1, % | pgd epsilon=2/255: top1, % | n |"
    assert [line.split(" | ")[:2] for line in table[2:]] == [["| attacked", "75.0 [30.1, 95.4]"]]
    assert "trained" in err, "progress goes to standard error"


@pytest.mark.usefixtures("working")
def test_a_metric_that_no_result_has_is_named(run: Any, pair: Any) -> None:
    code, _, err = run(pair, "--metric", "top1", "--metric", "tpo1")
    assert code == 0
    assert "no result has the metric 'tpo1'; did you mean 'top1'? (there are top1" in err


@pytest.mark.usefixtures("working")
def test_json_has_every_job(run: Any, pair: Any) -> None:
    answer = json.loads(run(pair, "--json")[1])
    assert list(answer) == ["trained", "attacked"]
    weights = answer["attacked"]["job"]["spec"]["model"]["weights"]
    assert weights["job"] == answer["trained"]["job"]["id"]
    assert answer["attacked"]["results"]["complete"] is True


def test_a_dry_run_stores_nothing_and_names_what_it_cannot_check(run: Any, pair: Any, app_store: Any) -> None:
    code, out, _ = run(pair, "--dry-run")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[1:3]] == [
        ["trained", "train"],
        ["attacked", "evaluate"],
    ]
    assert "2 jobs: " in out
    assert "as earlier jobs of the list make the weights: attacked" in out
    assert app_store.jobs.page()[0] == []
    assert list(json.loads(run(pair, "--dry-run", "--json")[1])["jobs"]) == ["trained", "attacked"]


def test_a_list_with_refused_jobs_stores_none_and_names_all(run: Any, pair: Any, app_store: Any) -> None:
    pair[1]["evaluations"] = [{"name": "pdg"}]
    third = {**pair[0], "name": "third", "seed": "x"}
    code, out, err = run([*pair, third])
    assert (code, out) == (2, "")
    assert "jobs[1] 'attacked': " in err
    assert "jobs[1].evaluations[0].name: " in err
    assert "did you mean 'pgd'?" in err
    assert "jobs[2].seed: " in err
    assert "no such job" not in err
    assert app_store.jobs.page()[0] == []


def test_what_is_refused_only_at_submission_cancels_the_jobs_before_it(
    run: Any, pair: Any, app_store: Any
) -> None:
    pair[1]["model"]["params"] = {}
    pair[1]["model"]["name"] = "other_vit"
    code, _, err = run(pair)
    assert code == 2
    assert "jobs[1].model.name: the weights are of the model 'tiny_vit'" in err
    (job,) = app_store.jobs.page()[0]
    assert job.state == "canceled"


def test_a_dry_run_takes_the_parameters_of_the_job_that_trains_the_model() -> None:
    train = {"name": "a", "model": {"name": "vit", "params": {"width": 24, "heads": 3}}}
    own = {"model": {"name": "vit", "params": {"heads": 2}, "weights": {"job": "@a"}}}
    assert stand_in(own, [train])["model"] == {
        "name": "vit",
        "params": {"width": 24, "heads": 2},
        "weights": {"job": "@a"},
    }
    other = {"model": {"name": "symvit", "weights": {"job": "@a"}}}
    part = {"model": {"name": "vit", "weights": {"job": "@a", "part": "backbone"}}}
    for spec in (other, part, train):
        assert stand_in(spec, [train]) == spec


def test_a_bad_list_posts_nothing(run: Any, pair: Any, app_store: Any) -> None:
    code, _, err = run(pair[::-1])
    assert code == 2
    assert "jobs[0].model.weights.job: a job may refer to earlier jobs of the list only" in err
    assert app_store.jobs.page()[0] == []


def test_a_failed_job_is_1_and_the_rest_is_shown(
    run: Any, train_body: Any, evaluate_body: Any, worker: Any, app_store: Any, monkeypatch: Any
) -> None:
    def work(seconds: float) -> None:
        for job in app_store.jobs.page(state="queued")[0]:
            if job.kind == "train":
                worker.fail(job.id)
            else:
                worker.run(job.id, [1, 1, 1, 0], [1, 0, 0, 0])

    monkeypatch.setattr(transport_module.time, "sleep", work)
    code, out, err = run([train_body(name="fails"), evaluate_body(name="works")])
    assert code == 1
    assert "| works | 75.0" in out
    assert "fails: job " in err
    assert "failed: 8 GB were not enough" in err


@pytest.mark.usefixtures("working")
def test_repeating_it_with_a_key_gives_the_same_jobs(run: Any, pair: Any, app_store: Any) -> None:
    first = run(pair, "--idempotency-key", "night")[1]
    assert run(pair, "--idempotency-key", "night")[1] == first
    assert len(app_store.jobs.page()[0]) == 2


class Training:
    """A finished training job, as far as validation looks at it."""

    kind, state, expired = "train", "succeeded", False

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec


def validated(path: Path) -> list[dict[str, Any]]:
    """The specs of a list, as the service would take them."""
    done: dict[str, Training] = {}
    for job in read(path.read_bytes()):
        spec = resolved(job, {name: name for name in done})
        done[job["name"]] = Training(validate(load(), spec, find_job=done.get).spec)
    return [job.spec for job in done.values()]


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_list_of_the_documentation_is_valid(path: Path) -> None:
    assert {spec["kind"] for spec in validated(path)} == {"train", "evaluate"}


def facts_of_model(name: str) -> dict[str, Any]:
    return load().find("model", name).facts or {}


def test_the_lists_train_every_model_and_attention() -> None:
    trained = [spec["model"] for path in LISTS for spec in validated(path) if spec["kind"] == "train"]
    attentions = [model["params"]["attention"] for model in trained if model["name"] == "vit"]
    trainable = {one.name for one in load().list("attention") if "analysis_only" not in (one.facts or {})}
    assert {attention["name"] for attention in attentions} == trainable
    built = {model: load().find("model", model).target for model in load().names("model")}
    del built["exported"]  # nothing trains it
    del built["torchvision"]  # reads three channels, which no data set of every installation has
    built = {name: target for name, target in built.items() if not facts_of_model(name).get("pulled_only")}
    assert {built[model["name"]] for model in trained} == set(built.values())


def test_names_and_specs_are_refused_together(run: Any) -> None:
    job = {"kind": "train", "model": {"name": "vit"}, "data": {"name": "digits"}, "nam": "a"}
    other = {"kind": "train", "name": "b", "model": {"name": "vitt"}, "data": {"name": "digits"}}
    code, _, err = run([job, other])
    assert code == 2
    assert "jobs[0].name: every job of a list needs a name; 'nam' is no field" in err
    assert "jobs[0].nam: unknown field" in err
    assert "jobs[1].model.name: " in err


@pytest.fixture
def submit_list(run: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    def submit_list(*arguments: str) -> tuple[int, str, str]:
        code = main.main(["submit", "jobs.json", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return submit_list


@pytest.mark.costly
@pytest.mark.usefixtures("working")
@pytest.mark.parametrize("more", [(), ("--json",), ("--metric", "top1"), ("--dry-run",)])
def test_submit_waits_for_a_list_as_run_does(run: Any, submit_list: Any, pair: Any, more: Any) -> None:
    old, new = (
        run(pair, *more, "--idempotency-key", "k"),
        submit_list("--wait", *more, "--idempotency-key", "k"),
    )
    assert (old[0], old[1]) == (new[0], new[1])
    assert old[0] == 0


def test_submit_posts_a_list_and_prints_its_ids(
    run: Any, submit_list: Any, pair: Any, app_store: Any
) -> None:
    run(pair, "--dry-run")
    code, out, _ = submit_list()
    assert code == 0
    ids = dict(line.split("  ") for line in out.splitlines())
    assert {app_store.jobs.get(job_id).name: name for job_id, name in ids.items()} == {
        name: name for name in ("trained", "attacked")
    }
    answer = json.loads(submit_list("--json")[1])
    assert [answer[name]["state"] for name in ("trained", "attacked")] == ["queued", "waiting"]
