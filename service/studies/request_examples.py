"""The request bodies of studies in the OpenAPI document, with examples."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from assay.service.api.openapi import COMPONENT_EXAMPLE, EXAMPLES, Body
from assay.service.studies.routes import STUDIES_PATH
from assay.service.studies.wire import MoreSeeds, StudySpec

TRAINING = EXAMPLES["train"]["value"]
RPC = TRAINING["model"]["params"]
SOFTMAX = {name: value for name, value in RPC.items() if name not in ("iterations", "rpc_layers")}
STUDY_EXAMPLES: dict[str, dict[str, Any]] = {
    "study": {
        "summary": "Softmax attention against RPC on handwritten digits, three seeds",
        "value": {
            "kind": "study",
            "name": "rpc on digits",
            "arms": [
                {"name": "softmax", "model": {"name": "symvit", "params": SOFTMAX}},
                {"name": "rpc", "model": TRAINING["model"]},
            ],
            "data": TRAINING["data"],
            "recipe": TRAINING["recipe"],
            "seeds": 3,
            "evaluations": [
                {"name": "clean"},
                {"name": COMPONENT_EXAMPLE[1], "params": {"epsilon": "2/255"}},
            ],
            "execution": TRAINING["execution"],
        },
    }
}
SEED_EXAMPLES: dict[str, dict[str, Any]] = {
    "seeds": {"summary": "Two more seeds", "value": {"seeds": [3, 4]}}
}
BODIES: tuple[Body, ...] = (
    (STUDIES_PATH, "StudySpec", TypeAdapter(StudySpec), STUDY_EXAMPLES),
    (f"{STUDIES_PATH}/{{study_id}}/seeds", "MoreSeeds", TypeAdapter(MoreSeeds), SEED_EXAMPLES),
)
