"""Reads the compose files as Docker Compose does: `!reset`, merging, and `${VARIABLE:-default}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
RESET = object()
# A later file replaces these, and does not append to them.
REPLACED = {"command", "entrypoint", "test"}
VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:-|:\?)([^}]*))?\})")


class Missing(ValueError):
    """A variable required with `:?` is not set."""


class _Loader(yaml.SafeLoader):
    """SafeLoader, with the tag that removes what an earlier file said."""


_Loader.add_constructor("!reset", lambda loader, node: RESET)


def load(*names: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The merged compose files of the checkout.

    Args:
        names: the files, the later ones over the earlier ones.
        environment: the variables that the files may use; None leaves `${...}` as it stands.
    """
    merged: dict[str, Any] = {}
    for name in names:
        content = _content(name)
        if environment is not None:
            content = _interpolated(content, environment)
        merged = _merged(merged, content)
    return merged


def variables(name: str) -> set[str]:
    """Every environment variable used by a compose file."""
    text = (ROOT / name).read_text()
    passed_on: set[str] = set()
    for service in load(name)["services"].values():
        settings = service.get("environment", {})
        passed_on |= {variable for variable, value in settings.items() if value is None}
    return passed_on | {match[2] for match in VARIABLE.finditer(text) if match[2]}


@cache
def _content(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.load((ROOT / name).read_text(), Loader=_Loader)
    return content


def _merged(base: Any, over: Any, key: str = "") -> Any:
    if isinstance(base, dict) and isinstance(over, dict):
        result = dict(base)
        for name, value in over.items():
            if value is RESET:
                result.pop(name, None)
            else:
                result[name] = _merged(result[name], value, name) if name in result else _merged({}, value)
        return result
    if isinstance(base, list) and isinstance(over, list) and key not in REPLACED:
        replaced = {_target(one) for one in over} if key == "volumes" else set()
        return [*(one for one in base if key != "volumes" or _target(one) not in replaced), *over]
    if isinstance(over, dict):
        return {name: _merged({}, value) for name, value in over.items() if value is not RESET}
    return over


def _target(volume: str | dict[str, Any]) -> str:
    """Where a volume is mounted: a later file's volume at the same place replaces it."""
    plain = volume["target"] if isinstance(volume, dict) else VARIABLE.sub("", volume).split(":")[1]
    return str(plain)


def _interpolated(value: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _interpolated(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [_interpolated(item, environment) for item in value]
    if isinstance(value, str):
        return VARIABLE.sub(lambda match: _replaced(match, environment), value)
    return value


def _replaced(match: re.Match[str], environment: Mapping[str, str]) -> str:
    dollar, name, operator, text = match.groups()
    if dollar:
        return "$"
    value = environment.get(name, "")
    if not value and operator == ":?":
        raise Missing(f"{name}: {text}")
    return value or (text if operator == ":-" else "")
