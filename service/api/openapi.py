"""The OpenAPI document: FastAPI's, plus the request body that routes parse themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import TypeAdapter

from assay.service import features
from assay.service.api.authentication import OPEN
from assay.service.contract.errors import Problem
from assay.service.contract.extras import DISTRIBUTION, version_of
from assay.service.contract.specs import JOB_SPEC

VERSION = version_of(DISTRIBUTION) or "0.0.0"

_EXAMPLES = json.loads(Path(__file__).with_name("request_examples.json").read_text(encoding="utf-8"))

# Kind and name of a component.
COMPONENT_EXAMPLE: list[str] = _EXAMPLES["component"]
# Path of a POST, name and model of its body, and examples.
Body = tuple[str, str, TypeAdapter[Any], Mapping[str, dict[str, Any]]]
BODY: Body = ("/api/v1/jobs", "JobSpec", JOB_SPEC, _EXAMPLES["jobs"])


def install(app: FastAPI) -> None:
    """Adds the schemas and examples of bodies that routes check themselves to `app.openapi()`."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_specs(generate())
            if app.state.settings.keys_required:
                _add_keys(app.openapi_schema)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _add_keys(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}]
    for method, path in OPEN:
        if path in document["paths"]:
            document["paths"][path][method.lower()]["security"] = []


def _with_specs(document: dict[str, Any]) -> dict[str, Any]:
    schemas = document["components"]["schemas"]
    bodies = [BODY, *(body for module in features.modules("request_examples") for body in module.BODIES)]
    for _, title, model, _ in bodies:
        schema = model.json_schema(ref_template="#/components/schemas/{model}")
        for name, definition in schema.pop("$defs", {}).items():
            assert schemas.get(name, definition) == definition, f"two schemas are named {name}"
            schemas[name] = definition
        schemas[title] = schema
    # Its inner schema is the envelope's too, and is there.
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas["Problem"] = {key: value for key, value in problem.items() if key != "$defs"}
    paths = document["paths"]
    for path, title, _, examples in bodies:
        paths[path]["post"]["requestBody"] = _body(title, examples)
    return document


def _body(schema: str, examples: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    content = {"schema": {"$ref": f"#/components/schemas/{schema}"}, "examples": examples}
    return {"required": True, "content": {"application/json": content}}
