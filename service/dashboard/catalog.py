"""Pages of the catalog: components, each with parameters, rules and an example; and what warnings mean."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from assay.service.api.deps import CatalogDep, SettingsDep, StrictRoute
from assay.service.catalog.catalog import KINDS, Catalog
from assay.service.catalog.component import EVALUATIONS, Component
from assay.service.contract.errors import NotFound
from assay.service.contract.warning_codes import warning_meanings
from assay.service.dashboard.choices import Filter, check_choices
from assay.service.dashboard.example_specs import conditions_of, example_of
from assay.service.dashboard.form_fields import FormField, kind_of, plain_fields
from assay.service.dashboard.frame import render
from assay.service.dashboard.snippets import snippets

router = APIRouter(route_class=StrictRoute, include_in_schema=False)

TITLES: Mapping[str, str] = {
    "model": "Models", "attention": "Attention mechanisms", "data": "Data sets",
    "recipe": "Training recipes", "suite": "Suites", "evaluation": "Evaluations", "attack": "Attacks",
    "corruption": "Corruptions", "words": "Word changes", "task": "Tasks",
}  # fmt: skip
# Kinds that share tasks with a component, in the order of a job.
OF_A_TASK = ("model", "data", "recipe", *EVALUATIONS)
MAX_SHOWN_EVALUATIONS = 60


@dataclass(frozen=True)
class ParameterRow:
    """A parameter in the table of a component: its field, and the kind of component that it names."""

    field: FormField
    kind: str | None
    default: str


@router.get("/catalog")
def list_components(
    request: Request, catalog: CatalogDep, kind: Filter = "", search: Filter = "", task: Filter = ""
) -> Response:
    """All components that match the filters, by kind."""
    tasks = sorted({one for entry in catalog.list() for one in entry.tasks})
    check_choices(kind=(kind, KINDS), task=(task, tasks))
    wanted = search.strip().lower()
    found = [
        entry
        for entry in catalog.list(kind or None)
        if (not task or task in entry.tasks) and (not wanted or wanted in _searched(entry))
    ]
    order = [*TITLES, *(one for one in KINDS if one not in TITLES)]
    groups = [(one, [entry for entry in found if entry.kind == one]) for one in order]
    values = {
        "title": "Catalog",
        "section": "/catalog",
        "groups": [(one, TITLES.get(one, one), entries) for one, entries in groups if entries],
        "count": len(found),
        "total": len(catalog.list()),
        "filters": {"kind": kind, "search": search.strip(), "task": task},
        "kinds": order,
        "tasks": tasks,
    }
    return render(request, "catalog.html", values)


@router.get("/catalog/{kind}/{name}")
def show_component(
    request: Request, kind: str, name: str, catalog: CatalogDep, settings: SettingsDep
) -> Response:
    """A component: what it does, its parameters and rules, an example, and what it goes with."""
    component = catalog.find(kind, name)
    example: dict[str, Any] | None
    try:
        example = example_of(catalog, component)
    except NotFound:
        example = None
    texts = snippets(example, str(request.base_url), with_key=settings.keys_required) if example else []
    values = {
        "title": component.name,
        "section": "/catalog",
        "component": component,
        "kind_title": TITLES.get(kind, kind),
        "parameters": list(_parameters(component)),
        "facts": [
            (_words(fact), _fact_text(value))
            for fact, value in (component.facts or {}).items()
            if not (component.kind == "task" and fact == "example")  # the page ends with an example
        ],
        "evaluations": (component.evaluations or [])[:MAX_SHOWN_EVALUATIONS],
        "kinds_of_evaluations": {
            item["name"]: catalog.find_evaluation(item["name"]).kind for item in component.evaluations or []
        },
        "example": example,
        "conditions": conditions_of(catalog, example) if example else [],
        "snippets": texts,
        "related": list(_related(catalog, component)),
    }
    return render(request, "component.html", values)


@router.get("/warnings")
def explain_warnings(request: Request) -> Response:
    """What the codes of warnings mean, by group."""
    groups = groupby(warning_meanings(), key=lambda one: one.group)
    listed = [(name, list(found)) for name, found in groups]
    values = {"title": "Warnings", "section": "/catalog", "groups": listed}
    return render(request, "warnings.html", values)


def _searched(entry: Component) -> str:
    return f"{entry.name} {entry.summary} {entry.paper or ''}".lower()


def _parameters(component: Component) -> Iterator[ParameterRow]:
    for field in plain_fields(component.parameters):
        part = component.parameters["properties"][field.label]
        listed = part.get("items", {}).get("component")
        default = field.default
        if isinstance(part.get("default"), Mapping):
            default = str(part["default"].get("name", ""))
        yield ParameterRow(field, kind_of(part) or listed, default)


def _related(catalog: Catalog, component: Component) -> Iterator[tuple[str, list[Component]]]:
    users = [one for one in catalog.list() if _takes(one, component)]
    for kind in dict.fromkeys(one.kind for one in users):
        named = TITLES.get(kind, kind)
        yield f"{named} that take it", [one for one in users if one.kind == kind]
    suites = [
        one
        for one in catalog.list("suite")
        if component.kind in EVALUATIONS
        and any(item["name"] == component.name for item in one.evaluations or [])
    ]
    if suites:
        yield "Suites that have it", suites
    presets = [
        one for one in catalog.list(component.kind) if one.target == component.target and one != component
    ]
    if presets:
        yield "Sizes and forms of the same code", presets
    if component.kind in (*OF_A_TASK, "suite", "task"):
        for kind in OF_A_TASK:
            fitting = [one for one in catalog.list(kind) if set(one.tasks) & set(component.tasks)]
            if kind != component.kind and fitting and not {kind, component.kind} <= {"suite", *EVALUATIONS}:
                yield f"{TITLES[kind]} of its tasks", fitting


def _takes(one: Component, component: Component) -> bool:
    for part in one.parameters["properties"].values():
        for branch in part.get("anyOf", [part]):
            fact = branch.get("having")
            named = branch.get("component") or branch.get("items", {}).get("component")
            if named == component.kind and (fact is None or fact in (component.facts or {})):
                return True
    return False


def _words(name: str) -> str:
    return name.replace("_", " ")


def _fact_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(str(name))}: {_fact_text(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_fact_text, value))
    return value if isinstance(value, str) else json.dumps(value)
