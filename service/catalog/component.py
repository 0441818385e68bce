"""One entry of the catalog: what a component is called, what it takes, and where its code is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from assay.service.catalog.parameters import numbers
from assay.service.contract.specs import Protocol
from assay.service.contract.threat import Threat

# What `evaluations[].name` may name; no name is in both kinds.
EVALUATIONS = ("evaluation", "attack")


class Rule(BaseModel):
    """A condition across parameters, and what to tell the user when it does not hold."""

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
    """One entry of the catalog.

    Attributes:
        target: Where the code is, as "module:object".
        parameters: JSON Schema of the parameters, called `schema` in JSON.
        tasks: What it is for; empty when that does not matter.
        paper: Citation of the source.
        passes: Model passes per example, for attacks and evaluations.
        protocols: Under which an attack can run; in a job with another it runs under the first.
        threat: What an attack knows of the model and how it searches; null for everything else.
        facts: What is known about a data set without loading it, or about a model beside its parameters;
            the group and the cost of a corruption.
        evaluations: What a suite stands for; null for everything else.
        package: The package that brings it; null for Assay's own.
        offers: What a model, or a component that is a part of it, lets an evaluation look at.
        needs: What an evaluation looks at; the model and all its parts must offer it.
        leaves_out: Of a suite: parts that do not fit the model or the data are left out, with the reason.
        repeats: Of an evaluation that measures the machine: how often, as an expression over the
            parameters. It has so many outcomes, not one for each example.
        fixed: Of a preset: the arguments with which the target is called beside the parameters.
        table: Outcome table of an evaluation or attack, or of each task: the name of one of Assay's, or
            "module:object" of one that its package brings.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: str
    target: str
    summary: str
    parameters: dict[str, Any] = Field(alias="schema")
    rules: list[Rule]
    tasks: list[str]
    paper: str | None
    passes: Passes | None
    protocols: list[Protocol] = []
    threat: Threat | None = None
    facts: dict[str, Any] | None
    evaluations: list[dict[str, Any]] | None = None
    package: Package | None = None
    offers: list[str] = []
    needs: list[str] = []
    repeats: str | None = None
    leaves_out: bool = False
    fixed: dict[str, Any] = {}
    table: str | dict[str, str] | None = None

    def table_for(self, tasks: Sequence[str]) -> str | None:
        """The outcome table of an evaluation or attack on data for these tasks; None where none is stated."""
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
        """The components that lists of names in the parameters mean: (kind, name)."""
        for name, part in self.parameters["properties"].items():
            for branch in part.get("anyOf", [part]):
                kind = branch.get("items", {}).get("component")
                if kind is not None and isinstance(params.get(name), list):
                    yield from ((kind, item) for item in params[name])

    def known(self, params: Mapping[str, Any]) -> dict[str, object]:
        """What rules see of this component: its parameters as plain values, its tasks and its facts."""
        return {**numbers(self.parameters, params), "tasks": self.tasks, **(self.facts or {})}

    def jobs(self, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """The parameters that name a training job whose model is used: (parameter, job id)."""
        for name, part in self.parameters["properties"].items():
            if part.get("job") and isinstance(params.get(name), str):
                yield name, params[name]
