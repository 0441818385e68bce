"""Walks the component packages and describes every component: the content of `catalog.json`.

A component is a name in a module's `__all__` or `PRESETS`. `__all__` is read from the source: helper modules
must not be imported, and libraries append to it at run time (timm's `register_model`).
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import math
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from pydantic import ValidationError

from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import EVALUATIONS, Component, Passes, Rule
from assay.service.catalog.rules import check_syntax
from assay.service.catalog.tasks import check_facts
from assay.service.contract.problems import Problems, message_of, path_text
from assay.service.contract.specs import Protocol
from assay.service.contract.stored_specs import DTypeName
from assay.service.contract.weights.pulled import SOURCES, PulledReference
from assay.service.submission.shape import check_evaluation_shape
from assay.workers.discovery.outcome_tables import find_table
from assay.workers.discovery.presets import NAME, presets
from assay.workers.discovery.signatures import schema_of_parameters, with_synonyms
from assay.workers.discovery.threats import check_threat

PACKAGES: Mapping[str, str] = {
    "attack": "assay.attacks.adversarial",
    "attention": "assay.models.attention",
    "corruption": "assay.attacks.corruptions",
    "data": "assay.workers.data",
    "evaluation": "assay.workers.evaluation",
    "model": "assay.models",
    "recipe": "assay.workers.training.recipes",
    "suite": "assay.workers.evaluation.suites",
    "task": "assay.workers.tasks",
    "words": "assay.attacks.words",
}
# Of a module about its components.
CONSTANTS = (
    "ALSO",
    "TASKS",
    "PAPER",
    "PASSES",
    "PROTOCOLS",
    "THREAT",
    "FACTS",
    "CHOICES",
    "OFFERS",
    "NEEDS",
    "REPEATS",
    "LEAVES_OUT",
    "INSTEAD",
    "PULLED",
    "TABLE",
)
# Left out where empty.
RARE: tuple[str, ...] = ("also", "offers", "needs", "repeats", "package", "leaves_out", "instead")
RARE += ("pulled", "table", "fixed", "formula")
WITH_TASKS = ("attack", "data", "evaluation", "model", "recipe")


def walk(packages: Mapping[str, str] = PACKAGES) -> list[Component]:
    """Every component, by kind and name; ValueError names a defective module."""
    found: dict[tuple[str, str], Component] = {}
    for kind, package in packages.items():
        for module_name, names in exports(package):
            module = importlib.import_module(module_name)
            for component in components_of(kind, module, names):
                key = (kind, component.name)
                if key in found:
                    raise ValueError(
                        f"two components of kind {kind} are called {component.name!r}:"
                        f" {found[key].target} and {component.target}"
                    )
                found[key] = component
    _check_overlaps(found)
    components = [found[key] for key in sorted(found)]
    check_references(Catalog(components))
    return components


def to_json(components: list[Component]) -> str:
    """The text of `catalog.json`: the same components always give the same bytes."""
    return json.dumps(list(map(entry_of, components)), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def entry_of(component: Component) -> dict[str, Any]:
    """A component's catalog entry, without fields that its kind never has."""
    entry = component.model_dump(by_alias=True)
    if component.kind != "suite":
        del entry["evaluations"]
    if component.kind != "attack":
        del entry["protocols"], entry["threat"]
    elif component.threat is not None:
        entry["threat"] = component.threat.model_dump(exclude_defaults=True)
    for key in RARE:
        if not entry[key]:
            del entry[key]
    return entry


def exports(package: str) -> Iterator[tuple[str, list[str]]]:
    """(module, names in `__all__`) by module; ValueError: no package, or an `__all__` is no plain list."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ValueError(f"there is no package {package!r}")
    for information in sorted(
        pkgutil.iter_modules(spec.submodule_search_locations), key=lambda info: info.name
    ):
        module = f"{package}.{information.name}"
        if information.ispkg:
            continue
        found = importlib.util.find_spec(module)
        assert found is not None
        assert found.origin is not None
        names = stated_all(module, Path(found.origin))
        if names:
            yield module, names


def stated_all(module: str, path: Path) -> list[str]:
    """Names in a module's `__all__`; empty without; ValueError: no plain list."""
    for node in ast.parse(path.read_text(encoding="utf-8"), str(path)).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            continue
        assert isinstance(node, ast.Assign | ast.AnnAssign)
        assert node.value is not None
        try:
            names = list(ast.literal_eval(node.value))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{module}: __all__ must be a plain list of names") from error
        return names
    return []


def components_of(kind: str, module: ModuleType, exports: list[str]) -> Iterator[Component]:
    """The entries of a module: the names in its `__all__`, then its presets."""
    described = {export: describe(kind, module, export, exports) for export in exports}
    yield from described.values()
    yield from presets(module, described)


