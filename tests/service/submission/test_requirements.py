"""What a shard asks of its worker, from spec and plan alone."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.submission.requirements import (
    MIN_MEMORY,
    PlanningDevice,
    at_least,
    digest_of,
    first_requirements,
    folders_of,
    label_of,
    planned_memory,
    planned_requirements,
)
from assay.service.submission.validate import validate

MODEL = {"name": "symvit", "params": {"image_size": 32, "patch_size": 8, "depth": 1, "width": 32, "heads": 2}}
CIFAR = {"name": "cifar10", "params": {"folder": "cifar"}}
GIB = 2**30


def spec_of(**changes: Any) -> Any:
    body = {"kind": "evaluate", "model": MODEL, "data": CIFAR, "evaluations": [{"name": "clean"}], **changes}
    return validate(load(), body).spec


def plan_of(**changes: Any) -> Any:
    facts = {"device": "cuda", "batch_size": 64, "example_bytes": 64 * 2**20, "parameters": 10**8}
    return {"data_sha256": {"cifar10(download=False, folder=cifar)": "c" * 64}, **facts, **changes}


def test_folders_of_data_and_of_those_that_they_name() -> None:
    both = {"name": "imagenet_o", "params": {"folder": "o", "negatives_folder": "imagenet"}}
    assert folders_of(load(), "data", both) == ["imagenet", "o"]
    assert folders_of(load(), "evaluation", {"name": "textfooler", "params": {"vectors": "words"}}) == [
        "words"
    ]
    assert folders_of(load(), "data", {"name": "digits", "params": {}}) == []
    assert folders_of(load(), "data", {"name": "of a later version", "params": {"folder": "x"}}) == []


def test_data_that_a_worker_may_download_need_no_folder() -> None:
    downloaded = {"name": "cifar10", "params": {"folder": "cifar", "download": True}}
    assert folders_of(load(), "data", downloaded) == []


def test_the_first_shard_needs_the_folders_of_all_evaluations() -> None:
    other = {"name": "top1", "data": {"name": "cifar10", "params": {"folder": "other"}}}
    spec = spec_of(evaluations=[{"name": "clean"}, other])
    assert first_requirements(load(), spec) == {"folders": ["cifar", "other"]}


@pytest.mark.parametrize(
    ("device", "found"),
    [("cuda", {"folders": ["cifar"], "capability": "8.0"}), ("auto", {"folders": ["cifar"]})],
)
@pytest.mark.parametrize("dtype", ["bfloat16", "tf32"])
def test_some_arithmetic_on_a_gpu_needs_one_that_has_it(
    dtype: str, device: str, found: dict[str, Any]
) -> None:
    assert first_requirements(load(), spec_of(execution={"device": device, "dtype": dtype})) == found


def test_the_check_of_a_program_asks_for_a_gpu() -> None:
    check: Any = {"kind": "check", "model": {"name": "exported", "params": {}}, "evaluations": []}
    assert first_requirements(load(), check) == {"gpu": True}
    assert first_requirements(load(), {**check, "model": MODEL}) == {}


def test_a_planned_shard_needs_the_planned_data_and_memory_for_its_batch() -> None:
    spec, plan = spec_of(), plan_of()
    label, folders = label_of(load(), spec, 0)
    assert (label, folders) == (next(iter(plan["data_sha256"])), ["cifar"])
    # 2 x 64 examples of 64 MiB, and 4 x 4 bytes of each parameter: 9.5 GiB.
    assert planned_memory(plan) == 16 * GIB
    found = planned_requirements(load(), spec, plan, 0, PlanningDevice(80 * GIB, "9.0"))
    assert found == {"folders": ["cifar"], "data": {label: "c" * 64}, "memory": 16 * GIB}


def test_no_more_is_asked_than_the_gpu_that_planned_has() -> None:
    spec = spec_of(execution={"device": "cuda", "dtype": "bfloat16"})
    small = planned_requirements(load(), spec, plan_of(), 0, PlanningDevice(12 * GIB, "7.5"))
    assert (small["memory"], small.get("capability")) == (12 * GIB, None)
    for dtype in ("bfloat16", "tf32"):
        spec = spec_of(execution={"device": "cuda", "dtype": dtype})
        able = planned_requirements(load(), spec, plan_of(), 0, PlanningDevice(80 * GIB, "8.6"))
        assert (able["memory"], able["capability"]) == (16 * GIB, "8.0")


def test_a_small_batch_and_a_cpu_need_no_memory_of_a_gpu() -> None:
    spec = spec_of(data={"name": "digits"})
    assert planned_memory(plan_of(example_bytes=1000, parameters=1000)) < MIN_MEMORY
    assert (
        planned_requirements(load(), spec, plan_of(example_bytes=1000, parameters=1000), 0, PlanningDevice())
        == {}
    )
    assert planned_requirements(load(), spec, plan_of(device="cpu"), 0, PlanningDevice()) == {}
    earlier = {name: value for name, value in plan_of().items() if name != "example_bytes"}
    assert planned_memory(earlier) == 0  # type: ignore[arg-type]


def test_a_library_is_required_in_the_planned_version_and_frost_asks_for_photographs() -> None:
    attack = {"name": "pgd", "params": {"backend": "cleverhans"}}
    corrupted = {"name": "corruptions", "params": {"source": "generated", "corruptions": ["fog", "frost"]}}
    spec = spec_of(data={"name": "digits"}, evaluations=[attack, corrupted, {"name": "clean"}])
    files = {"frost-photographs": "imagecorruptions"}
    assert first_requirements(load(), spec) == {"libraries": {"cleverhans": ""}, "files": files}
    plan, library = (
        plan_of(device="cpu", identity={"libraries": {"cleverhans": "4.0.0"}}),
        {"cleverhans": "4.0.0"},
    )
    found = [planned_requirements(load(), spec, plan, index, PlanningDevice()) for index in range(3)]
    # All shards of a job state the same packages.
    assert found == [{"libraries": library}, {"libraries": library, "files": files}, {"libraries": library}]


def test_a_model_of_transformers_stays_on_workers_with_the_planned_release() -> None:
    """A worker with TextAttack has an older one."""
    attack = {"name": "pwws", "params": {"backend": "textattack"}, "data": None}
    model = {"name": "hf_text_classifier", "params": {"repository": "org/net"}}
    spec = {**spec_of(), "model": model, "evaluations": [attack]}
    assert first_requirements(load(), spec)["libraries"] == {"textattack": "", "transformers": ""}
    versions = {"textattack": "0.3.11", "transformers": "4.57.6"}
    plan = plan_of(device="cpu", identity={"libraries": {**versions, "cleverhans": "4.0.0"}})
    assert planned_requirements(load(), spec, plan, 0, PlanningDevice())["libraries"] == versions
    earlier = planned_requirements(load(), spec, plan_of(device="cpu"), 0, PlanningDevice())
    assert earlier["libraries"] == {"textattack": "", "transformers": ""}, "of a plan that knew no versions"


@pytest.mark.parametrize(
    ("capability", "wanted", "holds"),
    [
        ("8.0", "8.0", True),
        ("10.0", "8.0", True),
        ("7.5", "8.0", False),
        (None, "8.0", False),
    ],
)
def test_capabilities_are_numbers(capability: str | None, wanted: str, holds: bool) -> None:
    assert at_least(capability, wanted) is holds


def test_equal_requirements_have_one_digest() -> None:
    first = digest_of({"folders": ["a"], "data": {"x": "1", "y": "2"}})
    assert first == digest_of({"data": {"y": "2", "x": "1"}, "folders": ["a"]})
    assert first != digest_of({"folders": ["a"], "data": {"x": "1", "y": "3"}})
    assert len(first) == 16
