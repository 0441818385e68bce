"""The OpenAPI document: FastAPI's, plus the request body that routes parse themselves."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from assay.service.api.authentication import OPEN
from assay.service.contract.errors import Problem
from assay.service.contract.specs import JOB_SPEC

_DIGITS_MODEL = {
    "image_size": 32,
    "patch_size": 8,
    "depth": 4,
    "width": 96,
    "heads": 3,
    "iterations": 4,
    "rpc_layers": "first",
}

EXAMPLES: dict[str, dict[str, Any]] = {
    "train": {
        "summary": "Train RPC-SymViT on handwritten digits",
        "value": {
            "kind": "train",
            "name": "rpc on digits",
            "tags": ["demo"],
            "model": {"name": "rpc_symvit", "params": _DIGITS_MODEL},
            "data": {"name": "digits"},
            "recipe": {"name": "small_vit", "params": {"epochs": 60}},
            "execution": {"batch_size": 64},
        },
    },
    "evaluate": {
        "summary": "Attack the model of a training job",
        "value": {
            "kind": "evaluate",
            "name": "rpc under attack",
            "tags": ["demo"],
            "model": {"name": "rpc_symvit", "weights": {"job": "01jd3q0x5v8f7m2n9k4t6w1z0y"}},
            "data": {"name": "digits"},
            "evaluations": [
                {"name": "clean"},
                {"name": "fgsm", "params": {"epsilon": "2/255"}},
                {"name": "pgd", "params": {"epsilon": "2/255", "steps": 20}},
            ],
        },
    },
}


def install(app: FastAPI) -> None:
    """Adds the schema and examples of `POST /api/v1/jobs` to `app.openapi()`."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_job_spec(generate())
            if app.state.settings.keys_required:
                _add_keys(app.openapi_schema)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _add_keys(document: dict[str, Any]) -> None:
    """Marks all calls but the open ones as needing a key."""
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}]
    for method, path in OPEN:
        document["paths"][path][method.lower()]["security"] = []


def _with_job_spec(document: dict[str, Any]) -> dict[str, Any]:
    schema = JOB_SPEC.json_schema(ref_template="#/components/schemas/{model}")
    schemas = document["components"]["schemas"]
    for name, definition in schema.pop("$defs").items():
        assert schemas.get(name, definition) == definition, f"two schemas are named {name}"
        schemas[name] = definition
    schemas["JobSpec"] = schema
    # Its inner schema is that of the envelope too, and is there.
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas["Problem"] = {key: value for key, value in problem.items() if key != "$defs"}
    document["paths"]["/api/v1/jobs"]["post"]["requestBody"] = {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/JobSpec"}, "examples": EXAMPLES}
        },
    }
    return document
