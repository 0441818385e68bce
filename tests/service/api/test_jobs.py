from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from assay.service.api.jobs import canonical_sha256
from assay.service.contract.summaries import JobSummary, SummaryValue
from assay.service.settings import Settings
from assay.service.store.row_mapping import summary_columns
from assay.service.store.store import Store
from assay.service.submission.requirements import digest_of
from tests.support.jobs import add, evaluate_spec

JOBS = "/api/v1/jobs"
UNKNOWN = "01m7yq0tygpbr98qrkbw31n8h6"
Make = Callable[..., dict[str, Any]]


@pytest.fixture
def post(api: httpx.Client) -> Callable[[dict[str, Any]], str]:
    def post(body: dict[str, Any]) -> str:
        answer = api.post(JOBS, json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    return post


def details(answer: httpx.Response) -> list[dict[str, Any]]:
    error = answer.json()["error"]
    assert error["type"] == "invalid_spec"
    assert answer.status_code == 422
    listed: list[dict[str, Any]] = error["details"]
    return listed


def test_submit_answers_the_job(api: httpx.Client, train_body: Make, bell: Any) -> None:
    answer = api.post(JOBS, json=train_body())
    job = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"{JOBS}/{job['id']}" == job["links"]["self"]
    assert job["state"] == "queued"
    assert job["spec"]["model"]["params"] == {"width": 16, "heads": 4}
    assert job["spec"]["recipe"]["params"] == {"epochs": 2}
    assert job["queue_position"] == 1
    assert job["created_at"].endswith("Z")
    assert api.get(answer.headers["location"]).json() == job
    assert bell.rung == [job["id"]]


def test_the_queue_is_counted(api: httpx.Client, post: Any, train_body: Make) -> None:
    first, urgent = post(train_body()), post(train_body(priority=9))
    assert api.get(f"{JOBS}/{first}").json()["queue_position"] == 2
    assert api.get(f"{JOBS}/{urgent}").json()["queue_position"] == 1


def test_a_broken_doorbell_fails_nothing(api: httpx.Client, train_body: Make, bell: Any) -> None:
    bell.broken = True
    answer = api.post(JOBS, json=train_body())
    assert answer.status_code == 201
    assert api.get(f"{JOBS}/{answer.json()['id']}").json()["state"] == "queued"


def test_every_wrong_field_is_named(api: httpx.Client, evaluate_body: Make) -> None:
    body = evaluate_body(
        seed=-1,
        evaluations=[{"name": "pgd", "params": {"epsilonn": 1, "steps": 0}}, {"nam": "clean"}],
        executon={},
    )
    found = {tuple(item["loc"]): item for item in details(api.post(JOBS, json=body))}
    assert found["evaluations", 0, "params", "epsilonn"]["nearest"] == "epsilon"
    assert found["evaluations", 0, "params", "epsilonn"]["given"] == 1
    assert found["evaluations", 0, "params", "steps"]["given"] == 0
    assert found["evaluations", 1, "nam"]["nearest"] == "name"
    assert found["executon",]["nearest"] == "execution"
    assert ("seed",) in found
    assert api.get(JOBS).json()["items"] == []


def test_broken_rules_are_named(api: httpx.Client, train_body: Make) -> None:
    model = {"name": "tiny_vit", "params": {"width": 33, "heads": 4}}
    (found,) = details(api.post(JOBS, json=train_body(model=model)))
    assert found["loc"] == ["model", "params"]
    assert "heads must divide width" in found["message"]


@pytest.mark.parametrize("kind", [None, "tune", 3, ["train"]])
def test_unknown_kinds_are_refused(api: httpx.Client, train_body: Make, kind: Any) -> None:
    (found,) = details(api.post(JOBS, json=train_body(kind=kind)))
    assert found["loc"] == ["kind"]
    assert found["allowed"] == ["train", "evaluate"]


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"3", b"null", b"true"])
def test_a_body_must_be_an_object(api: httpx.Client, body: bytes) -> None:
    assert details(api.post(JOBS, content=body, headers={"content-type": "application/json"}))


def test_what_is_not_strict_json_is_400(api: httpx.Client) -> None:
    long_integer = b'{"seed": ' + b"9" * 6000 + b"}"
    for raw in (b"", b"{", b"\xff", b'{"seed": NaN}', b'{"seed": 1e999}', long_integer, b"[" * 9000):
        answer = api.post(JOBS, content=raw, headers={"content-type": "application/json"})
        assert answer.status_code == 400, raw[:20]
        assert answer.json()["error"]["type"] == "malformed_json"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_other_content_types_are_415(api: httpx.Client, kind: str) -> None:
    answer = api.post(JOBS, content=b"{}", headers={"content-type": kind})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (415, "unsupported_media_type")
    assert "allowed: application/json" in error["message"]


