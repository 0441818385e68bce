"""Upload statements about a foreign file: normalisation, position embeddings, heads."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.store import Store
from tests.support.tensors import tensor_file

PATH = "/api/v1/checkpoints"
FILE = tensor_file()
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
READY = {
    "layout": "timm",
    "classes": 10,
    "channels": 1,
    "left_out": ["head_dist.bias"],
    "resized": ["pos_embed"],
}


def upload(api: httpx.Client, content: bytes = FILE, **params: Any) -> httpx.Response:
    return api.post(PATH, params={"name": "ours", "model": "tiny_vit"} | params, content=content)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("imagenet", IMAGENET),
        ("inception", {"mean": [0.5] * 3, "std": [0.5] * 3}),
        ("data", "data"),
        ('{"mean": [0], "std": [1]}', {"mean": [0.0], "std": [1.0]}),
    ],
)
def test_the_normalisation_is_part_of_the_checkpoint_and_of_its_jobs(
    api: httpx.Client, app_store: Store, evaluate_body: Any, text: str, meant: Any
) -> None:
    answer = upload(api, normalization=text, positions="bicubic")
    assert answer.status_code == 202, answer.text
    assert (answer.json()["normalization"], answer.json()["positions"]) == (meant, "bicubic")
    claim = app_store.shards.claim("worker", [CHECKS], lease_seconds=60)
    assert claim is not None
    assert claim.spec["model"]["weights"]["normalization"] == meant
    assert app_store.checkpoints.checked(claim, READY, None)
    body = api.get(f"{PATH}/ours").json()
    assert (body["left_out"], body["resized"]) == (["head_dist.bias"], ["pos_embed"])
    spec = evaluate_body(model={"name": "tiny_vit", "weights": {"checkpoint": "ours"}})
    job = api.post("/api/v1/jobs", json=spec).json()
    weights = job["spec"]["model"]["weights"]
    assert (weights["normalization"], weights["positions"]) == (meant, "bicubic")
    assert api.post("/api/v1/jobs", json=job["spec"]).status_code == 201, "a job's spec may be sent again"


@pytest.mark.parametrize(
    ("text", "loc", "told"),
    [
        ("imagenett", [], "is not known"),
        ("{", [], "it begins like JSON and is none"),
        ('{"mean": [0.5]}', ["std"], "must be one number for each channel"),
        ('{"mean": [], "std": [1]}', ["mean"], "must be one number for each channel"),
        ('{"mean": [0.5], "std": [0]}', ["std"], "must be numbers above 0 and at most 1"),
        (
            '{"mean": [123.675], "std": [58.395]}',
            ["mean"],
            "must be numbers from 0 to 1, for pixels in [0, 1]",
        ),
        ('{"mean": [true], "std": [1]}', ["mean"], "must be numbers"),
        ('{"mean": ["0"], "std": [1]}', ["mean"], "must be numbers"),
        ('{"mean": [NaN], "std": [1]}', [], "it begins like JSON and is none"),
        ('{"mean": [0.5, 0.5], "std": [0.5]}', [], "mean has 2 channels, std has 1"),
        ('{"mean": [0.5], "std": [0.5], "scale": 1}', ["scale"], "unknown field"),
    ],
)
def test_a_normalisation_that_is_none_is_refused(
    api: httpx.Client, text: str, loc: list[str], told: str
) -> None:
    answer = upload(api, normalization=text)
    assert answer.status_code == 422
    detail = answer.json()["error"]["details"][0]
    assert detail["loc"] == ["query", "normalization", *loc]
    assert told in detail["message"]
    if text == "imagenett":
        assert detail["nearest"] == "imagenet"


def test_a_way_to_resize_that_is_none_is_refused(api: httpx.Client) -> None:
    answer = upload(api, positions="nearest")
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["loc"] == ["query", "positions"]


def test_a_file_with_its_own_normalisation_takes_no_other(api: httpx.Client) -> None:
    own = tensor_file({"mean": (1, 3, 1, 1), "std": (1, 3, 1, 1), "backbone.head.weight": (2, 3)})
    answer = upload(api, own, normalization="imagenet")
    assert answer.status_code == 422
    assert "has a normalization of its own" in answer.json()["error"]["message"]
    assert upload(api, own).status_code == 202


def test_another_reading_under_the_same_name_is_refused(api: httpx.Client) -> None:
    assert upload(api, normalization="imagenet").status_code == 202
    assert upload(api, normalization=json.dumps(IMAGENET)).status_code == 200
    for other in ({}, {"normalization": "data"}, {"normalization": "imagenet", "positions": "bilinear"}):
        answer = upload(api, **other)
        assert answer.status_code == 409
        assert "delete it first, or take another name" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("weights", "loc"),
    [
        ({"normalization": "data"}, ["model", "weights", "normalization"]),
        ({"normalization": {"mean": [0.5] * 3, "std": [0.5] * 3}}, ["model", "weights", "normalization"]),
        ({"positions": "bicubic"}, ["model", "weights", "positions"]),
        ({"normalization": {"mean": [2], "std": [1]}}, ["model", "weights", "normalization", "mean", 0]),
    ],
)
def test_a_job_cannot_read_a_checkpoint_in_another_way(
    api: httpx.Client, evaluate_body: Any, weights: Any, loc: list[Any]
) -> None:
    upload(api, normalization="imagenet")
    spec = evaluate_body(model={"name": "tiny_vit", "weights": {"checkpoint": "ours", **weights}})
    answer = api.post("/api/v1/jobs", json=spec)
    assert answer.status_code == 422
    detail = answer.json()["error"]["details"][0]
    assert detail["loc"] == loc
    if loc[-1] == "normalization":
        assert detail["allowed"] == [IMAGENET]


def test_heads_must_be_said_beside_a_width(api: httpx.Client) -> None:
    given = json.dumps({"name": "tiny_vit", "params": {"width": 16}})
    (detail,) = upload(api, model=given).json()["error"]["details"]
    assert detail["loc"] == ["query", "model", "params", "heads"]
    assert "does not tell its heads" in detail["message"]
    whole = json.dumps({"name": "tiny_vit", "params": {"width": 16, "heads": 2}})
    assert upload(api, model=whole).status_code == 202
    assert upload(api, name="defaults").status_code == 202


def test_an_unstated_normalisation_is_warned_of_before_the_job_runs(
    api: httpx.Client, app_store: Store, evaluate_body: Any
) -> None:
    def warned(name: str) -> bool:
        spec = evaluate_body(model={"name": "tiny_vit", "weights": {"checkpoint": name}})
        found = api.post("/api/v1/jobs", params={"dry_run": True}, json=spec).json()
        return "foreign_normalization" in [warning["code"] for warning in found["warnings"]]

    def checked(layout: str, name: str, **params: Any) -> str:
        upload(api, name=name, **params)
        claim = app_store.shards.claim("worker", [CHECKS], lease_seconds=60)
        assert claim is not None
        assert app_store.checkpoints.checked(claim, READY | {"layout": layout}, None)
        return name

    upload(api, name="unchecked")
    assert not warned("unchecked"), "it may yet turn out to be a training job's file"
    api.delete(f"{PATH}/unchecked")
    assert warned(checked("timm", "unsaid"))
    assert not warned(checked("timm", "said", normalization="data"))
    assert not warned(checked("assay", "own"))
