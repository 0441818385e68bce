"""The form of a job's spec: its sections, and the spec that the form's texts mean.

`form_of` and `read_spec` are inverse to each other for specs without defaults (`reduced`); a spec that no
form holds, such as a spec of fifty evaluations, is edited as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import EVALUATIONS, Component
from assay.service.catalog.schema_text import Schema
from assay.service.contract.specs import EvaluateSpec, ExecutionSpec, TrainSpec
from assay.service.contract.weights.pulled import PULLED, spelling_of
from assay.service.dashboard.field_texts import same
from assay.service.dashboard.form_fields import (
    FormField,
    Texts,
    fields_of,
    kind_of,
    read_fields,
    texts_of,
    with_values,
    without_defaults,
)
from assay.service.submission.shape import execution_options

SpecBody = dict[str, Any]
KINDS: Mapping[str, type[TrainSpec] | type[EvaluateSpec]] = {"evaluate": EvaluateSpec, "train": TrainSpec}
# A form has no more evaluations and fields than these; `forms.MAX_FIELDS` is a little more.
MAX_ROWS = 40
MAX_TEXTS = 520
ROW = re.compile(r"evaluations\.(\d{1,3})\.(name|suite)", re.ASCII)
GENERAL = ("name", "tags")
RUN = ("limit", "protocol", "save_adversarial", "save_traces", "seed", "priority", "timeout_seconds")
_TEXTS = json.loads(Path(__file__).with_name("spec_form.json").read_text(encoding="utf-8"))
HELP: dict[str, str] = _TEXTS["help"]


def _component(kind: str, text: str) -> Schema:
    return {"type": ["object", "string"], "component": kind, "description": text}


# Where the weights come from; the parts of `specs.WeightsOfModel` that a person fills in.
WEIGHTS: Schema = _TEXTS["weights"]
# Fields that submission fills in from the upload.
WEIGHTS_FILLED_IN = ("sha256", "normalization", "positions")
OWN_DATA: Schema = _TEXTS["own_data"]


@dataclass(frozen=True)
class EvaluationRow:
    """An evaluation or a suite in the form."""

    index: int
    name: str
    field: str
    component: Component | None
    params: tuple[FormField, ...]
    data: tuple[FormField, ...]


@dataclass(frozen=True)
class JobForm:
    """The form of a job: its sections in their order."""

    kind: str
    general: tuple[FormField, ...]
    model: FormField
    weights: tuple[FormField, ...]
    data: FormField
    recipe: FormField | None
    evaluations: tuple[EvaluationRow, ...]
    run: tuple[FormField, ...]
    execution: tuple[FormField, ...]

    def fields(self) -> Iterator[FormField]:
        """The fields at the top of each section."""
        yield from (*self.general, self.model, *self.weights, self.data)
        if self.recipe is not None:
            yield self.recipe
        for row in self.evaluations:
            yield from (*row.params, *row.data)
        yield from (*self.run, *self.execution)

    def texts(self) -> dict[str, str]:
        """What a browser sends of this form."""
        rows = {row.field: row.name for row in self.evaluations}
        return {"kind": self.kind, **rows, **texts_of(self.fields())}


def form_of(catalog: Catalog, spec: Mapping[str, Any], trained: Mapping[str, Any] | None = None) -> JobForm:
    """The form that holds a spec without defaults, as `reduced` and `read_spec` return it.

    `trained` is the model of the training job that the job takes weights from; its parameters are then the
    defaults.
    """
    kind = spec["kind"]
    model = spec.get("model") or {}
    top = {field.name: field for field in fields_of(catalog, _schema(kind), spec, "")}
    if trained is not None and model.get("name") == trained["name"]:
        top["model"] = _with_trained(catalog, top["model"], model, trained)
    rows = tuple(_row(catalog, index, item) for index, item in enumerate(spec.get("evaluations") or []))
    return JobForm(
        kind=kind,
        general=tuple(top[name] for name in GENERAL),
        model=top["model"],
        weights=fields_of(catalog, _weights_of(kind), model.get("weights") or {}, "model.weights."),
        data=top["data"],
        recipe=top.get("recipe"),
        evaluations=rows,
        run=tuple(top[name] for name in RUN if name in top),
        execution=fields_of(catalog, _execution(kind), spec.get("execution") or {}, "execution."),
    )


def read_spec(catalog: Catalog, texts: Texts, trained: Mapping[str, Any] | None = None) -> SpecBody:
    """The spec that the texts of a form mean, without what equals a default."""
    kind = texts.get("kind", "")
    kind = kind if kind in KINDS else next(iter(KINDS))
    spec: SpecBody = {"kind": kind, **read_fields(catalog, _schema(kind), texts, "")}
    if trained is not None and texts.get("model") == trained["name"]:
        parameters = with_values(catalog.find("model", trained["name"]).parameters, trained["params"])
        params = read_fields(catalog, parameters, texts, "model.params.", 1)
        spec["model"] = {"name": trained["name"], **({"params": params} if params else {})}
    if weights := read_fields(catalog, _weights_of(kind), texts, "model.weights."):
        spec["model"] = {**(spec.get("model") or {}), "weights": weights}
    if execution := read_fields(catalog, _execution(kind), texts, "execution."):
        spec["execution"] = execution
    if kind == "evaluate":
        spec["evaluations"] = [_read_row(catalog, texts, index, field) for index, field in _rows(texts)]
    return spec


def defaults_of_training(catalog: Catalog, model: Mapping[str, Any]) -> dict[str, Any]:
    """The model of a training job as `trained`: its parameters are the defaults of a job with its weights."""
    schema = catalog.find("model", model["name"]).parameters
    params = dict(model["params"])
    kept = without_defaults(catalog, schema, params)
    for name, part in schema["properties"].items():
        if kind_of(part) is not None and name in params:
            params[name] = kept.get(name, part.get("default"))
    return {"name": model["name"], "params": params}


def reduced(catalog: Catalog, spec: Mapping[str, Any], trained: Mapping[str, Any] | None = None) -> SpecBody:
    """A spec without defaults and what submission fills in; ValueError where it has no shape of a spec."""
    kind, model = spec.get("kind"), spec.get("model")
    items = spec.get("evaluations", [])
    if kind not in KINDS or not isinstance(items, list) or not all(isinstance(one, Mapping) for one in items):
        raise ValueError("not the shape of a job")
    apart = ("kind", "execution", "evaluations", "left_out")
    top = {name: value for name, value in spec.items() if name not in apart}
    body: SpecBody = {"kind": kind, **without_defaults(catalog, _schema(kind), top)}
    if isinstance(model, Mapping) and isinstance(body.get("model"), dict):
        weights = model.get("weights")
        if isinstance(weights, Mapping):
            filled_in = WEIGHTS_FILLED_IN if isinstance(weights.get("sha256"), str) else ()
            stated = weights if spelling_of(weights) in (None, PULLED) else {PULLED: True}
            weights = {k: v for k, v in stated.items() if v is not None and k not in filled_in}
        body["model"] = {name: value for name, value in body["model"].items() if name != "weights"}
        body["model"] |= {"weights": weights} if weights else {}
        params = model.get("params")
        if trained is not None and model.get("name") == trained["name"] and isinstance(params, Mapping):
            schema = with_values(catalog.find("model", trained["name"]).parameters, trained["params"])
            kept = without_defaults(catalog, schema, params)
            body["model"] = {key: value for key, value in body["model"].items() if key != "params"}
            body["model"] |= {"params": kept} if kept else {}
    execution = spec.get("execution") or {}
    if not isinstance(execution, Mapping):
        raise ValueError("not the shape of a job")
    if kept := without_defaults(catalog, _execution(), execution):
        body["execution"] = kept
    if kind == "evaluate":
        body["evaluations"] = [_reduced_item(catalog, item) for item in items]
    return body


def has_form(catalog: Catalog, spec: Mapping[str, Any], trained: Mapping[str, Any] | None = None) -> bool:
    """Whether a form holds this reduced spec: it is neither too large, nor is anything in it lost."""
    rows = spec.get("evaluations", [])
    if len(rows) > MAX_ROWS:
        return False
    try:
        texts = form_of(catalog, spec, trained).texts()
    except (TypeError, ValueError, AttributeError, KeyError):  # values of another shape than their schema's
        return False
    if len(texts) > MAX_TEXTS or not all(isinstance(text, str) for text in texts.values()):
        return False
    if any("\n" in text or "\r" in text for text in texts.values()):
        return False
    return same(read_spec(catalog, texts, trained), spec)


def _rows(texts: Texts) -> list[tuple[int, str]]:
    return sorted((int(match[1]), match[2]) for name in texts if (match := ROW.fullmatch(name)))


def _row(catalog: Catalog, index: int, item: Mapping[str, Any]) -> EvaluationRow:
    prefix = f"evaluations.{index}."
    if "suite" in item:
        suite = item["suite"]
        known = catalog.find("suite", suite) if suite in catalog.names("suite") else None
        return EvaluationRow(index, suite, f"{prefix}suite", known, (), ())
    component = _evaluation(catalog, item["name"])
    params: tuple[FormField, ...] = ()
    if component is not None:
        params = fields_of(catalog, component.parameters, item.get("params") or {}, f"{prefix}params.")
    own = fields_of(catalog, OWN_DATA, item, prefix)
    return EvaluationRow(index, item["name"], f"{prefix}name", component, params, own)


def _read_row(catalog: Catalog, texts: Texts, index: int, field: str) -> SpecBody:
    prefix = f"evaluations.{index}."
    name = texts[f"{prefix}{field}"]
    if field == "suite":
        return {"suite": name}
    component = _evaluation(catalog, name)
    item: SpecBody = {"name": name}
    if component is not None:
        params = read_fields(catalog, component.parameters, texts, f"{prefix}params.")
        item |= {"params": params} if params else {}
    return item | read_fields(catalog, OWN_DATA, texts, prefix)


def _reduced_item(catalog: Catalog, item: Mapping[str, Any]) -> SpecBody:
    component = _evaluation(catalog, item.get("name"))
    kept = without_defaults(catalog, OWN_DATA, item)
    params = item.get("params")
    if component is not None and isinstance(params, Mapping):
        kept["params"] = without_defaults(catalog, component.parameters, params)
    return {name: value for name, value in kept.items() if name != "params" or value}


def _evaluation(catalog: Catalog, name: object) -> Component | None:
    known = isinstance(name, str) and name in catalog.names(*EVALUATIONS)
    return catalog.find_evaluation(str(name)) if known else None


def _with_trained(
    catalog: Catalog, field: FormField, model: Mapping[str, Any], trained: Mapping[str, Any]
) -> FormField:
    schema = with_values(catalog.find("model", trained["name"]).parameters, trained["params"])
    nested = fields_of(catalog, schema, model.get("params") or {}, "model.params.", 1)
    return FormField(**{**vars(field), "nested": nested})


@cache
def _schema(kind: str) -> Schema:
    """The fields of a job at its top, with its components."""
    known = KINDS[kind].model_json_schema()["properties"]
    names = (*GENERAL, *RUN)
    own = {name: {"description": HELP.get(name, ""), **known[name]} for name in names if name in known}
    parts = {"model": _component("model", "the architecture."), "data": _component("data", "the data set.")}
    if kind == "train":
        parts["recipe"] = _component("recipe", "how it is trained.")
    return {"properties": {**own, **parts}, "required": list(parts)}


@cache
def _execution(kind: str | None = None) -> Schema:
    """The options of a kind of job; of all kinds without one."""
    known = ExecutionSpec.model_json_schema()["properties"] if kind is None else execution_options(kind)
    return {"properties": {name: {**part, "description": HELP[name]} for name, part in known.items()}}


@cache
def _weights_of(kind: str) -> Schema:
    parts = WEIGHTS["properties"]
    return {"properties": {name: parts[name] for name in parts if name != "part" or kind == "train"}}
