"""Exported programs over HTTP: recognised by their bytes; the check's findings validate their jobs."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from assay.service.settings import Settings
from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.store import Store
from tests.support.archives import archive
from tests.support.tensors import tensor_file

PATH = "/api/v1/checkpoints"
FILE = archive({"data/weights/weight_0": b"1234"})
MODEL = {"name": "exported", "weights": {"checkpoint": "mine"}}
FACTS = {"image_size": 32, "dtypes": ["float32", "bfloat16"], "random": False, "gradients": False}


def upload(api: httpx.Client, content: bytes = FILE, **params: str) -> httpx.Response:
    return api.post(PATH, params={"name": "mine"} | params, content=content)


def check(store: Store, error: str | None = None, **verdict: Any) -> None:
    claim = store.shards.claim("worker", [CHECKS], lease_seconds=60)
    assert claim is not None
    found = {"layout": "program", "classes": 10, "channels": 1, "program": FACTS}
    assert store.checkpoints.checked(claim, found | verdict, error)


def submit(api: httpx.Client, spec: dict[str, Any]) -> httpx.Response:
    return api.post("/api/v1/jobs", json=spec)


def details(answer: httpx.Response) -> list[tuple[list[Any], str]]:
    assert answer.status_code == 422, answer.text
    return [(detail["loc"], detail["message"]) for detail in answer.json()["error"]["details"]]


def test_a_program_is_recognised_and_needs_no_model(api: httpx.Client, app_store: Store) -> None:
    for params in ({}, {"model": "exported"}):
        answer = upload(api, **params)
        assert answer.status_code in (200, 202), answer.text
        assert answer.json()["model"] == {"name": "exported", "params": {}}
        assert answer.json()["program"] is None
    check(app_store)
    ready = api.get(f"{PATH}/mine").json()
    assert (ready["state"], ready["layout"], ready["program"]) == (
        "ready",
        "program",
        FACTS
        | {"task": "classification", "length": None, "vocabulary": None}
        | {"gradients_compared": None, "probabilities": False},
    )


def test_a_file_and_a_model_that_do_not_belong_together_are_refused(
    api: httpx.Client, settings: Settings
) -> None:
    ((loc, message),) = details(upload(api, model="tiny_vit"))
    assert loc == ["model", "name"]
    assert message == "the weights are of the model 'exported'"
    ((loc, message),) = details(upload(api, normalization="imagenet"))
    assert loc == ["query", "normalization"]
    assert "has everything inside" in message
    ((loc, message),) = details(upload(api, tensor_file(), model="exported"))
    assert loc == ["query", "model"]
    assert "is an exported program (.pt2), and this file is none" in message
    assert not settings.artifacts.exists() or not list(settings.artifacts.iterdir())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (FILE[: len(FILE) // 2], "damaged or cut off"),
        (archive({"data.pkl": b"cos\nsystem\n"}), "written by torch.save, and unpickling can run code"),
        (archive({"data/aotinductor/model/a.so": b""}), "compiled for one machine"),
        (archive({"data/weights/weight_0": bytes(10_000)}, compressed=True), "compressed"),
    ],
)
def test_bad_archives_are_refused_and_leave_nothing(
    api: httpx.Client, settings: Settings, content: bytes, reason: str
) -> None:
    ((loc, message),) = details(upload(api, content))
    assert loc == ["body"]
    assert reason in message
    assert not list(settings.artifacts.iterdir())


def test_a_job_names_the_program_with_its_hash(
    api: httpx.Client, app_store: Store, evaluate_body: Any
) -> None:
    sha256 = upload(api).json()["sha256"]
    check(app_store)
    answer = submit(api, evaluate_body(model=MODEL))
    assert answer.status_code == 201, answer.text
    spec = answer.json()["spec"]
    weights = {key: value for key, value in spec["model"]["weights"].items() if value is not None}
    assert weights == {"checkpoint": "mine", "sha256": sha256}
    assert not [one for one in answer.json().get("warnings", []) if one["code"] == "foreign_normalization"]
    assert submit(api, spec).status_code == 201
    spec["model"]["weights"]["sha256"] = "0" * 64
    assert details(submit(api, spec))[0][0] == ["model", "weights", "sha256"]


@pytest.mark.parametrize("weights", [None, {"job": "01jd3q0x5v8f7m2n9k4t6w1z0y"}, {"timm": True}])
def test_without_a_checkpoint_there_is_no_program(
    api: httpx.Client, weights: Any, evaluate_body: Any
) -> None:
    found = details(submit(api, evaluate_body(model={"name": "exported", "weights": weights})))
    assert (["model", "weights"], MESSAGE) in found


MESSAGE = "the model 'exported' is an uploaded program: its weights must be a checkpoint"


def test_a_program_cannot_be_trained(api: httpx.Client, app_store: Store, train_body: Any) -> None:
    upload(api)
    check(app_store)
    for model in (MODEL, {"name": "exported"}):
        ((loc, message),) = details(submit(api, train_body(model=model)))
        assert loc == ["model", "name"]
        assert "cannot be trained" in message


def test_data_and_types_that_do_not_fit_are_refused(
    api: httpx.Client, app_store: Store, evaluate_body: Any
) -> None:
    upload(api)
    assert submit(api, evaluate_body(model=MODEL, execution={"dtype": "float64"})).status_code == 201, (
        "while it is checked nothing is known"
    )
    check(app_store, classes=7)
    ((loc, message),) = details(submit(api, evaluate_body(model=MODEL)))
    assert loc == ["data", "name"]
    assert message == "'digits' has 10 classes, the model is made for the 7 of its weights"


@pytest.mark.parametrize(
    ("execution", "dtypes", "wrong"),
    [
        ({"dtype": "float64"}, ["float32", "bfloat16"], ["execution", "dtype"]),
        ({"dtype": "bfloat16"}, ["float32", "float64"], ["execution", "dtype"]),
        ({"screening": "bfloat16"}, ["float32"], ["execution", "screening"]),
        ({"dtype": "float64"}, ["float32", "float64"], None),
        ({"screening": "bfloat16"}, ["float32", "bfloat16"], None),
        ({"dtype": "tf32"}, ["float32"], None),
    ],
)
def test_types_that_the_program_cannot_be_run_in_are_refused(
    api: httpx.Client,
    app_store: Store,
    execution: Any,
    dtypes: list[str],
    wrong: list[str] | None,
    evaluate_body: Any,
) -> None:
    upload(api)
    check(app_store, program=FACTS | {"dtypes": dtypes})
    answer = submit(api, evaluate_body(model=MODEL, execution=execution))
    if wrong is None:
        assert answer.status_code == 201, answer.text
    else:
        ((loc, message),) = details(answer)
        assert loc == wrong
        assert message.startswith("the exported program cannot be run in")


def test_a_rejected_program_says_why(api: httpx.Client, app_store: Store, evaluate_body: Any) -> None:
    upload(api)
    check(app_store, "it returns probabilities", other=["it returns probabilities"], program=None)
    body = api.get(f"{PATH}/mine").json()
    assert (body["state"], body["faults"]["other"]) == ("rejected", ["it returns probabilities"])
    ((_, message),) = details(submit(api, evaluate_body(model=MODEL)))
    assert message == "this checkpoint was rejected: it returns probabilities"


def test_a_program_keeps_its_order_of_values(api: httpx.Client, app_store: Store, evaluate_body: Any) -> None:
    upload(api)
    check(app_store, program=FACTS)
    body = evaluate_body(model=MODEL, execution={"channels_last": True})
    ((loc, message),) = details(submit(api, body))
    assert loc == ["execution", "channels_last"]
    assert message == "an exported program fixes the order of its values in memory"


@pytest.mark.parametrize("execution", [3, [], None, {"dtype": 3}, {"screening": ["bfloat16"]}])
def test_malformed_parts_are_named_and_nothing_breaks(
    api: httpx.Client, execution: Any, evaluate_body: Any
) -> None:
    upload(api)
    for model in (MODEL, {"name": "exported"}, "exported", None):
        assert submit(api, evaluate_body(model=model, execution=execution)).status_code == 422


@pytest.mark.parametrize(
    "text", ["cat,dog", "cat, dog", '["cat", "dog"]', '{"0": "cat", "1": "dog"}', '{"cat": 0, "dog": 1}']
)
def test_an_upload_states_class_names_which_its_jobs_have(
    api: httpx.Client, app_store: Store, evaluate_body: Any, text: str
) -> None:
    answer = upload(api, class_names=text)
    assert answer.status_code == 202, answer.text
    assert answer.json()["class_names"] == ["cat", "dog"]
    assert upload(api, class_names=text).status_code == 200
    assert upload(api, class_names="dog,cat").status_code == 409
    assert upload(api).status_code == 409
    check(app_store, classes=10)
    spec = submit(api, evaluate_body(model=MODEL)).json()["spec"]
    assert spec["model"]["weights"]["class_names"] == ["cat", "dog"]
    assert submit(api, spec).status_code == 201
    spec["model"]["weights"]["class_names"] = ["dog", "cat"]
    ((loc, message),) = details(submit(api, spec))
    assert loc == ["model", "weights", "class_names"]
    assert "was uploaded with another class_names" in message


def test_without_class_names_nothing_is_stored_of_them(
    api: httpx.Client, app_store: Store, evaluate_body: Any
) -> None:
    assert upload(api).json()["class_names"] is None
    check(app_store)
    spec = submit(api, evaluate_body(model=MODEL)).json()["spec"]
    assert "class_names" not in spec["model"]["weights"]
    job = {**MODEL, "weights": {"checkpoint": "mine", "class_names": ["cat", "dog"]}}
    stated = submit(api, evaluate_body(model=job)).json()["spec"]
    assert stated["model"]["weights"]["class_names"] == ["cat", "dog"], "a job may state them, too"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cat", "at least two classes"),
        ("cat,cat", "'cat' twice"),
        ("[1, 2]", "no list of texts"),
        ('{"0": "cat", "3": "dog"}', "the numbers 0 to 1"),
        ("[", "begins like JSON"),
        ("cat,", "at least two classes"),
    ],
)
def test_wrong_class_names_are_refused(api: httpx.Client, text: str, words: str) -> None:
    ((loc, message),) = details(upload(api, class_names=text))
    assert loc == ["query", "class_names"]
    assert words in message


def test_names_in_the_file_hold(api: httpx.Client) -> None:
    named = archive({"extra/assay.json": b'{"class_names": ["cat", "dog"]}'})
    ((loc, message),) = details(upload(api, named, class_names="dog,cat"))
    assert loc == ["query", "class_names"]
    assert message == "the file has other class names (extra/assay.json), which hold"
    assert upload(api, named, class_names="cat,dog").status_code == 202
    ((loc, message),) = details(upload(api, archive({"extra/assay.json": b"{"}), name="other"))
    assert loc == ["body"]
    assert "its extra/assay.json is no JSON" in message
