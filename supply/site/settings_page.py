"""The reference of the settings: every variable of the service and the workers, from their classes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings

from assay.service.settings import Settings
from assay.service.store.connections import Connections
from assay.workers.settings import WorkerSettings
from supply.site.markdown import allowed, cell, code, table, value


def page() -> str:
    """Three tables: of both, of the service alone, of workers alone."""
    both = Connections.model_fields.keys()
    shared = [name for name in Settings.model_fields if name in both or name in WorkerSettings.model_fields]
    parts = [
        ("Service and workers", Settings, shared),
        ("Service", Settings, [name for name in Settings.model_fields if name not in shared]),
        ("Workers", WorkerSettings, [name for name in WorkerSettings.model_fields if name not in shared]),
    ]
    return "\n".join(f"## {title}\n\n{_table(settings, names)}" for title, settings, names in parts)


def _table(settings: type[BaseSettings], names: list[str]) -> str:
    return table(["variable", "default", "allowed", "meaning"], _rows(settings, names))


def _rows(settings: type[BaseSettings], names: list[str]) -> Iterator[list[str]]:
    schemas = settings.model_json_schema()["properties"]
    prefix = str(settings.model_config["env_prefix"])
    for name in names:
        field = settings.model_fields[name]
        yield [
            code(f"{prefix}{name}".upper()),
            _default(field.get_default(call_default_factory=False)),
            cell(_allowed(schemas[name])),
            cell(field.description or ""),
        ]


def _default(default: Any) -> str:
    if default is None or default == "" or default is PydanticUndefined:
        return ""
    if isinstance(default, str | Path):
        return code(str(default))
    if isinstance(default, bool):
        return code("true" if default else "false")
    return value(TypeAdapter(Any).dump_python(default, mode="json"))


def _allowed(schema: dict[str, Any]) -> str:
    branches = [branch for branch in schema.get("anyOf", [schema]) if branch.get("type") != "null"]
    texts = []
    for branch in branches:
        if branch.get("format") in ("path", "directory-path", "file-path"):
            texts.append("a path")
        elif branch.get("type") == "object":
            texts.append("a JSON object")
        else:
            texts.append(re.sub("^text$", "text", allowed(branch)))
    return " or ".join(dict.fromkeys(texts))