def describe(kind: str, module: ModuleType, export: str, exports: list[str]) -> Component:
    """A component's entry; ValueError names module and export."""
    where = f"{module.__name__}.{export}"
    target = getattr(module, export, None)
    if not callable(target):
        raise ValueError(f"{where} is in __all__, but not a function or class of the module")
    name = getattr(target, "name", None) if kind == "attention" else getattr(target, "__name__", None)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        wanted = 'a class attribute `name = "..."`' if kind == "attention" else "its function name"
        raise ValueError(
            f"{where}: the catalog name, {wanted}, must be lower case with underscores, not {name!r}"
        )
    summary = (inspect.getdoc(target) or "").partition("\n")[0].strip() if target.__doc__ else ""
    if not summary:
        raise ValueError(f"{where} has no docstring; its first line is the catalog's summary")
    stated = {key: _own(module, key, name, exports) for key in CONSTANTS}
    choices = {key: call() for key, call in (stated["CHOICES"] or {}).items()}
    schema = schema_of_parameters(target, choices)
    schema["properties"] = with_synonyms(schema["properties"])
    tasks = list(stated["TASKS"] or (("classification",) if kind in WITH_TASKS else ()))
    tasks = [name] if kind == "task" else tasks
    entry = {
        "name": name,
        "kind": kind,
        "target": f"{module.__name__}:{export}",
        "summary": summary,
        "also": checked_words(where, stated["ALSO"]),
        "schema": schema,
        "rules": _rules(kind, module, exports, schema, stated["FACTS"] or {}),
        "tasks": tasks,
        "paper": stated["PAPER"],
        "formula": _formula(module),
        "passes": _passes(where, stated["PASSES"], schema) if stated["PASSES"] else None,
        "repeats": _counted(where, "REPEATS", stated["REPEATS"], schema) if stated["REPEATS"] else None,
        "offers": list(stated["OFFERS"] or ()),
        "needs": list(stated["NEEDS"] or ()),
        "leaves_out": bool(stated["LEAVES_OUT"]),
        "instead": dict(stated["INSTEAD"] or {}),
        "pulled": _pulled(kind, where, stated["PULLED"], schema),
        "protocols": _protocols(kind, where, stated["PROTOCOLS"]),
        "facts": _facts(kind, where, stated["FACTS"], schema) if stated["FACTS"] else None,
        "threat": check_threat(kind, where, stated["THREAT"], schema),
        "evaluations": target() if kind == "suite" else None,
        "table": _table(kind, where, stated["TABLE"], tasks),
    }
    try:
        return Component.model_validate(entry)
    except ValidationError as error:
        problem = error.errors()[0]
        raise ValueError(f"{where}: {path_text(problem['loc'])}: {message_of(problem)}") from error


def checked_words(where: str, stated: Iterable[str] | None) -> list[str]:
    """A module's ALSO; ValueError: no list of texts."""
    words = [] if stated is None else list(stated)
    if isinstance(stated, str) or not all(isinstance(word, str) and word for word in words):
        raise ValueError(f"{where}: ALSO must list other names of the component; it is {stated!r}")
    return words


def _formula(module: ModuleType) -> str | None:
    """Indented blocks of the module's docstring, except JSON: the definition in formulas."""
    lines = inspect.cleandoc(module.__doc__ or "").splitlines()
    blocks = [line if line.startswith("    ") and '{"' not in line else "" for line in lines]
    text = re.sub(r"\n{2,}", "\n\n", inspect.cleandoc("\n".join(["", *blocks])))
    return text or None


def _own(module: ModuleType, constant: str, name: str, exports: list[str]) -> Any:
    value = getattr(module, constant, None)
    names = set(exports) | {getattr(getattr(module, export), "name", export) for export in exports}
    if isinstance(value, Mapping) and value and set(value) <= names:
        return value.get(name)
    return value


def _rules(
    kind: str, module: ModuleType, exports: list[str], schema: Mapping[str, Any], facts: Mapping[str, Any]
) -> list[Rule]:
    own = ("params", "model") if kind == "model" else ("params",)
    rules = []
    for expression, message in getattr(module, "RULES", ()):
        try:
            used = check_syntax(expression)
        except ValueError as error:
            raise ValueError(f"{module.__name__}: RULES: {error}") from error
        wanted = {name for space, name in used if space in own}
        # Parts of a recipe's or evaluation's model.
        parts = {name for space, name in used if space == "part" and kind not in ("recipe", "evaluation")}
        everything = set().union(*(_keyword_names(getattr(module, export)) for export in exports))
        unknown = {name for name in wanted - set(facts) if name not in everything}
        unknown |= {name for name in parts if not _of_a_part(name, everything)}
        if unknown:
            raise ValueError(
                f"{module.__name__}: RULES: {expression!r} names {sorted(unknown)}, which are no parameters"
            )
        if wanted <= {*schema["properties"], *facts} and all(
            _of_a_part(name, schema["properties"]) for name in parts
        ):
            rules.append(Rule(expression=expression, message=message))
    return rules


