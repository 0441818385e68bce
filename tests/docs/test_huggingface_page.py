"""The jobs of docs/huggingface.md are valid, and its tables name what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "huggingface.md").read_text(encoding="utf-8")


def test_its_jobs_are_valid() -> None:
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    assert blocks
    for block in blocks:
        for job in block["jobs"]:
            validate(load(), job)


def test_every_evaluation_of_texts_is_named() -> None:
    found = {one.name for one in load().list("evaluation") if one.table == "text_attack"}
    assert found
    assert all(f"`{name}`" in PAGE for name in found)


def test_every_model_is_named() -> None:
    assert all(
        f"`{name}`" in PAGE for name in load().names("model") if load().find("model", name).pulled == "hf"
    )
