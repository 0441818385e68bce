"""The catalog: every component by kind and name, with the schema and rules of its parameters.

`catalog.json` is generated from the components by `python -m assay.workers.catalog`, committed, and read here
without torch. ASSAY_CATALOG may name other packages' components (`extra_components`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from assay.service.catalog import extra_components
from assay.service.catalog.component import EVALUATIONS, Component
from assay.service.catalog.parameters import INVALID, check, numbers, pixel_steps
from assay.service.catalog.rules import Namespaces, UnknownName, check_syntax, evaluate
from assay.service.catalog.tasks import TaskFacts
from assay.service.contract.errors import NotFound
from assay.service.contract.fractions import parse_fraction
from assay.service.contract.problems import Loc, Problems, message_of, nearest, path_text, readable
from assay.service.contract.row_protocols import RadiusUnit, protocol_unit
from assay.service.contract.threat import Knowledge, Threat

CATALOG_FILE = Path(__file__).with_name("catalog.json")
# By kind: what is no name but a path, a file or code, as patterns, and how these are given.
OTHER_FORMS: Mapping[str, list[tuple[str, str]]] = json.loads(
    Path(__file__).with_name("other_forms.json").read_text(encoding="utf-8")
)

KINDS = (
    "attack", "attention", "corruption", "data", "evaluation", "model", "recipe", "suite", "task", "words"
)  # fmt: skip
NO_FACTS = TaskFacts()  # of a task that the catalog lacks
# The name of another component, as a list item.
NAME: Mapping[str, Any] = {"type": "string", "minLength": 1, "maxLength": 200}
REFERENCE: Mapping[str, Any] = {  # A reference to a component; a name alone means default parameters.
    "type": ["object", "string"],
    "properties": {"name": NAME, "params": {"type": "object", "default": {}}},
    "required": ["name"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Checked:
    """A reference to a component that exists."""

    component: Component  # The entry
    params: dict[str, Any]  # The parameters with defaults, without the wrong parameters
    certain: bool  # Whether these are the intended values: a misspelt name leaves an unintended default
    doubted: Collection[str | None] = ()  # Names that misspelt ones are meant for


class Catalog:
    """Components by kind and name."""

    def __init__(
        self, components: Iterable[Component], left_out: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._components = {(entry.kind, entry.name): entry for entry in components}
        self._tasks = {
            name: TaskFacts.model_validate(entry.facts or {})
            for (kind, name), entry in self._components.items()
            if kind == "task"
        }
        self._left_out = left_out

    @classmethod
    def from_json(cls, text: str) -> Catalog:
        """Read the output of `workers.catalog`."""
        return cls(Component.model_validate(entry) for entry in json.loads(text))

    def with_packages(self, more: extra_components.PackageComponents) -> Catalog:
        """This catalog with other packages' components; ValueError for a wrong entry or a taken name."""
        added = []
        for entry in more.components:
            try:
                component = Component.model_validate(entry)
            except ValidationError as error:
                problem = error.errors()[0]
                raise ValueError(
                    f"the entry {entry.get('name')!r}: {path_text(problem['loc'])}: {message_of(problem)}"
                ) from None
            self.check_name(component)
            added.append(component)
        return Catalog([*self._components.values(), *added], more.left_out)

    def check_name(self, component: Component) -> None:
        """Refuse a taken name, as a ValueError with both components; attacks and evaluations share names."""
        kinds = EVALUATIONS if component.kind in EVALUATIONS else (component.kind,)
        for kind in kinds:
            taken = self._components.get((kind, component.name))
            if taken is not None:
                owner = taken.package or "Assay itself"
                raise ValueError(
                    f"the {component.kind} {component.name!r} of {component.package} ({component.target}) has"
                    f" the name of {_with_article(kind)} of {owner} ({taken.target}): rename it"
                )

    @functools.cached_property
    def program_model(self) -> str | None:
        """The model with exported programs as checkpoints; None in catalogs of earlier versions."""
        models = (entry for (kind, _), entry in self._components.items() if kind == "model")
        return next((entry.name for entry in models if (entry.facts or {}).get("exported_program")), None)

    @functools.cached_property
    def digest(self) -> str:
        """Hash of all entries: equal on services and workers with the same catalog."""
        entries = [self._components[key].model_dump(by_alias=True) for key in sorted(self._components)]
        return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()

    def list(self, kind: str | None = None) -> tuple[Component, ...]:
        """All components, or all of a kind, by kind and name; NotFound for an unknown kind."""
        if kind is not None:
            self._known_kind(kind)
        return tuple(entry for entry in self._components.values() if kind in (None, entry.kind))

    def names(self, *kinds: str) -> tuple[str, ...]:
        """The names of the components of some kinds, sorted."""
        return tuple(sorted(entry.name for entry in self._components.values() if entry.kind in kinds))

    def find(self, kind: str, name: str) -> Component:
        """The component of a kind by name; NotFound lists the known names and the nearest name."""
        self._known_kind(kind)
        return self._get((kind,), name)

    def find_evaluation(self, name: str) -> Component:
        """The evaluation or attack named by `evaluations[].name`; NotFound if no component has the name."""
        return self._get(EVALUATIONS, name)

    def task(self, name: str) -> TaskFacts:
        """The facts of a task; the defaults of a task that the catalog lacks."""
        return self._tasks.get(name, NO_FACTS)

    def threat_of(self, name: str) -> Threat | None:
        """Threat model of an attack by name; None for an unknown attack, as in old results."""
        attack = self._components.get(("attack", name))
        return None if attack is None else attack.threat

    def random_changes(self, name: str) -> bool:
        """Whether an evaluation changes examples at random: no attack, and not the data as they are."""
        threat = self.threat_of(name)
        if threat is not None:
            return threat.knowledge is Knowledge.NOISE
        evaluation = self._components.get(("evaluation", name))
        return bool(evaluation and (evaluation.facts or {}).get("random_changes"))

    def changes_examples(self, name: str) -> bool:
        """Whether an evaluation measures changed examples: by an attack or at random."""
        return self.threat_of(name) is not None or self.random_changes(name)

    def task_of(self, data: Mapping[str, Any]) -> TaskFacts | None:
        """The facts of a data set's first task; None for a set that the catalog lacks."""
        known = self._components.get(("data", str(data.get("name"))))
        return self.task(known.tasks[0]) if known and known.tasks else None

    def radius_unit(self, data: Mapping[str, Any], protocol: str) -> RadiusUnit:
        """The unit of radii on a data set; rows of earlier versions state `pixel` for series too."""
        task = self.task_of(data)
        return protocol_unit(data, protocol if task is None else task.row_protocol("pixel"))

    def norm_of(self, name: str, params: Mapping[str, Any]) -> str:
        """The norm of an attack's ball: its parameter, else its threat's; Linf where none is known."""
        threat = self.threat_of(name)
        return str(params.get("norm") or (threat.norm if threat is not None else "Linf"))

    def look_up(self, kinds: Sequence[str], name: str, problems: Problems, loc: Loc) -> Component | None:
        """The component of a name in the first kind that has it; without a component, None and an error."""
        for kind in kinds:
            if (kind, name) in self._components:
                return self._components[kind, name]
        known, noun = self.names(*kinds), " or ".join(kinds)
        message = f"there is no {noun} {readable(name)!r}"
        if others := [kind for kind in KINDS if (kind, name) in self._components]:
            message += f"; {name!r} is {_with_article(others[0])}"
        if "suite" in others:
            message += f', written {{"suite": "{name}"}}'
        if self._left_out and not others:
            reasons = "; ".join(f"{package}: {reason}" for package, reason in self._left_out.items())
            message += f"; installed packages whose components are left out: {readable(reasons)}"
        message += other_form(kinds, name)
        problems.add(loc, message, given=name, allowed=known, nearest=nearest(name, known, self._also(kinds)))
        return None

    def _also(self, kinds: Sequence[str]) -> Mapping[str, Sequence[str]]:
        return {name: entry.also for (kind, name), entry in self._components.items() if kind in kinds}

    def check_reference(
        self, kinds: Sequence[str], reference: Mapping[str, Any], problems: Problems, loc: Loc
    ) -> Checked | None:
        """Check {"name", "params"} less parts reported as missing before; None for an unknown component."""
        if "name" not in reference:
            return None
        component = self.look_up(kinds, reference["name"], problems, (*loc, "name"))
        if component is None:
            return None
        given = reference.get("params")
        if not isinstance(given, dict):
            return Checked(component, {}, certain=False)
        schema, place = component.parameters, (*loc, "params")
        before = len(problems.details)
        params = check(schema, given, problems, place, component=self._check_nested, noun="parameter")
        meant = {one.nearest for one in problems.details[before:]}
        self._check_abilities(component, params, problems, place)
        return Checked(component, params, set(given) <= set(schema["properties"]), meant)

    def _check_abilities(
        self, component: Component, params: Mapping[str, Any], problems: Problems, loc: Loc
    ) -> None:
        for parameter, kind, reference in component.references(params):
            part = component.parameters["properties"][parameter]
            facts = [branch.get("having") for branch in part.get("anyOf", [part])]
            fact = next(filter(None, facts), None)
            able = [entry.name for entry in self.list(kind) if fact is None or fact in (entry.facts or {})]
            if reference["name"] not in able:
                message = f"the {kind} {reference['name']!r} has no {fact}, which {parameter} must have"
                place = (*loc, parameter, "name")
                near = nearest(reference["name"], able)
                problems.add(place, message, given=reference["name"], allowed=able, nearest=near)

    def check_rules(
        self,
        component: Component,
        params: Mapping[str, Any],
        namespaces: Namespaces,
        problems: Problems,
        loc: Loc,
    ) -> None:
        """Report every rule that parameters at `loc` break, with the rules of nested components."""
        # Rules about missing parameters, or about more than the known values under `model`, `part` and
        # `data`, are skipped: the plan shard checks them once the data is loaded.
        own, parts = numbers(component.parameters, params), self.known_of_parts(component, params)
        known = {**namespaces, "params": own, "part": {**namespaces.get("part", {}), **parts}}
        for rule in component.rules:
            try:
                holds, reason = bool(evaluate(rule.expression, known)), ""
            except UnknownName:
                continue
            except ValueError as error:
                holds, reason = False, f"; it cannot be computed: {error.__cause__ or error}"
            if not holds:
                used = {
                    f"{space}.{name}": known[space][name]
                    for space, name in sorted(check_syntax(rule.expression))
                    if name in known.get(space, {})
                }
                if (meant := _in_pixel_steps(component, rule.expression, known)) is not None:
                    place, near = meant
                    problems.add((*loc, place), rule.message + reason, given=params[place], nearest=near)
                else:
                    values = ", ".join(_in_words(name, value, component.kind) for name, value in used.items())
                    message = f"{rule.message} ({values}){reason}"
                    problems.add(loc, message, given=used, allowed=rule.expression)
        for parameter, kind, reference in component.references(params):
            nested = self.find(kind, reference["name"])
            inner = dict(namespaces)
            if kind == "model":  # its rules are about itself, not about the model that it is a part of
                inner["model"] = nested.known(reference["params"])
            self.check_rules(nested, reference["params"], inner, problems, (*loc, parameter, "params"))

    def known_of_parts(self, component: Component, params: Mapping[str, Any]) -> dict[str, object]:
        """Facts of the components named by parameters, as `<parameter>_<name>`."""
        return {
            f"{parameter}_{name}": value
            for parameter, kind, reference in component.references(params)
            for name, value in self.find(kind, reference["name"]).known(reference["params"]).items()
        }

    def _check_nested(self, schema: Mapping[str, Any], value: object, loc: Loc, problems: Problems) -> object:
        kind = schema["component"]
        if schema["type"] == "string":
            named = self.look_up((kind,), str(value), problems, loc)
            return INVALID if named is None else named.name
        before = len(problems)
        written_out = {"name": value} if isinstance(value, str) else value
        reference = check({**REFERENCE, "type": "object"}, written_out, problems, loc)
        if reference is INVALID:
            return INVALID
        nested = self.check_reference((kind,), reference, problems, loc)
        if nested is None or len(problems) > before:
            return INVALID
        return {"name": nested.component.name, "params": nested.params}

    def _known_kind(self, kind: str) -> None:
        if kind not in KINDS:
            problems = Problems()
            problems.add(("kind",), "unknown kind", given=kind, allowed=KINDS, nearest=nearest(kind, KINDS))
            raise NotFound(f"there is no kind of component {readable(kind)!r}", problems.details)

    def _get(self, kinds: Sequence[str], name: str) -> Component:
        problems = Problems()
        component = self.look_up(kinds, name, problems, ("name",))
        if component is None:
            raise NotFound(problems.details[0].message, problems.details)
        return component