def test_a_charset_in_the_content_type_is_fine(api: httpx.Client) -> None:
    answer = api.post(JOBS, content=b"{}", headers={"content-type": "application/json; charset=utf-8"})
    assert answer.status_code == 422


def test_a_dry_run_stores_nothing(api: httpx.Client, evaluate_body: Make, bell: Any) -> None:
    answer = api.post(JOBS, params={"dry_run": "true"}, json=evaluate_body(limit=100))
    assert answer.status_code == 200
    found = answer.json()
    assert set(found) == {"spec", "estimate", "warnings", "data"}
    assert found["data"] == [], "it was not asked to decode"
    assert found["spec"]["evaluations"][1]["params"] == {"epsilon": "2/255", "steps": 10}
    assert found["estimate"]["forward_passes"] == 100 * (1 + 11)
    assert "untrained_weights" in [warning["code"] for warning in found["warnings"]]
    assert api.get(JOBS).json()["items"] == []
    assert bell.rung == []


def test_a_dry_run_warns_where_no_worker_has_such_devices(
    api: httpx.Client, app_store: Store, train_body: Make
) -> None:
    def codes(devices: int, device: str = "auto") -> list[str]:
        body = train_body(execution={"device": device, "devices": devices})
        answer = api.post(JOBS, params={"dry_run": "true"}, json=body).json()
        return [warning["code"] for warning in answer["warnings"]]

    assert codes(2) == ["no_worker_with_devices"]
    answer = api.post(JOBS, params={"dry_run": "true"}, json=train_body(execution={"devices": 2})).json()
    assert [warning["severity"] for warning in answer["warnings"]] == ["note"]
    app_store.workers.beat("one", "box", ["cpu"], 1, devices=2)
    assert codes(2) == codes(1) == codes(1, "cpu") == []
    assert codes(3) == codes(1, "cuda") == ["no_worker_with_devices"]


GPU = {"device": "cuda:0", "capability": "9.0"}
CPU = {"device": "cpu", "capability": None}


@pytest.mark.parametrize(
    ("execution", "said", "code", "evidence"),
    [
        ({"dtype": "tf32"}, [[CPU]], "other_dtype", {"workers": 1, "of": 1}),
        (
            {"dtype": "tf32"},
            [[{**GPU, "capability": "7.5"}, CPU], [GPU]],
            "other_dtype",
            {"workers": 1, "of": 2},
        ),
        ({"dtype": "tf32"}, [[CPU, GPU]], None, {}),
        ({"dtype": "tf32"}, ["cpu"], "other_dtype", {"workers": 1, "of": 1}),
        ({"dtype": "tf32"}, ["cpu", "cuda", [CPU]], "other_dtype", {"workers": 2, "of": 3}),
        ({"dtype": "tf32"}, ["cuda"], None, {}),
        ({"dtype": "float32"}, [[CPU]], None, {}),
        ({"dtype": "tf32"}, [], None, {}),
        ({"compile": "on"}, [False], "not_compiled", {"workers": 1, "of": 1}),
        ({"compile": "auto"}, [False, True, None], "not_compiled", {"workers": 1, "of": 3}),
        ({"compile": "off"}, [False], None, {}),
        ({"compile": "on"}, [True], None, {}),
        ({"compile": "on"}, [None], None, {}),
    ],
)
def test_a_dry_run_foresees_what_workers_do_not_do(
    api: httpx.Client,
    app_store: Store,
    evaluate_body: Make,
    execution: dict[str, Any],
    said: list[Any],
    code: str | None,
    evidence: dict[str, int],
) -> None:
    """Of TF32 a worker says its devices' capabilities, of compilers whether the wall has a door for them.

    A worker that has not tested its devices says its device class alone.
    """
    for number, one in enumerate(said):
        gauges: Any = {"self_test": {"devices": one}} if isinstance(one, list) else {}
        if isinstance(one, bool):
            gauges = {"containment": {"mode": "auto", "missing": [], "compiles": one}}
        gpu = one == "cuda" or (isinstance(one, list) and any(part["capability"] for part in one))
        classes = ["cuda", "cpu"] if gpu else ["cpu"]
        app_store.workers.beat(str(number), "box", classes, 1, gauges, name=str(number))

    def foreseen(**changes: Any) -> dict[str, Any]:
        body = evaluate_body(execution={"device": "auto", **execution}, **changes)
        found = api.post(JOBS, params={"dry_run": "true"}, json=body).json()["warnings"]
        codes = ("other_dtype", "not_compiled")
        return {warning["code"]: warning["evidence"] for warning in found if warning["code"] in codes}

    found = foreseen()
    assert [*found] == ([] if code is None else [code])
    assert code is None or found[code].items() >= evidence.items()
    alone = foreseen(evaluations=[{"name": "clean"}])
    assert [*alone] == (["other_dtype"] if code == "other_dtype" else []), "attacks alone are compiled"


