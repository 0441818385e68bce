"""docs/data.md has every data set of images that is read from a folder, and its jobs are valid."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.problems import Problems
from assay.service.submission.validate import validate
from assay.workers.data.formats.images.image_files import IMAGE_SUFFIXES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
BLOCKS = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
IMAGES = {"classification", "stored_corruptions", "anomaly_detection"}
FOLDERS = {
    one.name: one.parameters["properties"]["folder"].get("default")
    for one in load().list("data")
    if IMAGES & set(one.tasks) and "folder" in one.parameters["properties"]
}


def test_there_are_sets() -> None:
    assert {"image_folder", "cifar100", "svhn", "tiny_imagenet_c", "imagenet_v2"} <= FOLDERS.keys()


@pytest.mark.parametrize("name", FOLDERS)
def test_every_set_is_named_with_its_default_folder(name: str) -> None:
    assert f"`{name}`" in PAGE
    elsewhere = ("imagenet", "imagenet_a", "imagenet_r", "imagenet_o", "imagenet_c")
    if FOLDERS[name] is not None and name not in elsewhere:
        assert f"`{name}` (`{FOLDERS[name]}`)" in PAGE


def test_every_suffix_is_named() -> None:
    assert all(f"`{suffix}`" in PAGE for suffix in IMAGE_SUFFIXES)


def test_its_jobs_and_evaluations_are_valid() -> None:
    jobs, *evaluations = BLOCKS
    training, attack = jobs["jobs"]
    validate(load(), training)
    attack["model"]["weights"] = {"job": "01jd3q0x5v8f7m2n9k4t6w1z0y"}  # in place of @birds
    validate(load(), attack)
    sets = [one for one in evaluations if one["name"] in load().names("data")]
    assert len(sets) == 1
    assert len(evaluations) == 3
    for data in sets:
        problems = Problems()
        load().check_reference(("data",), data, problems, ())
        problems.raise_if_any()
    for evaluation in (one for one in evaluations if one not in sets):
        clean = "imagenet" if "imagenet" in evaluation["data"]["name"] else "cifar10"
        body = {"kind": "evaluate", "model": {"name": "vit"}, "data": {"name": clean}}
        validate(load(), {**body, "evaluations": [evaluation]})