def _of_a_part(name: str, parameters: Iterable[str]) -> bool:
    return any(name.startswith(f"{parameter}_") for parameter in parameters)


def _keyword_names(component: Callable[..., Any]) -> set[str]:
    function = component.__init__ if inspect.isclass(component) else component
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def _passes(where: str, expressions: tuple[str, str], schema: Mapping[str, Any]) -> Passes:
    forward, backward = (_counted(where, "PASSES", expression, schema) for expression in expressions)
    return Passes(forward=forward, backward=backward)


def _counted(where: str, constant: str, expression: str, schema: Mapping[str, Any]) -> str:
    try:
        used = check_syntax(expression)
    except ValueError as error:
        raise ValueError(f"{where}: {constant}: {error}") from error
    unknown = [
        f"{space}.{name}"
        for space, name in sorted(used)
        if space != "params" or name not in schema["properties"]
    ]
    if unknown:
        raise ValueError(
            f"{where}: {constant}: {expression!r} names {unknown}, which are no parameters of it"
        )
    return expression


def _protocols(kind: str, where: str, stated: tuple[str, ...] | None) -> list[str]:
    if stated is not None and (kind != "attack" or not stated):
        raise ValueError(f"{where}: PROTOCOLS is {stated!r}: an attack states at least one, others none")
    return list(stated or (get_args(Protocol) if kind == "attack" else ()))


def _pulled(kind: str, where: str, stated: Any, schema: Mapping[str, Any]) -> str | None:
    if stated is None:
        return None
    if kind != "model" or stated not in SOURCES:
        raise ValueError(
            f"{where}: PULLED is {stated!r}: a model states one of {', '.join(SOURCES)}, others none"
        )
    if missing := sorted(set(PulledReference(stated, "", None).params) - set(schema["properties"])):
        raise ValueError(f"{where}: PULLED: it lacks the parameters {missing}, which name the weights")
    return str(stated)


def _table(kind: str, where: str, stated: Any, tasks: list[str]) -> str | dict[str, str] | None:
    if kind not in EVALUATIONS:
        if stated is not None:
            raise ValueError(f"{where}: TABLE: evaluations and attacks have outcomes, no {kind} has")
        return None
    named = dict.fromkeys(tasks, stated) if isinstance(stated, str) else stated
    if not isinstance(named, Mapping) or set(named) != set(tasks):
        raise ValueError(
            f"{where}: TABLE must name its outcome table, or a table for each of its tasks"
            f" ({', '.join(tasks)}); it is {stated!r}"
        )
    for table in named.values():
        try:
            find_table(table)
        except ValueError as error:
            raise ValueError(f"{where}: TABLE: {error}") from error
    return stated if isinstance(stated, str) else dict(named)


def _facts(kind: str, where: str, facts: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    cost = facts.get("milliseconds", 1)
    if kind == "corruption" and not (type(cost) in (int, float) and 0 < cost < math.inf):
        raise ValueError(f"{where}: FACTS: milliseconds must be a finite number above 0, not {cost!r}")
    if kind == "recipe" and (dtype := facts.get("arithmetic", "float32")) not in get_args(DTypeName):
        raise ValueError(
            f"{where}: FACTS: arithmetic must be one of {', '.join(get_args(DTypeName))}, not {dtype!r}"
        )
    if kind == "task":
        check_facts(where, facts)
    marks = facts.get("marks", [])
    if kind == "data" and not (isinstance(marks, list) and all(isinstance(mark, str) for mark in marks)):
        raise ValueError(f"{where}: FACTS: marks must be a list of paths in the folder, not {marks!r}")
    if both := sorted(set(facts) & set(schema["properties"])):
        raise ValueError(f"{where}: FACTS: {both} are parameters too; rules could not tell them apart")
    return dict(facts)


def _check_overlaps(found: Mapping[tuple[str, str], Component]) -> None:
    """`evaluations[].name` is an evaluation or an attack, never both."""
    for (kind, name), component in found.items():
        if kind == "evaluation" and ("attack", name) in found:
            raise ValueError(
                f"{name!r} is an evaluation and an attack:"
                f" {component.target} and {found['attack', name].target}"
            )


def check_references(catalog: Catalog) -> None:
    """Check that defaults and suites name components with valid parameters; else ValueError."""
    for component in catalog.list():
        problems = Problems()
        parts = component.parameters["properties"]
        defaults = {name: part["default"] for name, part in parts.items() if "default" in part}
        for name, part in parts.items():
            if "component" in part and "default" in part:
                catalog.check_reference((part["component"],), part["default"], problems, (name,))
        for kind, name in component.named(defaults):
            catalog.look_up((kind,), name, problems, ())
        for index, item in enumerate(component.evaluations or []):
            shape = check_evaluation_shape(item, problems, (index,))
            catalog.check_reference(("evaluation", "attack"), shape, problems, (index,))
        if problems.details:
            problem = problems.details[0]
            raise ValueError(f"{component.target}: {path_text(problem.loc)}: {problem.message}")