@pytest.mark.parametrize(
    ("speed", "execution", "evidence"),
    [
        (100.0, {"compile": "on"}, {"attacks": 1, "passes": 5, "batch_size": 64, "compile_seconds": 20.0}),
        (100.0, {"compile": "on", "batch_size": 10}, {"passes": 30, "batch_size": 10}),
        (1.0, {"compile": "on"}, None),
        (100.0, {"compile": "auto"}, None),
        (100.0, {}, None),
    ],
)
def test_a_dry_run_says_where_compiling_takes_longer_than_the_attacks(
    settings: Settings,
    app_store: Store,
    serve: Any,
    evaluate_body: Make,
    speed: float,
    execution: dict[str, Any],
    evidence: dict[str, Any] | None,
) -> None:
    """100 digits by PGD: two forward passes and a backward pass each, at so many forward passes a second."""
    rates = {**settings.passes_per_second, "cpu": speed, "cuda": speed}
    with serve(settings.model_copy(update={"passes_per_second": rates}), app_store) as api:
        body = evaluate_body(
            execution={"device": "cpu", **execution},
            limit=100,
            evaluations=[{"name": "clean"}, {"name": "pgd", "params": {"steps": 1}}],
        )
        warnings = api.post(JOBS, params={"dry_run": "true"}, json=body).json()["warnings"]
    told = [warning for warning in warnings if warning["code"] == "few_passes_to_compile"]
    assert [warning["severity"] for warning in told] == ([] if evidence is None else ["note"])
    if evidence is not None:
        assert told[0]["evidence"].items() >= evidence.items()
        assert "auto compiles where it pays, off never" in told[0]["message"]


@pytest.mark.parametrize(("most", "decided"), [(0.1, "cuda"), (1.0, "auto"), (0.0, "auto")])
def test_a_job_that_takes_a_cpu_too_long_waits_for_a_gpu_that_is_there(
    settings: Settings, app_store: Store, serve: Any, evaluate_body: Make, most: float, decided: str
) -> None:
    """A CPU is assumed to take 0.3 s."""
    chosen = settings.model_copy(update={"max_auto_cpu_seconds": most})
    with serve(chosen, app_store) as api:

        def device(**changes: Any) -> str:
            body = evaluate_body(limit=100, **changes)
            found = api.post(JOBS, params={"dry_run": "true"}, json=body).json()
            return str(found["spec"]["execution"]["device"])

        app_store.workers.beat("one", "box", ["cpu"], 1)
        assert device() == "auto", "no GPU is online"
        app_store.workers.beat("two", "box", ["cuda", "cpu"], 2)
        assert device() == decided
        assert device(execution={"device": "cpu"}) == "cpu"


def test_only_workers_with_as_many_devices_count(
    api: httpx.Client, app_store: Store, post: Any, train_body: Make
) -> None:
    app_store.workers.beat("one", "box", ["cpu"], 1)
    app_store.workers.beat("four", "box", ["cpu"], 2, devices=4)
    ids = {devices: post(train_body(execution={"devices": devices})) for devices in (1, 4, 8)}
    asked = {devices: api.get(f"{JOBS}/{job_id}").json() for devices, job_id in ids.items()}
    assert [asked[devices]["workers_online"] for devices in (1, 4, 8)] == [2, 1, 0]
    wanted = "no worker is listening for this job: it asks for one with 8 devices"
    assert asked[8]["message"] == wanted
    assert asked[4]["message"] == ""


def test_a_dry_run_refuses_like_a_submission(api: httpx.Client, evaluate_body: Make) -> None:
    assert details(api.post(JOBS, params={"dry_run": "true"}, json=evaluate_body(limit=0)))
    assert details(api.post(JOBS, params={"dry_run": "perhaps"}, json=evaluate_body()))


