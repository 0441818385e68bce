"""Commands and code that submit a spec: `curl`, the command line, the Python client."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from assay.service.client import DEFAULT_URL, KEY_VARIABLE
from assay.service.contract.specs import JOB_SPEC

WIDTH, INDENT = 88, 2
SUBMIT_PATH = "/api/v1/jobs"


def snippets(spec: Mapping[str, Any], base_url: str, *, with_key: bool = False) -> list[tuple[str, str]]:
    """What submits the spec, as pairs of a label (JSON, curl, command line, Python) and a text to paste.

    Fields that have their default are left out; parameters of components are all kept. A spec that is not
    valid, or not complete, is shown as it is. No text has control characters or characters that change the
    direction of writing, except line breaks.
    """
    url = base_url.rstrip("/")
    given = concise(spec)
    body = json_body(given)
    header = f' -H "Authorization: Bearer ${KEY_VARIABLE}"' if with_key else ""
    place = "" if url == DEFAULT_URL else repr(url)
    curl = (
        f"curl -s -X POST {shlex.quote(url + SUBMIT_PATH)}{header}"
        f" -H 'Content-Type: application/json' -d {shlex.quote(body)}"
    )
    # `echo` of some POSIX shells reads escapes.
    command = f"printf %s {shlex.quote(_json_scalar(given))} | assay submit{url_option(url)} -"
    python = (
        "from assay.service.client import AssayClient\n\n"
        f"spec = {_layout(given, repr)}\n\n"
        f"with AssayClient({place}) as client:\n"
        "    job = client.wait(client.submit(spec).id)\n"
        "    results = client.results(job.id)\n"
    )
    return [("JSON", body), ("curl", curl), ("Command line", command), ("Python", python)]


def url_option(base_url: str) -> str:
    """The option of a command that names the service; empty at the default address."""
    url = base_url.rstrip("/")
    return "" if url == DEFAULT_URL else f" --url {shlex.quote(url)}"


def concise(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec without the fields that have their default; as it is where it is not valid."""
    try:
        whole = JOB_SPEC.validate_python(dict(spec))
    except ValidationError:
        return dict(spec)
    written = whole.model_dump(mode="json", exclude_defaults=True)
    return {"kind": written["kind"], **written}


def json_body(value: object) -> str:
    """JSON with indents; characters that do not print are escaped."""
    return _layout(value, _json_scalar)


def _json_scalar(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def _layout(value: object, scalar: Callable[[object], str], depth: int = 0) -> str:
    """The value as JSON or as Python; lists and objects that fit into a line are on a line."""
    if isinstance(value, Mapping):
        brackets = "{}"
        parts = [f"{scalar(key)}: {_layout(part, scalar, depth + 1)}" for key, part in value.items()]
    elif isinstance(value, list | tuple):
        brackets, parts = "[]", [_layout(part, scalar, depth + 1) for part in value]
    else:
        return scalar(value)
    line = f"{brackets[0]}{', '.join(parts)}{brackets[1]}"
    if len(line) + INDENT * depth <= WIDTH and "\n" not in line:
        return line
    space = " " * (INDENT * (depth + 1))
    inside = ",\n".join(f"{space}{part}" for part in parts)
    return f"{brackets[0]}\n{inside}\n{' ' * (INDENT * depth)}{brackets[1]}"