def _in_words(place: str, value: object, kind: str) -> str:
    """A value of a rule as a user writes it: "heads is 5", "the data's classes is 2"."""
    space, _, name = place.partition(".")
    owner = f"the {space}'s " if space in ("model", "data") and space != kind else ""
    return f"{owner}{name} is {value if isinstance(value, str) else json.dumps(value, default=str)}"


def _in_pixel_steps(
    component: Component, expression: str, known: Namespaces
) -> tuple[str, str | None] | None:
    """A parameter above 1, with which a rule would hold, and the fraction that it means: "8/255" for 8."""
    own, properties = known["params"], component.parameters["properties"]
    for space, name in sorted(check_syntax(expression)):
        value = own.get(name) if space == "params" else None
        branches = properties.get(name, {}).get("anyOf", [properties.get(name, {})])
        if not isinstance(value, int | float) or value <= 1:
            continue
        if not any(branch.get("fraction") for branch in branches):
            continue
        steps = pixel_steps(value)
        with contextlib.suppress(ValueError):
            if evaluate(expression, {**known, "params": {**own, name: parse_fraction(steps or "1/1")}}):
                return name, steps
    return None


def other_form(kinds: Sequence[str], name: str) -> str:
    """How a path, a file or code is given, which replaces a name."""
    forms = (form for kind in kinds for form in OTHER_FORMS.get(kind, []))
    said = next((f"; {said}" for pattern, said in forms if re.fullmatch(pattern, name)), "")
    return said.replace("FOLDER", readable(Path(name).name) or "NAME")


def _with_article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else kind if kind in ("data", "words") else f"a {kind}"


def load() -> Catalog:
    """This installation's catalog, with the components of ASSAY_CATALOG; BadPackageComponents of its file."""
    return load_with(os.environ.get(extra_components.VARIABLE, ""))


@functools.cache
def load_with(file: str) -> Catalog:
    """Assay's catalog, with a file's components unless empty; BadPackageComponents if it is unusable."""
    own = Catalog.from_json(CATALOG_FILE.read_text(encoding="utf-8"))
    if not file:
        return own
    try:
        return own.with_packages(extra_components.read(Path(file)))
    except extra_components.BadPackageComponents:
        raise
    except ValueError as error:
        raise extra_components.BadPackageComponents(
            f"{file}: {error}; {extra_components.how_to_write(file)}"
        ) from None