def test_lists_are_filtered_and_paged(
    api: httpx.Client, post: Any, train_body: Make, evaluate_body: Make
) -> None:
    ids = [post(train_body(tags=[f"t{i % 2}"])) for i in range(5)]
    other = post(evaluate_body(model={"name": "other_vit"}))
    everything = api.get(JOBS).json()
    assert [job["id"] for job in everything["items"]] == [other, *reversed(ids)]
    assert everything["next_cursor"] is None

    seen, cursor = [], None
    while True:
        params = {"limit": 2, "kind": "train"} | ({"cursor": cursor} if cursor else {})
        page = api.get(JOBS, params=params).json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]

    def found(**params: str) -> list[str]:
        return [job["id"] for job in api.get(JOBS, params=params).json()["items"]]

    assert found(tag="t1") == [ids[3], ids[1]]
    assert found(model="other_vit") == [other]
    assert found(state="running") == []
    assert found(state="queued", kind="evaluate") == [other]
    assert found(study="none") == []


def test_lists_are_sorted_by_what_their_summaries_have(
    api: httpx.Client, app_store: Store, post: Any, evaluate_body: Make
) -> None:
    ids = [post(evaluate_body(seed=seed)) for seed in (2, 1, 3)]
    for job_id, value in zip(ids, (0.5, 0.25, None), strict=True):
        worst = (
            None
            if value is None
            else SummaryValue(metric="top1", value=value, n=100, at="8/255", radius=8 / 255)
        )
        app_store.jobs.summarise(job_id, summary_columns(JobSummary(worst=worst)))
    listed = api.get(JOBS, params={"sort": "-worst", "limit": 2}).json()
    assert [job["id"] for job in listed["items"]] == ids[:2]
    where = {"at": "8/255", "radius": 8 / 255, "invalid": None}
    value = {"metric": "top1", "value": 0.5, "n": 100, **where}
    assert listed["items"][0]["summary"] == {"clean": None, "worst": value, "invalid": []}
    (last,) = api.get(JOBS, params={"sort": "-worst", "cursor": listed["next_cursor"]}).json()["items"]
    assert last["id"] == ids[2]
    assert [job["spec"]["seed"] for job in api.get(JOBS, params={"sort": "seed"}).json()["items"]] == [
        1,
        2,
        3,
    ]
    (found,) = details(api.get(JOBS, params={"sort": "wurst"}))
    assert found["nearest"] == "worst"


