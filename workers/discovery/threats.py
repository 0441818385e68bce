"""Reads and checks the `THREAT` of an attack module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import ValidationError

from assay.service.catalog.rules import check_syntax
from assay.service.contract.problems import message_of, nearest, path_text
from assay.service.contract.threat import Knowledge, Search, Threat

EXAMPLE = 'THREAT = {"knowledge": "white_box", "search": "iterative"}'


def check_threat(kind: str, where: str, stated: object, schema: Mapping[str, Any]) -> Threat | None:
    """An attack's THREAT, None for other kinds; ValueError names `where` and the allowed values."""
    if kind != "attack":
        if stated is not None:
            raise ValueError(
                f"{where}: THREAT is {stated!r}, but only attacks state one, this is of kind {kind}"
            )
        return None
    allowed = f"knowledge: {_list(Knowledge)}; search: {_list(get_args(Search))}"
    if not isinstance(stated, Mapping):
        given = "states no THREAT" if stated is None else f"states THREAT = {stated!r}"
        raise ValueError(f"{where} {given}; every attack states one, such as {EXAMPLE} ({allowed})")
    fields = list(Threat.model_fields)
    if unknown := sorted(str(name) for name in stated if name not in fields):
        near = nearest(unknown[0], fields)
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(f"{where}: THREAT has {unknown}, allowed are {_list(fields)}{hint}")
    try:
        threat = Threat.model_validate(dict(stated))
    except ValidationError as error:
        problem = error.errors()[0]
        place = path_text(("THREAT", *problem["loc"]))
        given = "" if problem["type"] == "missing" else f", not {problem['input']!r}"
        raise ValueError(f"{where}: {place}: {message_of(problem)}{given} ({allowed})") from error
    _check_backends(where, threat, schema["properties"])
    return threat


def _check_backends(where: str, threat: Threat, properties: Mapping[str, Any]) -> None:
    backends = properties.get("backend", {}).get("enum", [])
    if unknown := [name for name in (*threat.mean_loss_in, *threat.batch_draws) if name not in backends]:
        raise ValueError(
            f"{where}: THREAT names the backends {unknown}, the attack has {_list(backends) or 'none'}"
        )
    for backend, condition in threat.batch_draws.items():
        try:
            used = check_syntax(condition)
        except ValueError as error:
            raise ValueError(f"{where}: THREAT.batch_draws.{backend}: {error}") from error
        if wrong := sorted(f"{space}.{name}" for space, name in used if not _own(space, name, properties)):
            raise ValueError(
                f"{where}: THREAT.batch_draws.{backend}: {condition!r} names {wrong}, which are no parameters"
                " of it"
            )


def _own(space: str, name: str, properties: Mapping[str, Any]) -> bool:
    return space == "params" and name in properties


def _list(names: Any) -> str:
    return ", ".join(names)
