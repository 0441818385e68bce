"""The OpenAPI document: FastAPI's, plus the request body that routes parse themselves.

Its page `/docs` is Swagger UI, from files of this machine only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from fastapi import FastAPI
from pydantic import TypeAdapter
from starlette.responses import FileResponse, HTMLResponse, Response

from assay.service import features
from assay.service.api.authentication import OPEN, SESSION_PATH
from assay.service.contract.errors import NotFound, Problem
from assay.service.contract.extras import DISTRIBUTION, version_of
from assay.service.contract.specs import JOB_SPEC

VERSION = version_of(DISTRIBUTION) or "0.0.0"

_EXAMPLES = json.loads(Path(__file__).with_name("request_examples.json").read_text(encoding="utf-8"))

# Kind and name of a component.
COMPONENT_EXAMPLE: list[str] = _EXAMPLES["component"]
# Path of a POST, name and model of its body, and examples.
Body = tuple[str, str, TypeAdapter[Any], Mapping[str, dict[str, Any]]]
BODY: Body = ("/api/v1/jobs", "JobSpec", JOB_SPEC, _EXAMPLES["jobs"])
PATH = "/docs"
ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css", "favicon.png": "image/png"}
# Swagger UI writes style attributes and has its icons as data: addresses in its style sheet.
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
PAGE = Template(Path(__file__).with_name("docs.html").read_text(encoding="utf-8"))
# requestInterceptor: in a browser that is logged in, calls that change state need its session's token.
# validatorUrl: by default the page would show the document to a service on the internet.
START = Template(Path(__file__).with_name("docs.js").read_text(encoding="utf-8"))


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


def install_page(app: FastAPI) -> None:
    """Adds the page `/docs` and its files; none of them is in the document.

    The files come with the package `fastapi-offline`. Its own application class is not used: its page has an
    inline script, which the content security policy here forbids.
    """
    values = {"title": app.title, "path": PATH, "openapi": app.openapi_url or "", "session": SESSION_PATH}
    page, start = PAGE.substitute(values), START.substitute(values)

    @app.get(PATH, include_in_schema=False)
    def docs() -> Response:
        return HTMLResponse(page, headers=HEADERS)

    @app.get(f"{PATH}/start.js", include_in_schema=False)
    def start_script() -> Response:
        return Response(start, media_type="text/javascript", headers=HEADERS)

    @app.get(f"{PATH}/{{name}}", include_in_schema=False)
    def asset(name: str) -> Response:
        if name not in ASSETS:
            raise NotFound(f"no route '{PATH}/{name[:100]}'; see {PATH}")
        return FileResponse(_folder() / name, media_type=ASSETS[name], headers=HEADERS)


def _folder() -> Path:
    """Folder of the package's files; wheels are installed as plain files."""
    return Path(str(resources.files("fastapi_offline") / "static"))