@pytest.mark.parametrize(
    ("query", "loc"),
    [
        ("state=done", "state"),
        ("state=", "state"),
        ("kind=x", "kind"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=ten", "limit"),
        ("limit=1e999", "limit"),
        ("cursor=x", "cursor"),
        ("cursor=%00", "cursor"),
        ("tag=%00", "tag"),
        ("tag=", "tag"),
        ("model=%00", "model"),
        ("stat=queued", "stat"),
    ],
)
def test_bad_queries_are_422(api: httpx.Client, query: str, loc: str) -> None:
    (found,) = details(api.get(f"{JOBS}?{query}"))
    assert found["loc"] == ["query", loc]


def test_bad_queries_say_what_is_allowed(api: httpx.Client) -> None:
    (found,) = details(api.get(f"{JOBS}?state=runing"))
    assert found["nearest"] == "running"
    assert "timed_out" in found["allowed"]
    (found,) = details(api.get(f"{JOBS}?limit=201"))
    assert found["allowed"] == "at most 200"


def test_a_filter_given_twice_is_refused(api: httpx.Client) -> None:
    answer = api.get(f"{JOBS}?state=queued&state=running")
    assert answer.status_code == 422
    (detail,) = answer.json()["error"]["details"]
    assert (detail["loc"], detail["given"]) == (["query", "state"], ["queued", "running"])


@pytest.mark.parametrize(
    ("method", "page"),
    [("GET", ""), ("GET", "/results"), ("GET", "/artifacts"), ("GET", "/artifacts/x"), ("POST", "/cancel"),
     ("POST", "/retry"), ("DELETE", "")],
)  # fmt: skip
def test_unknown_jobs_are_404(api: httpx.Client, method: str, page: str) -> None:
    for job_id in (UNKNOWN, "x", "%00", "..%2f..", "0" * 500, UNKNOWN.upper(), "%ff"):
        answer = api.request(method, f"{JOBS}/{job_id}{page}")
        assert answer.status_code == 404, job_id
        assert answer.json()["error"]["type"] == "not_found"


def test_a_queued_job_is_canceled_at_once(api: httpx.Client, post: Any, train_body: Make) -> None:
    job_id = post(train_body())
    answer = api.post(f"{JOBS}/{job_id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (202, "canceled")
    again = api.post(f"{JOBS}/{job_id}/cancel")
    assert (again.status_code, again.json()["error"]["type"]) == (409, "invalid_state")


def test_tags_are_changed_once_and_bounded(api: httpx.Client, post: Any, train_body: Make) -> None:
    job_id = post(train_body(tags=["old", "kept"]))
    change = {"add": ["new", "kept", "new"], "remove": ["old", "unknown"]}
    for _ in range(2):
        answer = api.post(f"{JOBS}/{job_id}/tags", json=change)
        assert (answer.status_code, answer.json()["tags"]) == (200, ["kept", "new"])
    assert api.get(f"{JOBS}/{job_id}").json()["spec"]["tags"] == ["kept", "new"]
    thirty = [str(number) for number in range(31)]
    full = api.post(f"{JOBS}/{job_id}/tags", json={"add": thirty})
    assert (full.status_code, full.json()["error"]["type"]) == (409, "invalid_state")
    assert "has 2 tags, and would get 31 more" in full.json()["error"]["message"]
    swapped = api.post(f"{JOBS}/{job_id}/tags", json={"add": thirty, "remove": ["new"]})
    assert swapped.json()["tags"] == ["kept", *thirty]
    assert api.post(f"{JOBS}/none/tags", json=change).status_code == 404


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "give tags to `add`, to `remove`, or both"),
        ({"add": ["x"], "remove": ["x"]}, "'x' is to be added and to be removed"),
        ({"add": [""], "remove": ["y" * 65], "tag": 1}, "add"),
        ({"add": ["x"] * 33}, "add: must have 32 items at most"),
        ([], "object"),
    ],
)
def test_wrong_changes_of_tags_are_422(
    api: httpx.Client, post: Any, train_body: Make, body: Any, said: str
) -> None:
    answer = api.post(f"{JOBS}/{post(train_body())}/tags", json=body)
    assert answer.status_code == 422
    assert said in answer.text
    if "tag" in body:
        assert {detail["loc"][-1] for detail in answer.json()["error"]["details"]} == {0, "tag"}


