"""Catalog entry of a component: its name, parameters and code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from assay.service.catalog.parameters import numbers
from assay.service.catalog.rules import UnknownName, evaluate
from assay.service.contract.specs import Protocol
from assay.service.contract.threat import Threat
from assay.service.contract.weights.pulled import PulledSource

EVALUATIONS = ("evaluation", "attack")  # Kinds that `evaluations[].name` may name; no name is in both.
BY_PARAMETER = "by_parameter"  # The fact that maps parameter to value to the facts that hold with it.


class Rule(BaseModel):
    """A condition across parameters, and its error message."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    expression: str
    message: str


class Passes(BaseModel):
    """Model passes per example, as expressions over the parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    forward: str
    backward: str


class Package(BaseModel):
    """An installed package that brings components."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Component(BaseModel):
    """One entry of the catalog."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: str
    target: str  # The code, as "module:object"
    summary: str
    parameters: dict[str, Any] = Field(alias="schema")  # Their JSON Schema, called `schema` in JSON
    rules: list[Rule]
    tasks: list[str]  # Its tasks; empty when any will do
    paper: str | None  # Citation of the source
    formula: str | None = None  # Its definition in formulas, lines of plain text; null without any
    passes: Passes | None  # Model passes per example, for attacks and evaluations
    protocols: list[Protocol] = []  # Supported by an attack; it runs under the first in jobs of others
    threat: Threat | None = None  # Threat model of an attack; null for everything else
    # Facts about a data set that need no loading, or about a model beside its parameters; the group and the
    # cost of a corruption
    facts: dict[str, Any] | None
    evaluations: list[dict[str, Any]] | None = None  # Evaluations of a suite; null for everything else
    package: Package | None = None  # The package that brings it; null for Assay's own
    offers: list[str] = []  # Capabilities of a model, or of a component that is a part of it, for evaluations
    needs: list[str] = []  # What an evaluation requires; the model and all its parts must offer it
    # Number of repeats of an evaluation that measures the machine, as an expression over the parameters. It
    # has so many outcomes, not one per example
    repeats: str | None = None
    leaves_out: bool = False  # Whether a suite leaves out parts that do not fit, with the reason
    # By name of an evaluation of a suite: parameters that replace the evaluation's where these do not fit the
    # model or the data, the preferred parameters first
    instead: dict[str, list[dict[str, Any]]] = {}
    pulled: PulledSource | None = None  # Of pulled weights that parameters name: timm, torchvision or hf
    fixed: dict[str, Any] = {}  # Arguments of a preset's target beside the parameters
    # Outcome table of an evaluation or attack, or of each task: the name of a table of Assay's, or
    # "module:object" of a table that its package brings
    table: str | dict[str, str] | None = None
    also: list[str] = []  # Other names of it, which suggest it where they are given

    def table_for(self, tasks: Sequence[str]) -> str | None:
        """The outcome table of an evaluation or attack on data for these tasks; None if not declared."""
        if self.table is None or isinstance(self.table, str):
            return self.table
        return next((self.table[task] for task in tasks if task in self.table), None)

    def references(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """The parameters that name another component: (parameter, kind, {"name", "params"})."""
        for name, part in self.parameters["properties"].items():
            for branch in part.get("anyOf", [part]):
                if "component" in branch and isinstance(params.get(name), Mapping):
                    yield name, branch["component"], params[name]

    def named(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """The components named by lists in the parameters: (kind, name)."""
        for name, part in self.parameters["properties"].items():
            for branch in part.get("anyOf", [part]):
                kind = branch.get("items", {}).get("component")
                if kind is not None and isinstance(params.get(name), list):
                    yield from ((kind, item) for item in params[name])

    def known(self, params: Mapping[str, Any]) -> dict[str, object]:
        """This component as rules see it: its parameters as plain values, its tasks and its facts."""
        return {**numbers(self.parameters, params), "tasks": self.tasks, **self.facts_for(params)}

    def facts_for(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The facts that hold with these parameters; `by_parameter` has the facts of a parameter's values."""
        facts = dict(self.facts or {})
        for name, of_values in facts.pop(BY_PARAMETER, {}).items():
            default = (
                self.parameters["properties"].get(name, {}).get("default")
            )  # of specs without the parameter
            facts |= of_values.get(str(params.get(name, default)), {})
        return facts

    def passes_with(self, params: Mapping[str, Any]) -> tuple[float, float] | None:
        """Forward and backward passes per example, None if undeclared; missing parameters have defaults."""
        if self.passes is None:
            return None
        forward, backward = (self._count(one, params) for one in (self.passes.forward, self.passes.backward))
        return None if forward is None or backward is None else (forward, backward)

    def repeats_with(self, params: Mapping[str, Any]) -> int | None:
        """How often an evaluation measures the machine; None where it measures examples."""
        count = None if self.repeats is None else self._count(self.repeats, params)
        return None if count is None else int(count)

    def _count(self, expression: str, params: Mapping[str, Any]) -> float | None:
        parts = self.parameters["properties"].items()
        defaults = {name: part["default"] for name, part in parts if "default" in part}
        try:
            value = evaluate(expression, {"params": numbers(self.parameters, {**defaults, **params})})
        except (UnknownName, ValueError):
            return None
        return value if isinstance(value, int | float) else None

    def jobs(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """The parameters that name training jobs, for their models: (parameter, job id)."""
        for name, part in self.parameters["properties"].items():
            if part.get("job") and isinstance(params.get(name), str):
                yield name, params[name]
            several = any(branch.get("items", {}).get("job") for branch in part.get("anyOf", [part]))
            if several and isinstance(params.get(name), list):
                yield from ((name, job) for job in params[name] if isinstance(job, str))
