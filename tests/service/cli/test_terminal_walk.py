"""Every command found in the tree of commands, on terminals of 60, 80 and 120 columns."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import shlex
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from assay.service.cli import commands, evaluate, main, output
from assay.service.cli import terminal as drawing
from assay.service.cli.job_progress import follow_to_end
from assay.service.client import AssayClient, evaluation
from assay.service.client.mirrors import Mirrored
from assay.service.settings import Settings
from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.store import Store
from assay.service.store.tenants import View
from assay.service.webhooks.store import Webhooks
from assay.service.webhooks.tables import webhook_deliveries, webhooks
from assay.service.webhooks.wire import WebhookRequest
from tests.service.conftest import provenance
from tests.support.tensors import tensor_file
from tests.support.terminals import ESCAPES, Make, Terminal, too_wide

# Commands of which nothing is walked: another process takes their place for good, they wait for others, or
# print a program's file.
ELSEWHERE = "serve, worker, demo, mcp, evalhub, completion, fleet slurm, import-onnx, attack"
# Walked in tests/workers/test_terminal_walk.py, with the processes that take their place.
PROCESSES = "doctor, data check, data publish, data unpublish, data stage, data list, pull, import-pickle"
# The others, with their arguments, in an order in which each has what it needs.
LINES = """
evaluate job:{trained} --data digits --attack "pgd epsilon=2/255" --report evaluated.html {url}
evaluate job:{trained} --data digits --attack "pgd epsilon=2/255" --dry-run {url}
submit spec.json
submit jobs.json
jobs
status {a}
status {failed}
results {a}
results {a} --full
results {failed}
compare {a} {b}
compare {a} {b} --full
artifacts {a}
download {a} outcomes-000-clean.csv
plot {a}
gate {a} --require "clean top1 >= 45 %" --require "pgd epsilon=2/255 top1 >= 45 %"
gate {failed} --require "clean top1 >= 45 %"
sign {a} --output signed --files
verify signed --url http://127.0.0.1:8000
verify signed --url http://127.0.0.1:8000 --job {b}
mirror {a} {b} --to mlflow --tracking-uri sqlite:///a-database-of-all-the-runs-of-the-laboratory.db
open {a}
catalog
catalog attack
catalog attack pgd
warnings
warnings subset
config set url http://127.0.0.1:8000 --profile work
config use work
config get url
config list
config unset url
checkpoints upload other weights.safetensors --model tiny_vit --no-wait
checkpoints list
checkpoints show mine
checkpoints show rejected
studies run study.json --dry-run
studies run study.json --no-wait
studies register study.json
studies designs
studies ready
studies list
studies show {study}
studies extend {study} 7
studies watch {ended}
studies results {ended}
webhooks list
webhooks add http://127.0.0.1:9/hook --description "for the machine of the continuous integration"
webhooks deliveries {hook}
webhooks test {hook}
webhooks redeliver {hook} {delivery}
webhooks rotate {hook}
webhooks enable {hook}
webhooks remove {hook}
keys create --name "a key for the continuous integration of the lab" --scope submit --expires-days 9 {state}
keys list {state}
keys revoke {key} {state}
quota
tenants list
tenants set alise --weight 3 --running-shards 8
workers list
workers identities
workers allow b2b2b2b2b2b2b2b2
workers withdraw b2b2b2b2b2b2b2b2
workers cordon one
workers uncordon one
workers drain one
fleet list
tag {a} --add seen
usage
usage --by tag
audit
audit --verify
help
help more
cancel {c}
retry {c}
replan {failed}
studies cancel {study}
studies retry {study}
report {b} -o report.md
studies cancel {other}
studies delete {other}
checkpoints delete mine
delete {b}
"""

SILENT = ("studies delete", "webhooks remove", "checkpoints delete", "delete")
PRINTING = 36  # of these lines print a table
LAB, DECLARED = "the-laboratory", "c3" * 8
MANY = "a name of many words, as people give them to the runs of a long evening of experiments"
WHY = "the model needs more memory than the device of this worker has; a smaller batch, or execution.dtype"
FOUND = "300 of 355 examples are measured: the number is of a part of the test set, and its interval is wider"


def leaves(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[str]:
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not actions:
        yield " ".join(path)
    for action in actions:
        for name, below in action.choices.items():
            yield from leaves(below, (*path, name))


def test_each_command_is_run_here_or_named() -> None:
    known = set(leaves(main.build_parser()))
    run = {name for name in known for line in LINES.strip().splitlines() if f"{line} ".startswith(f"{name} ")}
    assert known - run == {*ELSEWHERE.split(", "), *PROCESSES.split(", ")}


def test_each_command_knows_the_short_forms() -> None:
    def check(parser: argparse.ArgumentParser) -> list[str]:
        known = {name: one for one in parser._actions for name in one.option_strings}
        found = [f"{parser.prog} -o"] if "--output" in known and "-o" not in known else []
        if "--format" in known and "json" in known["--format"].choices and "--json" not in known:
            found.append(f"{parser.prog} --json")
        below = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
        return found + [fault for one in below for inner in one.choices.values() for fault in check(inner)]

    assert check(main.build_parser()) == []
    options = main.build_parser().parse_args(["results", "a", "--json"])
    assert options.format == "json"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhook_allow": ["127.0.0.1"], "require_keys": True})


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, transport: Any, tmp_path: Path, app_store: Store) -> AssayClient:
    monkeypatch.chdir(tmp_path)
    for name in ("ASSAY_URL", "ASSAY_STATE", "ASSAY_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    key = app_store.keys.create("root", ["admin"], tenant=LAB)[1]
    monkeypatch.setenv("ASSAY_KEY", key)
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    monkeypatch.setattr(
        commands, "AssayClient", lambda url, **given: AssayClient(url, **given, transport=transport)
    )
    monkeypatch.setattr(
        evaluation, "AssayClient", lambda url, key=None: AssayClient(url, key, transport=transport)
    )
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    return AssayClient("http://127.0.0.1", key, transport=transport)


@pytest.fixture
def world(
    client: AssayClient, evaluate_body: Make, worker: Any, app_store: Store, settings: Settings
) -> dict[str, str]:
    """Ids for the arguments: measured, failed and queued jobs, studies, weights; and files in this folder."""
    ended = client.submit_study(study("narrow", "wide"))
    for run in (run for arm in ended.runs for run in arm.runs):
        worker.train(run.train)
        measure(worker, run.evaluate)
    bodies = [evaluate_body(name=MANY, seed=seed) for seed in range(4)]
    ids = {}
    for name, body in zip(("a", "b", "failed"), bodies, strict=False):
        ids[name] = client.submit(body).id
        if name != "failed":
            measure(worker, ids[name])
    file = settings.artifacts / ids["a"] / "outcomes-000-clean.csv"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"id,correct\nx0,1\n")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    app_store.artifacts.add(ids["a"], file.name, str(file), 16, digest, "text/csv")
    worker.plan(ids["failed"])
    worker.evaluate(ids["failed"], [1, 1, 0, 1])
    app_store.shards.fail(worker.claim(ids["failed"]), "out_of_memory", WHY, retry=False)
    upload(client, app_store)
    ids["c"] = client.submit(bodies[3]).id
    for path, value in {
        "spec.json": bodies[0],
        "jobs.json": {"jobs": [bodies[0], {**bodies[1], "name": "b"}]},
        "study.json": study("one", "two"),
    }.items():
        Path(path).write_text(json.dumps(value))
    studies = {name: client.submit_study(study("one", "two")).id for name in ("study", "other")}
    people(app_store)
    key = app_store.keys.create("a key of the laboratory", ["read"], tenant="alice")[0].id
    state = f"--state {settings.state}"
    more = {"trained": ended.runs[0].runs[0].train, "url": "--url http://127.0.0.1:8000"}
    return {**ids, **studies, **more, "ended": ended.id, **hook(app_store), "key": key, "state": state}


def measure(worker: Any, job_id: str) -> None:
    """Runs a job, with warnings about its numbers."""
    job = worker.store.jobs.get(job_id)
    worker.plan(job_id, 200)
    for place in range(len(job.spec["evaluations"])):
        worker.evaluate(job_id, [int(number % (place + 2) > 0) for number in range(200)])
        told = [{"code": code, "message": FOUND, "evidence": {}} for code in ("subset", "below_chance")]
        measured = worker.store.results.of(job_id)[place]
        worker.store.results.save(job_id, place, {**measured, "warnings": told})
    assert worker.store.jobs.succeed(job_id, provenance())


def upload(client: AssayClient, store: Store) -> None:
    """Weights that wait for their check, and weights that were refused for many faults."""
    Path("weights.safetensors").write_bytes(tensor_file())
    client.upload_checkpoint("rejected", Path("weights.safetensors"), model="tiny_vit")
    claim = store.shards.claim("worker", [CHECKS], lease_seconds=60)
    assert claim is not None
    keys = [f"blocks.{number}.attention.projection.weight" for number in range(12)]
    shapes = [{"key": "head.weight", "given": [2, 3, 4, 5], "wanted": [2, 4, 4, 5]}]
    facts: Any = {"layout": "timm", "classes": 10, "channels": 1, "missing": keys, "unexpected": keys}
    assert store.checkpoints.checked(claim, {**facts, "shapes": shapes}, f"the weights do not fit: {WHY}")
    client.upload_checkpoint("mine", Path("weights.safetensors"), model="tiny_vit")


def study(*arms: str) -> dict[str, Any]:
    return {
        "kind": "study",
        "name": MANY,
        "arms": [
            {"name": arm, "model": {"name": "tiny_vit", "params": {"width": 16 * place}}}
            for place, arm in enumerate(arms, 1)
        ],
        "data": {"name": "digits"},
        "recipe": {"name": "short"},
        "seeds": [0, 1],
        "evaluations": [{"name": "clean"}, {"name": "pgd"}],
    }


def people(store: Store) -> None:
    """Workers of all sorts, and tenants."""
    code: Any = {"code": {"version": "1.0", "commit": "f00d", "source_sha256": "cd" * 32}}
    store.identities.declare({"version": "1.0", "source_sha256": "ab" * 32}, [DECLARED])
    faults: Any = {"unfit": {"cuda": f"cuda:0: {WHY}"}, **code}
    store.workers.beat("one", "a-box-with-a-rather-long-name", ["cpu"], 1, faults, 1, "one", "b2" * 8)
    store.workers.beat("two", "another-box", ["cuda", "cpu"], 2, None, 1, "two")


def hook(store: Store) -> dict[str, str]:
    """A webhook whose deliveries fail, and a failed delivery."""
    hooks = Webhooks(store, View(LAB, True))
    made, _ = hooks.add(WebhookRequest(url="http://127.0.0.1:9/a-hook-of-the-laboratory"), 9)
    delivery = hooks.test(made.id)
    with store._database.writing() as connection:
        settled = {"state": "failed", "next_at": None, "attempts": 9, "error": "it refuses connections"}
        connection.execute(update(webhook_deliveries).values(**settled))
        connection.execute(update(webhooks).values(failing_since=1e9))
    return {"hook": made.id, "delivery": delivery.id}


@pytest.mark.costly
@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("extra", [True, False])
def test_no_command_breaks_a_word(
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    world: dict[str, str],
    worker: Any,
    columns: int,
    *,
    extra: bool,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    if not extra:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys, "stderr", terminal.file)
    where = "http://127.0.0.1:5000/a-tracking-server"
    runs = [Mirrored(world[name], "succeeded", f"{name}1" * 16, 12, where) for name in "ab"]

    def mirrored(self: Any, jobs: Any, to: str, callback: Any = None, **_: Any) -> list[Mirrored]:
        for run in runs:
            callback(run)
        return runs

    def followed(client: AssayClient, job: Any, *given: Any, **more: Any) -> int:
        worker.identity = DECLARED
        measure(worker, job.id)
        return follow_to_end(client, job, *given, **more)

    monkeypatch.setattr(evaluate, "follow_to_end", followed)
    monkeypatch.setattr(AssayClient, "mirror", mirrored)
    tables: list[tuple[str, ...]] = []
    draw = drawing.terminal_table

    def spy(stream: Any, header: Sequence[str], *more: Any) -> str:
        tables.append(tuple(header))
        return draw(stream, header, *more)

    monkeypatch.setattr(output, "terminal_table", spy)
    faults, printing = [], set()
    for line in LINES.strip().splitlines():
        count = len(tables)
        with terminal, contextlib.suppress(SystemExit):
            main.main(shlex.split(line.format(**world)))
        text = ESCAPES.sub("", terminal.text())
        if len(tables) > count:
            printing.add(line)
        faults += too_wide(line, text, columns)
        assert "error:" not in text, (line, text)
        assert text or line.startswith(SILENT), line
    assert faults == []
    assert len(printing) == PRINTING, sorted(printing)
