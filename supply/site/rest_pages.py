"""Pages of the REST API: one for each tag of `app.openapi()`, and one with every schema."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from assay.service.app import create_app
from assay.service.settings import Settings
from supply.site.markdown import allowed, cell, code, table, value

SCHEMAS = "schemas"
SCHEMAS_TEXT = """The objects of requests and answers. A field without a default is required in a request, and
always there in an answer. Requests with other fields are refused.

"""
# By the order of the routes; what a person looks for under each.
TITLES = {
    "jobs": "Jobs",
    "studies": "Studies",
    "results": "Results and plots",
    "signatures": "Signatures",
    "artifacts": "Artifacts",
    "checkpoints": "Checkpoints",
    "compare": "Comparison",
    "reports": "Reports and tables",
    "catalog": "Catalog",
    "quota": "Quota",
    "keys": "Keys and sessions",
    "tenants": "Tenants",
    "workers": "Workers",
    "audit": "Audit",
    "health": "Health",
}
Operation = Mapping[str, Any]


@functools.cache
def document() -> dict[str, Any]:
    """The OpenAPI document of the service with default settings; nothing is opened."""
    # No variable of the environment is one of these, so that the page is the same everywhere.
    return create_app(Settings(_env_prefix="NOT_ASSAY_")).openapi()


def _by_tag() -> dict[str, list[tuple[str, str, Operation]]]:
    found: dict[str, list[tuple[str, str, Operation]]] = {}
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            found.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    return found


def titles() -> dict[str, str]:
    """Name of each page to its title."""
    return {**{tag: TITLES.get(tag, tag.capitalize()) for tag in _by_tag()}, SCHEMAS: "Schemas"}


def overview() -> str:
    """All calls, with links to their descriptions."""
    rows = [
        [f"[`{method} {path}`]({tag}.md#{operation['operationId']})", cell(operation["summary"])]
        for tag, operations in _by_tag().items()
        for method, path, operation in operations
    ]
    return table(["call", "what it does"], rows)


def pages() -> dict[str, str]:
    """Name of each page to its text."""
    names = titles()
    found = {
        tag: f"# {names[tag]}\n\n" + "\n".join(_operation(*one) for one in operations)
        for tag, operations in _by_tag().items()
    }
    schemas = document()["components"]["schemas"]
    parts = [_schema(name, schemas[name]) for name in sorted(schemas, key=str.lower)]
    found[SCHEMAS] = "# Schemas\n\n" + SCHEMAS_TEXT + "\n".join(parts)
    return found


def _operation(method: str, path: str, operation: Operation) -> str:
    parts = [
        f"## {operation['summary']} {{ #{operation['operationId']} }}\n",
        f"```http\n{method} {path}\n```\n",
        _prose(operation.get("description", "")),
    ]
    if parameters := operation.get("parameters"):
        rows = [
            [code(one["name"]), one["in"], _default(one), _type(one["schema"]), cell(_described(one))]
            for one in parameters
        ]
        parts.append(table(["parameter", "in", "default", "allowed", "meaning"], rows))
    if body := operation.get("requestBody"):
        parts.append(_body(body))
    parts.append(table(["status", "answer"], _answers(operation["responses"])))
    return "\n".join(parts)


def _prose(text: str) -> str:
    """A docstring as Markdown; its paragraphs stay, and angle brackets are shown."""
    return re.sub(r"<(?=[A-Za-z/])", "&lt;", text.strip()) + "\n"


def _default(parameter: Mapping[str, Any]) -> str:
    if parameter.get("required"):
        return "required"
    default = parameter["schema"].get("default")
    return "" if default is None else value(default)


def _described(parameter: Mapping[str, Any]) -> str:
    branches = [parameter, parameter["schema"], *parameter["schema"].get("anyOf", [])]
    return next((str(one["description"]) for one in branches if one.get("description")), "")


def _body(body: Mapping[str, Any]) -> str:
    parts = []
    for media, content in body["content"].items():
        schema = content.get("schema", {})
        parts.append(f"The body is {code(media)}{': ' + _type(schema) if media.endswith('json') else ''}.\n")
        for example in content.get("examples", {}).values():
            text = json.dumps(example["value"], indent=2, ensure_ascii=False)
            parts.append(f"{example['summary']}:\n\n```json\n{text}\n```\n")
    return "\n".join(parts)


def _answers(responses: Mapping[str, Any]) -> Iterator[list[str]]:
    for status, answer in sorted(responses.items()):
        if status >= "400":
            yield [status, cell(answer["description"])]
            continue
        contents = answer.get("content", {}).items()
        kinds = [
            _type(one.get("schema", {})) if media.endswith("/json") else code(media)
            for media, one in contents
        ]
        said = "" if answer["description"] == "Successful Response" else cell(answer["description"])
        yield [status, "; ".join(filter(None, [said, " or ".join(dict.fromkeys(kinds))])) or "no body"]


def _type(schema: Mapping[str, Any]) -> str:
    """What a schema allows, as Markdown; names of schemas are links."""
    if not schema:
        return "any JSON"
    known = document()["components"]["schemas"]
    text = cell(allowed(schema))
    return re.sub(
        r"(?<![\w`])([A-Z]\w*(?:\\_\w*)*)(?![\w`])",
        lambda found: _link(found[1].replace("\\", ""), known) or found[0],
        text,
    )


def _link(name: str, known: Mapping[str, Any]) -> str | None:
    return f"[{name.replace('_', chr(92) + '_')}]({SCHEMAS}.md#{name.lower()})" if name in known else None


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    parts = [f"## {name} {{ #{name.lower()} }}\n", _prose(schema.get("description", ""))]
    if "enum" in schema:
        parts.append(f"One of {', '.join(map(value, schema['enum']))}.\n")
    elif "oneOf" in schema or "anyOf" in schema:
        parts.append(f"{_type(schema)}.\n")
    if properties := schema.get("properties"):
        required = schema.get("required", [])
        rows = [
            [
                code(field),
                "" if field in required else value(part.get("default")),
                _type(part),
                cell(part.get("description", "")),
            ]
            for field, part in properties.items()
        ]
        parts.append(table(["field", "default", "value", "meaning"], rows))
    return "\n".join(parts)