def test_a_running_job_is_canceling(api: httpx.Client, post: Any, train_body: Make, worker: Any) -> None:
    job_id = post(train_body())
    worker.claim(job_id)
    for _ in range(2):
        answer = api.post(f"{JOBS}/{job_id}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (202, "canceling")


def test_a_canceled_job_is_retried(api: httpx.Client, post: Any, train_body: Make, bell: Any) -> None:
    job_id = post(train_body())
    assert api.post(f"{JOBS}/{job_id}/retry").status_code == 409
    api.post(f"{JOBS}/{job_id}/cancel")
    answer = api.post(f"{JOBS}/{job_id}/retry")
    assert answer.status_code == 202
    assert (answer.json()["id"], answer.json()["state"], answer.json()["attempt"]) == (job_id, "queued", 2)
    assert bell.rung == [job_id] * 3, "a cancel too: idle workers may hold the model"


def test_only_ended_jobs_are_deleted(
    api: httpx.Client, post: Any, train_body: Make, settings: Any, tmp_path: Path
) -> None:
    job_id = post(train_body())
    assert api.delete(f"{JOBS}/{job_id}").status_code == 409
    api.post(f"{JOBS}/{job_id}/cancel")
    folder = settings.artifacts / job_id
    folder.mkdir(parents=True)
    (folder / "log.txt").write_text("x")
    answer = api.delete(f"{JOBS}/{job_id}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert api.get(f"{JOBS}/{job_id}").status_code == 404
    assert not folder.exists()


def test_a_failed_job_says_why(api: httpx.Client, post: Any, train_body: Make, worker: Any) -> None:
    job_id = post(train_body())
    worker.fail(job_id)
    job = api.get(f"{JOBS}/{job_id}").json()
    assert job["state"] == "failed"
    assert job["error"] == {"type": "out_of_memory", "message": "8 GB were not enough"}
    assert job["finished_at"] >= job["started_at"] >= job["created_at"]


@pytest.mark.parametrize("step", [-3600.0, 0.0, 3600.0])
def test_progress_and_eta_are_shown(
    api: httpx.Client,
    post: Any,
    train_body: Make,
    worker: Any,
    app_store: Any,
    step: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Times are the database's, where the clock of the service's machine has been set ahead or back."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + step)
    job_id = post(train_body())
    app_store.workers.beat("w", "host", ["cpu"], 1)
    claim = worker.claim(job_id)
    app_store.shards.progress(claim, 25, 100, "epoch 3 of 12")
    job = api.get(f"{JOBS}/{job_id}").json()
    assert (job["state"], job["workers_online"], job["message"]) == ("running", 1, "epoch 3 of 12")
    assert {**job["progress"], "eta_seconds": 0} == {
        "done": 25,
        "total": 100,
        "unit": "steps",
        "eta_seconds": 0,
        "share": 0.25,
        "examples_per_second": None,
        "gpu_busy": None,
        "gpu_memory": None,
    }
    assert 0 <= job["progress"]["eta_seconds"] < 3600
    assert job["queue_position"] is None


def test_a_running_job_says_when_its_workers_are_gone(
    api: httpx.Client, post: Any, train_body: Make, worker: Any, app_store: Any
) -> None:
    job_id = post(train_body())
    app_store.workers.beat("w", "host", ["cpu"], 1)
    app_store.shards.progress(worker.claim(job_id), 25, 100, "epoch 3 of 12")
    app_store.workers.gone("w")
    job = api.get(f"{JOBS}/{job_id}").json()
    assert (job["state"], job["message"]) == ("running", "no worker is listening for this job")
    assert job["progress"]["eta_seconds"] is None
    app_store.workers.beat("v", "host", [], 2, {"unfit": {"program": "other code: restart the worker"}}, 0)
    app_store.workers.beat("u", "host", [], 3, {"unfit": {"cuda": "no memory"}}, 0)
    wanted = f"{job['message']}; online, and not fit: program: other code: restart the worker"
    assert api.get(f"{JOBS}/{job_id}").json()["message"] == wanted


def test_a_planned_job_waits_for_workers_of_the_identity_that_planned_it(
    api: httpx.Client, post: Any, evaluate_body: Make, worker: Any, app_store: Any, bell: Any
) -> None:
    job_id = post(evaluate_body())
    worker.plan(job_id, identity="0123456789abcdef")
    app_store.workers.beat("w", "host", ["cpu"], 1, identity="fedcba9876543210")
    job = api.get(f"{JOBS}/{job_id}").json()
    assert (job["state"], job["workers_online"]) == ("running", 0)
    assert job["message"] == (
        "waits for workers of identity 0123456789abcdef, which planned it; the 1 online have other code,"
        " packages or another catalog: start such workers, or plan it again (assay replan)"
    )
    answer = api.post(f"{JOBS}/{job_id}/replan")
    assert (answer.status_code, answer.json()["state"], answer.json()["attempt"]) == (202, "queued", 2)
    assert bell.rung.count(job_id) == 2
    worker.plan(job_id, identity="fedcba9876543210")
    assert api.get(f"{JOBS}/{job_id}").json()["workers_online"] == 1
    assert api.post(f"{JOBS}/{job_id}/replan").status_code == 202, "no worker has a shard of it"
    assert api.post(f"{JOBS}/{job_id}/replan").status_code == 409, "it is queued to be planned"


def test_a_job_says_when_the_code_that_could_run_it_may_not(
    api: httpx.Client, post: Any, evaluate_body: Make, worker: Any, app_store: Any
) -> None:
    job_id, own = post(evaluate_body()), "0123456789abcdef"
    code = {"code": {"version": "1.0", "commit": "f00d", "source_sha256": "cd" * 32}}

    def message(job: str, *, online: bool = True) -> str:
        if online:
            app_store.workers.beat("w", "host", ["cpu"], 1, code, identity=own)
        else:
            app_store.workers.gone("w")
        app_store.workers._lately.clear()  # as after a second
        said = api.get(f"{JOBS}/{job}").json()["message"]
        assert isinstance(said, str)
        return said

    worker.plan(job_id, identity=own)
    assert message(job_id) == ""
    app_store.identities.declare({"version": "1.0", "source_sha256": "ab" * 32})
    later = post(evaluate_body(name="later"))
    assert message(later) == (
        "no worker is listening for this job; online, but not of the service's release, and waiting for an"
        " administrator to allow their identity: 0123456789abcdef (version 1.0, commit f00d)"
    )
    remedy = (
        "plan it again (assay replan), or have an administrator allow the identity (assay workers allow"
        " 0123456789abcdef)"
    )
    assert message(job_id) == (
        "waits for workers of identity 0123456789abcdef, which planned it, and their code (version 1.0,"
        f" commit f00d) is not the service's own release's: {remedy}"
    )
    app_store.identities.rule(own, "allowed", "ops")
    assert (message(job_id), message(later)) == ("", "")
    app_store.identities.rule(own, "withdrawn", "ops")
    assert message(job_id, online=False) == (
        "waits for workers of identity 0123456789abcdef, which planned it, and an administrator has withdrawn"
        f" this identity: {remedy}"
    )
    assert message(later, online=False) == "no worker is listening for this job"


def test_a_planned_job_says_what_the_workers_online_lack(
    api: httpx.Client, post: Any, evaluate_body: Make, worker: Any, app_store: Any
) -> None:
    job_id, own = post(evaluate_body()), "0123456789abcdef"
    missing = {"folders": ["cifar"]}
    worker.plan(job_id, identity=own, requirements=[missing, missing])
    lacks = {"lacks": {digest_of(missing): "it has no folder 'cifar' below its data root"}}
    app_store.workers.beat("w", "host", ["cpu"], 1, lacks, identity=own)
    job = api.get(f"{JOBS}/{job_id}").json()
    assert (job["workers_online"], job["progress"]["eta_seconds"]) == (1, None)
    assert job["message"] == (
        "waits for a worker with the data set cifar (0 of 1 workers have it; `assay data stage cifar` on the"
        " others): w: it has no folder 'cifar' below its data root"
    )
    app_store.workers.beat("v", "host", ["cpu"], 2, {}, identity=own)
    assert api.get(f"{JOBS}/{job_id}").json()["message"] == ""


def test_a_queued_job_says_who_has_its_data(api: httpx.Client, app_store: Any) -> None:
    asked = {"folders": ["birds"]}
    data = {"name": "image_folder", "params": {"folder": "birds"}}
    job_id = add(app_store, evaluate_spec() | {"data": data})
    lacks = {"lacks": {digest_of(asked): "it stages 'birds': 1.0 of 2.0 GB"}}
    app_store.workers.beat("w", "host", ["cpu"], 1, lacks)
    said = "waits for a worker with the data set birds (%d of %d workers have it;"
    said += " `assay data stage birds` on the others)"
    told = f"{said % (0, 1)}: w: it stages 'birds': 1.0 of 2.0 GB"
    assert api.get(f"{JOBS}/{job_id}").json()["message"] == told
    app_store.workers.beat("v", "host", ["cpu"], 2, {})
    assert api.get(f"{JOBS}/{job_id}").json()["message"] == said % (1, 2)


def test_a_queued_job_says_when_no_worker_listens(
    api: httpx.Client, post: Any, train_body: Make, app_store: Any
) -> None:
    listens_not = "no worker is listening for this job"
    gpu = post(train_body(execution={"device": "cuda"}))
    anywhere = post(train_body())

    def messages() -> list[str]:
        listed = {job["id"]: job["message"] for job in api.get(JOBS).json()["items"]}
        assert listed == {job_id: api.get(f"{JOBS}/{job_id}").json()["message"] for job_id in listed}
        return [listed[gpu], listed[anywhere]]

    on_gpu = f"{listens_not}: it asks for cuda, a GPU"
    assert messages() == [on_gpu, listens_not]
    app_store.workers.beat("w", "host", ["cpu"], 1)
    assert messages() == [on_gpu, ""]
    app_store.workers.beat("v", "host", ["cuda", "cpu"], 2)
    assert messages() == ["", ""]
    app_store.workers.gone("v")
    api.post(f"{JOBS}/{gpu}/cancel")
    assert messages() == ["", ""]


def test_a_page_needs_as_many_queries_as_one_job(
    api: httpx.Client, post: Any, train_body: Make, app_store: Any
) -> None:
    statements: list[str] = []
    event.listen(
        app_store._database.engine, "before_cursor_execute", lambda *call: statements.append(call[2])
    )

    def queries() -> int:
        statements.clear()
        positions = [job["queue_position"] for job in api.get(JOBS).json()["items"]]
        assert positions == list(range(len(positions), 0, -1))
        return len(statements)

    post(train_body())
    one = queries()
    for _ in range(4):
        post(train_body())
    assert queries() == one > 0


def weights(job_id: str, **model: Any) -> dict[str, Any]:
    return {"model": {"name": "tiny_vit", "weights": {"job": job_id}} | model}


def test_an_evaluation_waits_for_its_weights_and_takes_their_model(
    api: httpx.Client, post: Any, train_body: Make, evaluate_body: Make, worker: Any
) -> None:
    training = post(train_body())
    answer = api.post(JOBS, json=evaluate_body(**weights(training))).json()
    assert answer["state"] == "waiting"
    assert answer["spec"]["model"]["params"] == {"width": 16, "heads": 4}
    assert api.delete(f"{JOBS}/{training}").status_code == 409
    worker.train(training)
    assert api.get(f"{JOBS}/{answer['id']}").json()["state"] == "queued"


def test_a_failed_training_fails_what_waits_for_it(
    api: httpx.Client, post: Any, train_body: Make, evaluate_body: Make, worker: Any
) -> None:
    training = post(train_body())
    waiting = post(evaluate_body(**weights(training)))
    worker.fail(training)
    assert api.get(f"{JOBS}/{waiting}").json()["error"]["type"] == "dependency_failed"
    (found,) = details(api.post(JOBS, json=evaluate_body(**weights(training))))
    assert found["loc"] == ["model", "weights", "job"]
    assert "failed" in found["message"]


def test_what_needs_several_trainings_waits_for_all_and_keeps_them(
    api: httpx.Client, post: Any, worker: Any, train_body: Make, evaluate_body: Make
) -> None:
    own, other = post(train_body()), post(train_body(seed=1))
    attack = {"name": "transfer", "params": {"job": other}}
    needing = post(evaluate_body(**weights(own), evaluations=[{"name": "clean"}, attack]))
    for source in (own, other):
        assert api.get(f"{JOBS}/{needing}").json()["state"] == "waiting"
        worker.train(source)
        refused = api.delete(f"{JOBS}/{source}")
        assert refused.status_code == 409
        assert needing in refused.json()["error"]["message"]
    assert api.get(f"{JOBS}/{needing}").json()["state"] == "queued"
    api.post(f"{JOBS}/{needing}/cancel")
    assert api.delete(f"{JOBS}/{other}").status_code == 204
    refused = api.post(f"{JOBS}/{needing}/retry")
    assert refused.status_code == 409
    assert other in refused.json()["error"]["message"]


def test_weights_that_cannot_be_are_422(
    api: httpx.Client, post: Any, train_body: Make, evaluate_body: Make
) -> None:
    for job_id in (UNKNOWN, "no id", "x" * 150):
        (found,) = details(api.post(JOBS, json=evaluate_body(**weights(job_id))))
        assert found["loc"] == ["model", "weights", "job"]
    evaluation = post(evaluate_body())
    (found,) = details(api.post(JOBS, json=evaluate_body(**weights(evaluation))))
    assert found["loc"] == ["model", "weights", "job"]
    canceled = post(train_body())
    api.post(f"{JOBS}/{canceled}/cancel")
    (found,) = details(api.post(JOBS, json=evaluate_body(**weights(canceled))))
    assert "canceled" in found["message"]


def test_weights_fit_only_their_model(
    api: httpx.Client, post: Any, train_body: Make, evaluate_body: Make
) -> None:
    training = post(train_body())
    assert post(evaluate_body(**weights(training, params={"width": 16})))
    (found,) = details(api.post(JOBS, json=evaluate_body(**weights(training, params={"width": 64}))))
    assert found["loc"] == ["model", "params", "width"]
    (found,) = details(api.post(JOBS, json=evaluate_body(**weights(training, name="other_vit"))))
    assert found["loc"] == ["model", "name"]


def test_the_hash_of_a_body_is_of_its_meaning() -> None:
    assert canonical_sha256({"a": 1, "b": [1.5, "\u00e9"]}) == canonical_sha256(
        {"b": [1.5, "\u00e9"], "a": 1}
    )
    assert canonical_sha256({"a": 1}) != canonical_sha256({"a": "1"})


def test_traces_are_stored_only_where_they_are_asked_for(api: httpx.Client, evaluate_body: Make) -> None:
    plain = api.post("/api/v1/jobs", json=evaluate_body()).json()["spec"]
    assert "save_traces" not in plain
    for given, stored in ((0, plain), (None, plain), (32, {**plain, "save_traces": 32})):
        assert api.post("/api/v1/jobs", json=evaluate_body(save_traces=given)).json()["spec"] == stored
    for wrong in (-1, 33, "all", True):
        answer = api.post("/api/v1/jobs", json=evaluate_body(save_traces=wrong))
        assert answer.status_code == 422
        assert answer.json()["error"]["details"][0]["loc"][0] == "save_traces"
