"""The request bodies of studies in the OpenAPI document, with examples."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import TypeAdapter

from assay.service.api.openapi import Body
from assay.service.studies.designs.routes import DESIGNS_PATH
from assay.service.studies.routes import STUDIES_PATH
from assay.service.studies.wire import MoreSeeds, StudySpec

_EXAMPLES = json.loads(Path(__file__).with_name("request_examples.json").read_text(encoding="utf-8"))
BODIES: tuple[Body, ...] = (
    (STUDIES_PATH, "StudySpec", TypeAdapter(StudySpec), _EXAMPLES["studies"]),
    (DESIGNS_PATH, "StudySpec", TypeAdapter(StudySpec), _EXAMPLES["studies"]),
    (f"{STUDIES_PATH}/{{study_id}}/seeds", "MoreSeeds", TypeAdapter(MoreSeeds), _EXAMPLES["seeds"]),
)
