"""Pages of the catalog: every component with its parameters, formula, paper and passes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from assay.service.catalog.catalog import CATALOG_FILE, Catalog
from assay.service.catalog.component import Component
from assay.service.contract.threat import Threat
from supply.site.markdown import allowed, cell, code, table, value

KINDS = {
    "model": ("models", "Models", "`model.name` of a job. `weights` says where the weights come from."),
    "attention": ("attention", "Attention", "The value of `attention` in models that take any attention."),
    "attack": (
        "attacks",
        "Attacks",
        "Items of `evaluations`. [Attacks](../../attacks.md) says what to use when.",
    ),
    "evaluation": ("evaluations", "Evaluations", "Items of `evaluations` that are no attack on pixels."),
    "task": (
        "tasks",
        "Tasks",
        "What data, models, recipes and evaluations are for; a job names none of them.",
    ),
    "suite": ("suites", "Suites", '`{"suite": NAME}` in `evaluations` stands for a list of evaluations.'),
    "data": ("data", "Data", "`data.name` of a job. [Your data](../../data.md) has the layouts of folders."),
    "corruption": ("corruptions", "Corruptions", "Values of `corruptions` in the evaluation of that name."),
    "words": ("words", "Words", "Replacements of words: the value of `words` in the evaluations of texts."),
    "recipe": ("recipes", "Recipes", "`recipe.name` of a training job."),
}


def titles() -> dict[str, str]:
    """Name of each page to its title."""
    return {name: title for name, title, _ in KINDS.values()}


def _catalog() -> Catalog:
    return Catalog.from_json(CATALOG_FILE.read_text(encoding="utf-8"))


def overview() -> str:
    """The list of all components by kind."""
    catalog = _catalog()
    parts = []
    for kind, (name, title, _) in KINDS.items():
        links = [f"[`{one.name}`]({name}.md#{one.name})" for one in catalog.list(kind)]
        parts.append(f"## {title}\n\n{', '.join(links)}\n")
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """Name of each page to its text: one page for each kind."""
    catalog = _catalog()
    found = {}
    for kind, (name, title, text) in KINDS.items():
        components = catalog.list(kind)
        summary = table(
            ["name", "what it is"],
            [[f"[`{one.name}`](#{one.name})", cell(one.summary)] for one in components],
        )
        entries = "\n".join(_entry(one) for one in components)
        found[name] = f"# {title}\n\n{text}\n\n{summary}\n{entries}"
    return found


def _entry(one: Component) -> str:
    parts = [f"## {one.name} {{ #{one.name} }}\n", f"{one.summary}\n"]
    if facts := list(_facts(one)):
        parts.append("\n".join(f"- {fact}" for fact in facts) + "\n")
    if one.formula:
        parts.append(f"```text\n{one.formula}\n```\n")
    parts.append(_parameters(one))
    if one.rules:
        parts.append("Rules:\n\n" + "\n".join(f"- {cell(rule.message)}" for rule in one.rules) + "\n")
    if one.evaluations is not None:
        rows = [[code(item["name"]), _params(item)] for item in one.evaluations]
        parts.append(table(["evaluation", "parameters"], rows))
    return "\n".join(parts)


def _params(item: dict[str, object]) -> str:
    given = dict(item.get("params") or {})  # type: ignore[call-overload]
    texts = [f"{code(name)}: {value(part)}" for name, part in given.items()]
    if "data" in item:
        texts.append(f"data: {value(item['data'])}")
    return ", ".join(texts) or "defaults"


def _facts(one: Component) -> Iterator[str]:
    lists = {
        "Tasks": one.tasks,
        "Protocols": one.protocols,
        "Offers": one.offers,
        "Needs a model that offers": one.needs,
    }
    yield from (f"{title}: {', '.join(map(code, names))}" for title, names in lists.items() if names)
    if one.threat is not None:
        yield from _threat(one.threat)
    if one.fixed:
        yield f"Preset of {code(one.target.partition(':')[2])}: {value(one.fixed)}"
    for name, fact in (one.facts or {}).items():
        if isinstance(fact, str | int | float | bool):
            yield f"{name.replace('_', ' ').capitalize()}: {value(fact)}"
    if one.passes is not None:
        yield f"Forward passes per example: {code(one.passes.forward)}"
        yield f"Backward passes per example: {code(one.passes.backward)}"
    if one.paper:
        yield f"Paper: {cell(one.paper)}"
    module, _, name = one.target.partition(":")
    yield f"Code: {code(name)} in {code(module)}"


def _threat(threat: Threat) -> Iterator[str]:
    search = f", {threat.search.replace('_', ' ')}" if threat.search else ""
    yield f"Threat model: {threat.knowledge.value.replace('_', ' ')}{search}"
    if threat.upper_bound:
        yield f"Note: {cell(threat.upper_bound)}"


def _default(schema: Mapping[str, Any]) -> Any:
    """The default as people write it: 8/255, not 0.031."""
    default = schema.get("default")
    if schema.get("fraction") and isinstance(default, float):
        levels = default * 255
        return f"{round(levels)}/255" if levels >= 1 and math.isclose(levels, round(levels)) else default
    return default


def _parameters(one: Component) -> str:
    properties = one.parameters["properties"]
    if not properties:
        return "No parameters.\n"
    required = one.parameters.get("required", [])
    rows = [
        [
            code(name),
            "required" if name in required else value(_default(schema)),
            cell(allowed(schema)),
            cell(schema.get("description", "")),
        ]
        for name, schema in properties.items()
    ]
    return table(["parameter", "default", "allowed", "meaning"], rows)
