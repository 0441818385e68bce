from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from assay.service.api import jobs as api_of_jobs
from assay.service.cli import commands, main
from assay.service.cli.usage import Topic
from assay.service.client import AssayClient
from assay.service.client import transport as transport_module
from assay.service.contract.errors import NotFound
from assay.service.contract.summaries import JobSummary, SummaryValue
from assay.service.contract.warning_codes import WarningCode
from assay.service.store.row_mapping import summary_columns
from assay.service.store.store import Store

Make = Callable[..., dict[str, Any]]
SUBCOMMANDS = [
    "evaluate", "attack", "pull",
    "serve", "worker", "submit", "jobs", "status", "results", "cancel", "retry", "replan", "delete", "tag",
    "artifacts",
    "open", "completion", "config", "config list", "config get", "config set",
    "config unset", "config use",
    "download", "catalog", "warnings", "compare", "demo",
    "data", "data check", "data publish", "data stage", "data list",
    "keys", "keys create", "keys list", "keys revoke", "audit",
    "checkpoints", "checkpoints upload", "checkpoints list", "checkpoints show", "checkpoints delete",
    "import-pickle", "import-onnx", "sign", "verify", "gate", "mirror",
    "report",
    "webhooks", "webhooks add", "webhooks test",
    "studies", "studies run", "studies list", "studies show", "studies watch", "studies results",
    "studies extend",
    "studies cancel", "studies retry", "studies delete",
]  # fmt: skip


