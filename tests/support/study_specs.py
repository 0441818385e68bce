"""The study of the documents, checked against the real catalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import load
from assay.service.studies.submission import ValidStudy, check_study
from assay.service.submission.validate import ValidSpec

DOCS = Path(__file__).resolve().parents[2] / "docs"


def unlimited(valid: ValidSpec) -> dict[str, Any]:
    return dict(valid.estimate)


def check(body: Any) -> ValidStudy:
    return check_study(load(), body, work=unlimited)


def example() -> dict[str, Any]:
    body: dict[str, Any] = json.loads((DOCS / "studies.study.json").read_text())
    return body
