"""The jobs that a job names: which fields do, and what is said of those that cannot give what is wanted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.dependencies import Dependency, dependencies_of
from assay.service.submission.validate import validate
from assay.service.submission.weights import EXPIRED

MODEL = {"name": "symvit", "params": {"image_size": 32, "patch_size": 8, "depth": 1, "width": 32, "heads": 2}}
FIELD = ["evaluations", 1, "params", "job"]


@dataclass(frozen=True)
class FoundJob:
    kind: str
    state: str
    spec: dict[str, Any]
    expired: bool = False


def body(*sources: str, **changes: Any) -> dict[str, Any]:
    attacks = [{"name": "transfer", "params": {"job": source}} for source in sources]
    evaluations = [{"name": "clean"}, *attacks]
    return {
        "kind": "evaluate",
        "model": MODEL,
        "data": {"name": "digits"},
        "evaluations": evaluations,
    } | changes


def training(data: str = "digits", **params: Any) -> dict[str, Any]:
    model = {"name": "symvit", "params": MODEL["params"] | params}
    spec = {"kind": "train", "model": model, "data": {"name": data}, "recipe": {"name": "small_vit"}}
    return validate(load(), spec).spec


def refused(given: dict[str, Any], **jobs: FoundJob) -> list[dict[str, Any]]:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), given, find_job=jobs.get)
    return [detail.model_dump() for detail in caught.value.details]


@pytest.mark.parametrize("state", ["waiting", "queued", "starting", "running", "succeeded"])
def test_the_source_of_an_attack_may_be_there_or_come(state: str) -> None:
    job = FoundJob("train", state, training())
    valid = validate(load(), body("j"), find_job={"j": job}.get)
    assert valid.spec["evaluations"][1]["params"]["job"] == "j"


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (None, "there is no such job"),
        (FoundJob("evaluate", "succeeded", {}), "this job is of kind evaluate: it leaves no weights"),
        (FoundJob("train", "failed", {}), "this job is failed: it leaves no weights"),
        (FoundJob("train", "canceled", {}), "this job is canceled: it leaves no weights"),
        (FoundJob("train", "succeeded", {}, expired=True), EXPIRED),
    ],
)
def test_a_source_without_weights_is_named_with_what_is_allowed(job: FoundJob | None, message: str) -> None:
    (problem,) = refused(body("j"), **({"j": job} if job else {}))
    allowed = "the id of a training job that has its weights, or has not ended"
    assert problem == {"loc": FIELD, "message": message, "given": "j", "allowed": allowed, "nearest": None}


@pytest.mark.parametrize(
    ("spec", "message", "allowed"),
    [
        (training("cifar10"), "this job's model is made for 3 channels", "1 channels"),
        (training(image_size=16), "this job's model is for images of 16 pixels", "images of 32 pixels"),
    ],
    ids=["channels", "size"],
)
def test_a_source_that_does_not_fit_is_named(spec: dict[str, Any], message: str, allowed: str) -> None:
    (problem,) = refused(body("j"), j=FoundJob("train", "running", spec))
    assert (problem["loc"], problem["message"], problem["given"]) == (FIELD, message, "j")
    assert problem["allowed"] == f"a training job of a model for {allowed}"


def test_everything_that_is_wrong_is_said_at_once_at_its_place_in_the_body() -> None:
    given = body("a", "b")
    given["evaluations"].insert(0, {"suite": "quick"})
    given["model"] = {"name": "symvit", "weights": {"job": "c"}}
    assert [problem["loc"] for problem in refused(given)] == [
        ["model", "weights", "job"],
        ["evaluations", 2, "params", "job"],
        ["evaluations", 3, "params", "job"],
    ]


@dataclass(frozen=True)
class Upload:
    model: dict[str, Any] = field(default_factory=lambda: {"name": "exported", "params": {}})
    facts: dict[str, int] = field(default_factory=lambda: {"classes": 10, "channels": 1, "image_size": 32})
    state: str = "ready"
    reason: str = ""
    sha256: str = "a" * 64
    dtypes: tuple[str, ...] | None = ("float32",)
    foreign: bool = False
    gradients: bool = True
    task: str | None = None
    reading: dict[str, Any] = field(default_factory=lambda: {"normalization": None, "positions": None})


def with_uploads(given: dict[str, Any], **uploads: Upload) -> dict[str, Any]:
    return validate(load(), given, find_job=lambda _: None, find_checkpoint=uploads.get).spec


def test_an_attack_may_name_uploads_and_is_pinned_to_their_content() -> None:
    given = body("checkpoint:mine", f"checkpoint:mine@{'a' * 64}")
    given["evaluations"][1]["params"]["others"] = ["checkpoint:second"]
    spec = with_uploads(given, mine=Upload(), second=Upload(sha256="b" * 64, state="checking", facts={}))
    one, two = (item["params"] for item in spec["evaluations"][1:])
    pinned = f"checkpoint:mine@{'a' * 64}"
    assert (one["job"], two["job"], one["others"]) == (pinned, pinned, [f"checkpoint:second@{'b' * 64}"])
    place = ("evaluations", 1, "params")
    assert dependencies_of(spec)[:2] == [
        Dependency(pinned, (*place, "job"), "mine", "a" * 64),
        Dependency(one["others"][0], (*place, "others"), "second", "b" * 64),
    ]
    assert with_uploads(spec, mine=Upload(), second=Upload(sha256="b" * 64)) == spec


@pytest.mark.parametrize(
    ("named", "upload", "message"),
    [
        ("checkpoint:other", Upload(), "there is no such checkpoint"),
        ("checkpoint:", Upload(), "there is no such checkpoint"),
        ("checkpoint:mine", Upload(state="rejected", reason="bad"), "this checkpoint was rejected: bad"),
        (f"checkpoint:mine@{'b' * 64}", Upload(), "the checkpoint of this name has another content"),
        ("checkpoint:mine", Upload(dtypes=("float64",)), "the exported program cannot be run in float32"),
        ("checkpoint:mine", Upload(gradients=False), "this exported program has no gradients"),
        ("checkpoint:mine", Upload(foreign=True), "uploaded without a normalization"),
        ("checkpoint:mine", Upload(facts={"channels": 3}), "this checkpoint's model is made for 3 channels"),
        ("checkpoint:mine", Upload(facts={"image_size": 16}), "this checkpoint's model is for images of 16"),
    ],
)
def test_an_upload_that_cannot_be_used_is_refused(named: str, upload: Upload, message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        with_uploads(body(named), mine=upload)
    (problem,) = caught.value.details
    assert problem.loc == FIELD
    assert message in problem.message
    assert problem.given == named


def test_a_program_without_gradients_is_attacked_without_its_own() -> None:
    mine = {"name": "exported", "weights": {"checkpoint": "mine"}}
    uploads = {"mine": Upload(gradients=False), "open": Upload()}
    able = [{"name": "clean"}, {"name": "square"}, {"name": "bpda", "params": {"job": "checkpoint:open"}}]
    with_uploads(body(model=mine) | {"evaluations": able}, **uploads)
    with pytest.raises(InvalidSpec) as caught:
        with_uploads(body(model=mine) | {"evaluations": [*able, {"name": "pgd"}]}, **uploads)
    (problem,) = caught.value.details
    assert problem.loc == ["evaluations", 3, "name"]
    assert "'pgd' follows gradients, and this exported program has no gradients" in problem.message
    assert isinstance(problem.allowed, list)
    assert {"square", "bpda", "transfer", "hop_skip_jump"} <= {*problem.allowed}
    assert "apgd" not in problem.allowed
    full = with_uploads(body(model=mine) | {"evaluations": [{"suite": "full"}]}, **uploads)
    names = [item["name"] for item in full["evaluations"]]
    assert "square" in names
    assert "pgd" not in names
    assert any("no gradients" in item["reason"] for item in full["left_out"])


def test_a_programs_image_size_is_known_to_the_rules_of_attacks() -> None:
    mine = {"name": "exported", "weights": {"checkpoint": "mine"}}
    execution = {"screening": "bfloat16_gradients"}
    patch = {"name": "patch_rs", "params": {"size": 33}}
    uploads = {"mine": Upload(dtypes=("float32", "bfloat16"))}
    given = body(model=mine, execution=execution) | {"evaluations": [patch, {"name": "pgd"}]}
    with pytest.raises(InvalidSpec) as caught:
        with_uploads(given, **uploads)
    (problem,) = caught.value.details
    assert "size must not be larger than the model's image_size" in problem.message
    patch["params"] = {"size": 32}
    with_uploads(given, **uploads)
    with pytest.raises(InvalidSpec, match="cannot be run in bfloat16_gradients"):
        with_uploads(given, mine=Upload())


def test_each_field_of_a_spec_that_names_a_job() -> None:
    weights = {"name": "symvit", "weights": {"job": "own"}}
    valid = validate(load(), body("one", "own", model=weights))
    own = Dependency("own", ("model", "weights", "job"))
    attacks = [
        Dependency("one", ("evaluations", 1, "params", "job")),
        Dependency("own", ("evaluations", 2, "params", "job")),
    ]
    assert dependencies_of(valid.spec) == [own, *attacks]
    assert [dependency.evaluation for dependency in dependencies_of(valid.spec)] == [None, 1, 2]
    assert dependencies_of(training()) == []


def test_an_evaluation_that_is_not_known_any_more_needs_nothing() -> None:
    spec = {"kind": "evaluate", "model": MODEL, "evaluations": [{"name": "of_old", "params": {"job": "j"}}]}
    assert dependencies_of(spec) == []