class Run:
    """Runs the command in this process against the application."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        try:
            code = main.main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, transport: Any, tmp_path: Path
) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_URL", raising=False)
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    monkeypatch.setattr(transport_module.time, "sleep", lambda seconds: None)
    return Run(capsys)


@pytest.fixture
def spec_file(tmp_path: Path) -> Callable[[dict[str, Any]], str]:
    def spec_file(spec: dict[str, Any]) -> str:
        path = tmp_path / "spec.json"
        path.write_text(json.dumps(spec))
        return str(path)

    return spec_file


@pytest.fixture
def submit(run: Run, spec_file: Any) -> Callable[[dict[str, Any]], str]:
    def submit(spec: dict[str, Any]) -> str:
        code, out, _ = run("submit", spec_file(spec))
        assert code == 0
        return out.strip()

    return submit


@pytest.mark.costly
@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_has_help_with_an_example_and_its_options(run: Run, name: str) -> None:
    code, out, _ = run(*name.split(), "--help")
    assert code == 0
    assert "example:\n" in out
    options, example = out.split("example:\n")
    assert f"assay {name}" in example
    for option in re.findall(r"--[a-z-]+", example):
        assert option in options or name == "data"


def test_help_and_help_more_list_each_subcommand_once(run: Run) -> None:
    code, out, _ = run("help", "more")
    assert code == 0
    first = re.findall(r"^  assay ([a-z-]+) ", run("--help")[1], re.MULTILINE)
    listed = re.findall(r"^  ([a-z-]+)  ", out, re.MULTILINE)
    assert {name.split()[0] for name in SUBCOMMANDS} <= {*first, *listed}
    assert len([*first, *listed]) == len({*first, *listed})
    assert "3 the service cannot be reached" in " ".join(out.split())


def test_the_short_help_counts_the_verbs_of_help_more(run: Run) -> None:
    code, out, _ = run("help")
    assert (code, out) == (0, run("--help")[1])
    more = run("help", "more")[1].partition("older names")[0]
    listed = re.findall(r"^  ([a-z-]+)(?:  |$)", more, re.MULTILINE)
    assert f"`assay help more` {len(listed)} more verbs" in out
    assert re.findall(r"^([a-z ]+):$", more, re.MULTILINE) == list(get_args(Topic))


OLDER = {
    "run": "submit --wait", "study": "studies run", "watch": "status --wait", "logs": "status --log",
    "table": "report --table", "export": "report --format robustbench",
}  # fmt: skip


def test_older_names_are_told_once_and_listed_nowhere_else(run: Run) -> None:
    more, _, old = run("help", "more")[1].partition("older names, which go on working:\n")
    assert dict(re.findall(r"^  ([a-z]+) +assay (.+)$", old, re.MULTILINE)) == OLDER
    listed = re.findall(r"^  ([a-z-]+)(?:  |$)", more, re.MULTILINE)
    assert not OLDER.keys() & {*listed}
    assert run("help", "watch") == run("help", "status")
    assert "options go after the verb: assay watch --profile dead" in run("--profile", "dead", "watch")[2]


@pytest.mark.costly
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("watch JOB", "status JOB --wait"),
        ("logs JOB", "status JOB --log"),
        ("logs JOB --json", "status JOB --log --json"),
        ("logs JOB -f", "status JOB --log --wait"),
        ("table JOB", "report JOB --table"),
        ("table JOB --format latex --rows epsilon", "report JOB --table --format tex --rows epsilon"),
        ("table JOB -o t.tex", "report JOB --table --format md -o t.tex"),
        ("table JOB --metric top1 -o t.md", "report JOB --table --metric top1 -o t.md"),
        ("export JOB --format robustbench", "report JOB --format robustbench"),
        ("export JOB --format robustbench -o made", "report JOB --format robustbench -o made"),
        ("results JOB --format csv", "results JOB --format=csv"),
        ("compare JOB OTHER --format markdown", "compare JOB OTHER --format md"),
        ("compare JOB OTHER --json", "compare JOB OTHER --format json"),
        ("watch nope", "status nope --wait"),
    ],
)
def test_an_older_name_does_exactly_what_the_new_name_does(
    run: Run, submit: Any, evaluate_body: Make, worker: Any, old: str, new: str
) -> None:
    job, other = submit(evaluate_body()), submit(evaluate_body(seed=1))
    for one in (job, other):
        worker.run(one, [1, 1, 1, 0], [1, 0, 0, 0])
    found = [run(*line.replace("JOB", job).replace("OTHER", other).split()) for line in (old, new)]
    now = re.compile(r"^[0-9T:-]+Z (?=an evaluation: )", re.MULTILINE)
    assert [now.sub("", text) if isinstance(text, str) else text for text in found[0]] == [
        now.sub("", text) if isinstance(text, str) else text for text in found[1]
    ]
    assert found[0][0] == (2 if "nope" in old else 0)
    assert found[0][2 if "nope" in old else 1]


@pytest.mark.costly
@pytest.mark.parametrize("form", ["md", "tex", "html", "markdown", "latex"])
def test_results_as_a_report(run: Run, submit: Any, evaluate_body: Make, worker: Any, form: str) -> None:
    job = submit(evaluate_body())
    worker.run(job, [1, 1, 1, 0], [1, 0, 0, 0])
    code, out, _ = run("results", job, "--format", form)
    start = {"html": "<!doctype html>", "tex": "% ", "latex": "% "}.get(form, "# ")
    assert (code, out[: len(start)]) == (0, start)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("report a --rows model", "--rows is of a table: give --table too"),
        ("report a --metric top1", "--metric is of a table: give --table too"),
        ("report --tag x --format robustbench", "--format robustbench takes job ids"),
        ("report a --format robustbench --table", "--format robustbench is no table"),
        ("report a --table --format doc", "invalid choice: 'doc'"),
        ("report a --table --format pdf", "--format pdf is of a report, not of a --table"),
        ("compare a b --format tex", "invalid choice: 'tex'"),
        ("studies results a --format xml", "invalid choice: 'xml'"),
    ],
)
def test_wrong_formats_are_refused(run: Run, line: str, said: str) -> None:
    code, out, err = run(*line.split())
    assert (code, out) == (2, "")
    assert said in err


def test_a_status_is_followed_to_json_alone(run: Run, submit: Any, train_body: Make, worker: Any) -> None:
    job = submit(train_body())
    worker.train(job)
    code, out, err = run("status", job, "--wait", "--json")
    assert (code, json.loads(out)["state"]) == (0, "succeeded")
    assert "succeeded" in err


def test_help_shows_the_help_of_a_verb_and_of_its_actions(run: Run) -> None:
    assert run("help", "results") == run("results", "--help")
    assert run("help", "keys", "create") == run("keys", "create", "--help")
    assert run("help", "results")[0] == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("help resluts", "`assay` has no verb 'resluts'; did you mean 'results'? `assay"),
        ("help keys lits", "`assay keys` has no action 'lits'; did you mean 'list'? `assay"),
        ("help xyzzy", "`assay` has no verb 'xyzzy'; `assay --help` lists all\n"),
        ("help --more", "unrecognized arguments: --more"),
    ],
)
def test_help_of_an_unknown_verb_names_the_nearest(run: Run, line: str, said: str) -> None:
    code, out, err = run(*line.split())
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        "", "nope", "submit", "jobs --stat x", "jobs --state x", "jobs --limit 0", "data", "status a b",
        "results a --format xml",
    ],
)  # fmt: skip
def test_wrong_usage_is_2(run: Run, line: str) -> None:
    code, _, err = run(*line.split())
    assert code == 2
    assert "usage:" in err if not line else err.count("\n") == 1 and "--help`" in err


def test_no_subcommand_gives_six_verbs_with_an_example_each(run: Run) -> None:
    code, out, err = run()
    assert (code, out) == (2, "")
    lines = re.findall(r"^  assay ([a-z]+) ", err, re.MULTILINE)
    assert lines == ["evaluate", "serve", "submit", "results", "compare", "report"]


def test_an_unknown_subcommand_names_the_nearest(run: Run) -> None:
    assert "`assay` has no verb 'resluts'; did you mean 'results'? `" in run("resluts")[2]
    assert "`assay keys` has no action 'lits'; did you mean 'list'? `" in run("keys", "lits")[2]


def test_submit_prints_the_id_alone(run: Run, spec_file: Any, train_body: Make, app_store: Any) -> None:
    code, out, err = run("submit", spec_file(train_body()))
    assert code == 0
    assert app_store.jobs.get(out.strip()).name == "a training"
    assert f"assay status {out.strip()} --wait" in err


def test_submit_reads_standard_input(run: Run, train_body: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        class buffer:  # noqa: N801 (as sys.stdin has it)
            @staticmethod
            def read() -> bytes:
                return json.dumps(train_body()).encode()

    monkeypatch.setattr(sys, "stdin", Input)
    code, out, err = run("submit", "-", "--dry-run")
    assert code == 0
    assert json.loads(out)["spec"]["recipe"]["params"] == {"epochs": 2}
    assert err.startswith(
        "estimate: 0.0862 s of computing on cuda (a guess of 100,000 forward passes a second"
    )
    assert err.endswith("; allowed: 2592000 s on cuda\n")


def test_an_invalid_spec_is_2_with_every_detail(run: Run, spec_file: Any, evaluate_body: Make) -> None:
    spec = evaluate_body(seed=-1, evaluations=[{"name": "pgd", "params": {"epsilonn": 1}}])
    code, out, err = run("submit", spec_file(spec))
    assert (code, out) == (2, "")
    assert "evaluations[0].params.epsilonn" in err
    assert "did you mean 'epsilon'?" in err
    assert "seed: " in err


def test_a_missing_file_is_2(run: Run) -> None:
    code, _, err = run("submit", "nope.json")
    assert (code, err) == (2, "error: cannot read nope.json: No such file or directory\n")


def test_an_unreachable_service_is_3(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    transport = httpx.MockTransport(refuse)
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    code, _, err = run("jobs", "--url", "http://127.0.0.1:9")
    assert code == 3
    assert "http://127.0.0.1:9" in err


def test_the_address_comes_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    inner = commands.AssayClient
    monkeypatch.setattr(commands, "AssayClient", lambda url: seen.append(url) or inner(url))
    monkeypatch.setenv("ASSAY_URL", "http://localhost:1234")
    run("jobs")
    run("jobs", "--url", "http://localhost:9")
    assert seen == ["http://localhost:1234", "http://localhost:9"]


def test_jobs_and_status(run: Run, submit: Any, train_body: Make, app_store: Store) -> None:
    first, second = submit(train_body()), submit(train_body(name="evil \x1b[31m name"))
    code, out, _ = run("jobs")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["ID", second, first]
    assert "\x1b" not in out
    assert len(json.loads(run("jobs", "--limit", "1", "--json")[1])) == 1
    clean = SummaryValue(metric="top1", value=0.87, n=9)
    worst = SummaryValue(metric="top1", value=0.5, n=9, at="8/255")
    app_store.jobs.summarise(first, summary_columns(JobSummary(clean=clean, worst=worst)))
    header, line, other = run("jobs", "--sort=-worst")[1].splitlines()
    assert "87.0 %" in line[header.index("CLEAN") - 2 :]
    assert "50.0 % at 8/255" in line[header.index("WORST") - 2 :]
    assert (line.split()[0], other.split()[0]) == (first, second)
    code, out, _ = run("status", first)
    assert code == 0
    assert "queued" in out
    assert json.loads(run("status", first, "--json")[1])["id"] == first


def test_watch_follows_to_the_end(run: Run, submit: Any, train_body: Make, worker: Any) -> None:
    job_id = submit(train_body())
    worker.train(job_id)
    code, out, err = run("watch", job_id)
    assert (code, err) == (0, "")
    assert "succeeded" in out


def test_watch_ends_with_the_summary(run: Run, submit: Any, evaluate_body: Make, worker: Any) -> None:
    job_id = submit(evaluate_body())
    worker.run(job_id, [1, 1, 1, 0], [1, 0, 0, 0])
    code, out, _ = run("watch", job_id)
    assert code == 0
    clean, worst, sentence = out.splitlines()[-3:]
    assert clean.split()[:3] == ["clean", "top1", "75.0"]
    assert worst.split()[:5] == ["worst", "case", "pgd", "2/255", "top1"]
    assert sentence == "1 of 4 images hold at 2/255 under the strongest attack run; clean 3 of 4."
    assert run("status", job_id, "--wait", "--full")[1].count("\n") > out.count("\n")


def test_an_older_service_without_the_sentence(
    run: Run, submit: Any, evaluate_body: Make, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submit(evaluate_body())
    worker.run(job_id, [1, 1, 1, 0], [1, 0, 0, 0])
    whole = AssayClient._json

    def without(client: AssayClient, method: str, path: str, **more: Any) -> Any:
        found = whole(client, method, path, **more)
        return {name: part for name, part in found.items() if name != "headline"}

    monkeypatch.setattr(AssayClient, "_json", without)
    code, out, _ = run("results", job_id)
    assert code == 0
    assert out.splitlines()[-1].startswith("worst case")


def test_watch_of_a_canceled_job_gives_no_empty_reason(run: Run, submit: Any, train_body: Make) -> None:
    job_id = submit(train_body())
    run("cancel", job_id)
    code, _, err = run("watch", job_id)
    assert (code, err.splitlines()[-1]) == (1, f"job {job_id} canceled")


def test_watch_of_a_failed_job_is_1(run: Run, submit: Any, train_body: Make, worker: Any) -> None:
    job_id = submit(train_body())
    worker.fail(job_id)
    code, out, err = run("watch", job_id)
    assert code == 1
    assert err.endswith("failed: 8 GB were not enough\n")
    assert (out + err).count("8 GB were not enough") == 1, "a failure is said once"


def test_submit_and_watch(
    run: Run, spec_file: Any, train_body: Make, worker: Any, app_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow = AssayClient.events

    def work(client: AssayClient, job_id: str) -> Any:
        worker.train(job_id)
        return follow(client, job_id)

    monkeypatch.setattr(AssayClient, "events", work)
    code, out, _ = run("submit", spec_file(train_body()), "--watch")
    assert code == 0
    states = re.findall("queued|starting|running|succeeded", out)
    assert list(dict.fromkeys(states)) == ["queued", "starting", "running", "succeeded"]


def test_watch_polls_a_service_without_events(
    run: Run, submit: Any, train_body: Make, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(client: AssayClient, job_id: str) -> Any:
        raise NotFound("no route")

    job_id = submit(train_body())
    monkeypatch.setattr(AssayClient, "events", none)
    monkeypatch.setattr(transport_module.time, "sleep", lambda seconds: worker.train(job_id))
    code, out, _ = run("watch", job_id)
    assert code == 0
    assert "succeeded" in out


def test_results_in_three_formats(run: Run, submit: Any, evaluate_body: Make, worker: Any) -> None:
    job_id = submit(evaluate_body())
    code, _, err = run("results", job_id)
    assert code == 2
    assert "no results" in err
    worker.run(job_id, [1, 1, 1, 0], [1, 0, 0, 0])
    short = run("results", job_id)[1]
    assert short.splitlines()[-1].startswith("1 of 4 images hold at 2/255")
    table = run("results", job_id, "--full")[1]
    assert table.endswith("\n".join(short.splitlines()[-4:]) + "\n"), "the summary stands last"
    assert "75.0 %" in table
    assert "epsilon=2/255" in table
    assert "pgd: steps=10 protocol=pixel data=digits" in table
    assert json.loads(run("results", job_id, "--format", "json")[1])["complete"] is True
    assert run("results", job_id, "--format", "csv")[1].startswith("evaluation,params")


def test_cancel_retry_delete(run: Run, submit: Any, train_body: Make) -> None:
    job_id = submit(train_body())
    assert run("cancel", job_id)[:2] == (0, "canceled\n")
    assert run("cancel", job_id)[0] == 2
    assert run("retry", job_id)[:2] == (0, "queued, attempt 2\n")
    assert run("delete", job_id)[0] == 2
    run("cancel", job_id)
    assert run("delete", job_id)[:2] == (0, "")
    assert run("status", job_id)[0] == 2


def test_tags_of_several_jobs_are_changed_and_refusals_named(
    run: Run, submit: Any, train_body: Make, app_store: Store
) -> None:
    ids = [submit(train_body(tags=tags)) for tags in (["draft", "x"], ["draft"])]
    full = submit(train_body(tags=[str(number) for number in range(32)]))
    code, out, err = run("tag", ids[0], full, ids[1], "--add", "paper", "--add", "x", "--remove", "draft")
    assert (code, out) == (2, f"{ids[0]}: x, paper\n{ids[1]}: paper, x\n")
    assert f"job {full} has 32 tags, and would get 2 more: a job may have 32 tags" in err
    assert app_store.jobs.get(ids[0]).tags == ["x", "paper"]
    assert run("tag", ids[1], "--remove", "x", "--remove", "paper")[:2] == (0, f"{ids[1]}: no tags\n")
    assert run("tag", ids[1])[2] == "error: give --add TAG, --remove TAG, or both\n"
    code, out, err = run("tag", ids[1], "--add", "x", "--remove", "x")
    assert (code, out) == (2, "")
    assert "'x' is to be added and to be removed" in err


def test_a_job_is_planned_again(run: Run, submit: Any, evaluate_body: Make, worker: Any) -> None:
    job_id = submit(evaluate_body())
    status, _, err = run("replan", job_id)
    assert status == 2
    assert "has no plan yet: it gets one as soon as a worker takes it" in err
    worker.plan(job_id, identity="0123456789abcdef")
    assert run("replan", job_id)[:2] == (0, "queued, attempt 2\n")


def test_artifacts_and_download(
    run: Run, submit: Any, train_body: Make, app_store: Any, settings: Any, tmp_path: Path
) -> None:
    job_id = submit(train_body())
    file = settings.artifacts / job_id / "log.csv"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    app_store.artifacts.add(job_id, "log.csv", str(file), 0, empty, "text/csv")
    assert empty in run("artifacts", job_id)[1]
    assert json.loads(run("artifacts", job_id, "--json")[1])[0]["name"] == "log.csv"
    assert run("download", job_id, "log.csv")[:2] == (0, "log.csv\n")
    assert (tmp_path / "log.csv").read_bytes() == b""
    assert run("download", job_id, "nope")[0] == 2
    assert run("download", job_id, "log.csv", "--output", "new/folder/")[:2] == (0, "new/folder/log.csv\n")


def test_warnings_are_explained_without_a_service(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_URL", "http://127.0.0.1:1")
    code, out, _ = run("warnings")
    assert (code, len(out.splitlines())) == (0, 1 + len(get_args(WarningCode)))
    assert "remedy: Run without `limit`" in run("warnings", "subset")[1]
    assert json.loads(run("warnings", "subset", "--json")[1])["severity"] == "note"
    code, _, err = run("warnings", "subsett")
    assert (code, "subset" in err) == (2, True)


def test_catalog(run: Run) -> None:
    assert "tiny_vit" in run("catalog")[1]
    assert "tiny_vit" not in run("catalog", "attack")[1]
    out = run("catalog", "model", "tiny_vit")[1]
    assert "heads must divide width" in out
    assert json.loads(run("catalog", "attack", "pgd", "--json")[1])["name"] == "pgd"
    code, _, err = run("catalog", "attack", "pdg")
    assert code == 2
    assert "did you mean 'pgd'?" in err


def test_compare(run: Run, submit: Any, evaluate_body: Make, worker: Any) -> None:
    ids = [submit(evaluate_body()) for _ in range(2)]
    for job_id, attacked in zip(ids, ([1, 0, 0, 0], [1, 1, 0, 1]), strict=True):
        worker.run(job_id, [1, 1, 1, 0], attacked)
    code, out, _ = run("compare", *ids)
    assert code == 0
    assert "+50.0 points" in out
    assert f"A = job {ids[0]}" in out
    assert len(json.loads(run("compare", *ids, "--json")[1])["rows"]) == 2
    adjusted = run("compare", *ids, "--adjust=benjamini_hochberg")[1]
    assert "Adjusted p (Benjamini-Hochberg, 2 tests)" in adjusted
    assert run("compare", *ids, "--format=csv")[1].splitlines()[0].startswith("evaluation,params,data,")
    assert run("compare", *ids, "--format=markdown")[1].startswith("| Evaluation |")
    assert run("compare", ids[0])[0] == 2


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """Captured `execve` calls: arguments and changed environment variables."""
    seen: list[tuple[list[str], dict[str, str]]] = []

    def execve(path: str, arguments: list[str], environment: dict[str, str]) -> None:
        assert path == sys.executable == arguments[0]
        mine = {k: v for k, v in environment.items() if os.environ.get(k) != v}
        seen.append((arguments[1:], mine))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", execve)
    return seen


def test_serve_becomes_the_embedded_service(run: Run, executed: Any, tmp_path: Path) -> None:
    run("serve")
    run("serve", "--host", "::1", "--port", "9000", "--state", str(tmp_path), "--workers", "2")
    plain, full = executed
    assert plain == (["-P", "-m", "assay.workers.embedded"], {})
    assert full == (
        ["-P", "-m", "assay.workers.embedded"],
        {"ASSAY_HOST": "::1", "ASSAY_PORT": "9000", "ASSAY_STATE": str(tmp_path), "ASSAY_WORKERS": "2"},
    )


def test_worker_becomes_a_worker_beside_the_service(run: Run, executed: Any, tmp_path: Path) -> None:
    run("worker")
    root = str(tmp_path)
    run("worker", "--state", root, "--data-root", root, "--name", "textattack")
    state, name = {"ASSAY_STATE": str(tmp_path)}, {"ASSAY_NODE": "textattack"}
    module = ["-P", "-m", "assay.workers.worker"]
    assert executed == [(module, {}), (module, {**state, "ASSAY_DATA_ROOT": root, **name})]
    run("worker", "--until", "idle=300", "--max-seconds", "13800", "--devices", "1", "--shard-seconds", "120")
    end = {"ASSAY_WORKER_IDLE_SECONDS": "300", "ASSAY_WORKER_MAX_SECONDS": "13800"}
    assert executed[2:] == [(module, {**end, "ASSAY_DEVICES": "1", "ASSAY_SHARD_SECONDS": "120"})]
    for given in ("300", "idle=", "idle=0", "busy=3", "idle=-1"):
        code, _, err = run("worker", "--until", given)
        assert (code, len(executed)) == (2, 3)
        assert f"{given!r} given; allowed: idle=SECONDS, such as idle=300" in err
    code, _, err = run("worker", "--name", "two words")
    assert (code, len(executed)) == (2, 3)
    assert "--name: 'two words' given; allowed: at most 100 letters, digits, '.', '_' and '-'" in err
    code, _, err = run("worker", "--data-root", f"{root}/nowhere")
    assert (code, len(executed)) == (2, 3)
    assert f"--data-root: there is no such folder (given '{root}/nowhere')" in err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--host", "", "--host: must not be empty"),
        ("--port", "70000", "--port: must be at most 65535"),
        ("--workers", "-1", "--workers: must be at least 0"),
        ("--data-root", "~no-such-name/x", "--data-root: path '~no-such-name/x'"),
    ],
)
def test_serve_refuses_bad_settings(run: Run, executed: Any, option: str, value: str, message: str) -> None:
    code, _, err = run("serve", option, value)
    assert (code, executed) == (2, [])
    assert message in err


def test_serve_tells_all_wrong_options_at_once(run: Run, executed: Any) -> None:
    code, _, err = run("serve", "--port", "abc", "--workers", "-3", "--data-root", "/nonexistent")
    assert (code, executed) == (2, [])
    for said in ("--port: must be an integer", "--workers: must be at least 0", "--data-root: there is no"):
        assert said in err


def test_serve_refuses_a_data_root_of_the_environment_that_is_not_there(
    run: Run, executed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path / "nowhere"))
    assert run("serve")[2].startswith("error: ASSAY_DATA_ROOT: there is no such folder")
    assert executed == []
    run("serve", "--data-root", str(tmp_path))
    assert len(executed) == 1


def test_serve_names_wrong_variables_too(run: Run, executed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_ALLOWED_HOSTS", "localhost")
    assert run("serve") == (2, "", "error: ASSAY_ALLOWED_HOSTS: must be a JSON list\n")
    monkeypatch.delenv("ASSAY_ALLOWED_HOSTS")
    monkeypatch.setenv("ASSAY_LOG_LEVEL", "LOUD")
    assert run("serve")[2].startswith("error: ASSAY_LOG_LEVEL: ")
    assert executed == []


def test_data_sets_of_the_store_are_asked_for(run: Run, executed: Any) -> None:
    run("data", "publish", "birds", "--tenant", "a", "--tenant", "b", "--store", "/store")
    run("data", "stage", "birds", "cats", "--limit", "2GB", "--gateway", "http://x", "--data-root", "/data")
    run("data", "list", "--json")
    run("data", "unpublish", "timm:resnet50", "--store", "/store", "--weights-root", "/weights")
    asked = [json.loads(command[-1]) for command, _ in executed]
    assert [(one["action"], one["names"], one["tenants"], one["limit"]) for one in asked] == [
        ("publish", ["birds"], ["a", "b"], None),
        ("stage", ["birds", "cats"], [], "2GB"),
        ("list", [], [], None),
        ("unpublish", ["timm:resnet50"], [], None),
    ]
    none = dict.fromkeys(("data_root", "data_store", "gateway", "weights_root"))
    assert asked[1]["settings"] == {**none, "data_root": "/data", "gateway": "http://x"}
    assert asked[3]["settings"] == {**none, "data_store": "/store", "weights_root": "/weights"}
    assert [one["json"] for one in asked] == [False, False, True, False]


def test_data_check_and_demo_pass_their_options_on(run: Run, executed: Any, tmp_path: Path) -> None:
    run("data", "check", "--data-root", str(tmp_path), "--json", "--no-hash")
    run("data", "check", "--seconds", "3", "--data", '{"name": "digits"}')
    run("demo", "--output", "out", "--epochs", "3")
    options = ["--seconds", "3.0", "--data", '{"name": "digits"}']
    assert executed == [
        (
            ["-P", "-m", "assay.workers.data.formats.check", "--no-hash", "--json"],
            {"ASSAY_DATA_ROOT": str(tmp_path)},
        ),
        (["-P", "-m", "assay.workers.data.formats.check", *options], {}),
        (["-P", "-m", "assay.service.studies.demo", "--output", "out", "--epochs", "3"], {}),
    ]


def test_interrupts_are_quiet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(options: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "jobs", interrupt)
    assert run("jobs") == (130, "", "")


def test_export_prints_a_list_or_writes_files(
    run: Run, submit: Any, worker: Any, evaluate_body: Make, tmp_path: Path
) -> None:
    job = submit(evaluate_body())
    worker.run(job, [1, 1, 1, 0], [1, 0, 0, 0])
    code, out, _ = run("export", job, "--format", "robustbench")
    assert (code, json.loads(out)[0]["clean_acc"]) == (0, "75.00")
    code, out, _ = run("export", job, "--format", "robustbench", "-o", "model_info")
    path = "model_info/digits/clean/an_evaluation.json"
    assert (code, out) == (0, f"{path}\n")
    assert json.loads((tmp_path / path).read_text())["assay"]["job"] == job


def test_errors_name_what_was_typed(run: Run, submit: Any, evaluate_body: Make, worker: Any) -> None:
    job = submit(evaluate_body())
    worker.run(job, [1, 1, 1, 0], [1, 0, 0, 0])
    assert run("table", job, "--rows", "modle")[2].startswith("error: --rows: no such field; did you mean")
    assert run("compare", job)[2].startswith("error: JOB: give 2 to 10 different job ids; given")
    error = run("catalog", "atack")[2]
    assert error.startswith(
        "error: KIND: unknown value; did you mean 'attack'? given \"atack\"; allowed: model,"
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, 0),
        ({"unreadable_count": 1}, 1),
        ({"problem": "no images"}, 1),
        ({"problem": "x", "looked": False}, 0),
    ],
)
def test_a_dry_run_says_what_is_wrong_with_the_data(
    run: Run,
    spec_file: Any,
    train_body: Make,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    code: int,
) -> None:
    look = {
        "data": {"name": "digits", "params": {"folder": "pets"}},
        "split": "train",
        "looked": True,
        "problem": None,
        "examples": 2,
        "decoded": 2,
        "ignored": None,
        "unreadable": [],
        "unreadable_count": 0,
        "empty_classes": [],
        "notes": [],
    }
    monkeypatch.setattr(api_of_jobs, "look_at_data", lambda *_: [{**look, **change}])
    found, out, err = run("submit", spec_file(train_body()), "--dry-run")
    assert (found, json.loads(out)["data"]) == (code, [{**look, **change}])
    assert "data digits pets, train: " in err
