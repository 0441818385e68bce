"""The shape of a job spec: fields, types and bounds, as the classes in `specs` have them.

Pydantic checks the same classes, but stops being clear where a field may have several forms; so its JSON
Schemas are checked here, with the same messages and defaults as everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from assay.service.catalog.parameters import check
from assay.service.catalog.schema_text import Schema
from assay.service.contract.problems import Loc, Problems, nearest
from assay.service.contract.specs import EvaluateSpec, EvaluationSpec, ExecutionSpec, TrainSpec

SPECS: dict[str, type[TrainSpec] | type[EvaluateSpec]] = {"train": TrainSpec, "evaluate": EvaluateSpec}
STUDY = "study"
# What a user writes for a field, anywhere in a spec, and for one at another place than its top.
_SPELLINGS = json.loads(Path(__file__).with_name("spellings.json").read_text(encoding="utf-8"))
WORDS: dict[str, str] = _SPELLINGS["fields"]
PLACES: dict[str, str] = _SPELLINGS["places"]
MAX_DEPTH = 32
# Arithmetic for trainings alone, and why.
FOR_TRAINING = {"float16": "gradients of attacks vanish in it", "recipe": "only trainings have a recipe"}
OPTIONS_OF: Mapping[str, tuple[str, ...]] = {  # Options of `execution` that one kind of job has alone.
    "train": ("devices",),
    "evaluate": ("screening", "repeat", "capture", "channels_last", "compile"),
}
# What a user writes for a value of an option.
SAID: dict[str, dict[str, str]] = _SPELLINGS["values"]


def check_shape(body: object, problems: Problems) -> dict[str, Any]:
    """The body with defaults, less the wrong fields; InvalidSpec if no object, or nested too deeply."""
    if _deeper_than(body, MAX_DEPTH):
        problems.add((), f"must not be nested deeper than {MAX_DEPTH} levels")
    elif not isinstance(body, dict):
        problems.add((), "must be a JSON object", given=body, allowed="an object")
    problems.raise_if_any()
    assert isinstance(body, dict)
    kind = body.get("kind")
    if isinstance(kind, str) and kind in SPECS:
        schema = _schema(kind)
    else:
        message = "must be one of train, evaluate" if "kind" in body else "is required"
        if kind == STUDY:
            message = "a study is no job: POST /api/v1/studies and `assay studies run FILE` take it"
        problems.add(("kind",), message, given=kind, allowed=list(SPECS), nearest=nearest(kind, SPECS))
        schema = _any_kind()
    foreign = _of_other_kinds(kind, schema, body)
    for name, other in foreign.items():
        message = f"a job of kind {kind} has no {name}: it is a field of the kind {other}"
        problems.add((name,), message, given=body[name], allowed=list(schema["properties"]))
    own = {name: value for name, value in body.items() if name not in foreign}
    shape: dict[str, Any] = check(schema, own, problems)
    return shape


def _of_other_kinds(kind: object, schema: Schema, body: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a body that another kind of job has, and not its own; each with that kind."""
    others = [other for other in SPECS if other != kind]
    return {
        name: other
        for other in others
        for name in body
        if name not in schema["properties"] and name in _schema(other)["properties"]
    }


def check_evaluation_shape(item: object, problems: Problems, loc: Loc) -> dict[str, Any]:
    """One item of a suite with the defaults of its shape."""
    evaluation: dict[str, Any] = check(_evaluation_schema(), item, problems, loc)
    return evaluation


@cache
def _evaluation_schema() -> Schema:
    return EvaluationSpec.model_json_schema()


@cache
def _schema(kind: str) -> Schema:
    schema = SPECS[kind].model_json_schema()
    for part in (schema, *schema["$defs"].values()):
        known = part.get("properties", {})
        for name in known.keys() & WORDS:
            words = " ".join(word for word in WORDS[name].split() if word not in known)
            known[name] = {**known[name], "also": words}
    execution = schema["$defs"]["ExecutionSpec"]
    execution["properties"] = {
        name: {**part, **({"said": SAID[name]} if name in SAID else {})}
        for name, part in execution["properties"].items()
    }
    if kind != "train":
        dtype = execution["properties"]["dtype"]
        # 16 bits of other arithmetic than asked for are nearer than 32.
        said = {**SAID["dtype"], "bfloat16": f"{SAID['dtype']['bfloat16']} {SAID['dtype']['float16']}"}
        offered = execution_options(kind)["dtype"]["enum"]
        execution["properties"]["dtype"] = {**dtype, "offered": offered, "said": said}
    fields = schema["properties"]
    known = {*fields, "?dry_run=true"}
    schema["elsewhere"] = {place: words for place, words in PLACES.items() if place.split(".")[0] in known}
    if "limit" in fields:
        data = schema["$defs"]["DataSpec"]
        data["elsewhere"] = {"limit (beside data)": f"limit {WORDS['limit']}"}
    return schema


def execution_options(kind: str) -> dict[str, Schema]:
    """The schemas of the options of `execution` that a job of this kind may have, with their values."""
    others = {name for other, names in OPTIONS_OF.items() if other != kind for name in names}
    known = ExecutionSpec.model_json_schema()["properties"]
    found: dict[str, Schema] = {name: part for name, part in known.items() if name not in others}
    if kind != "train":
        allowed = [name for name in known["dtype"]["enum"] if name not in FOR_TRAINING]
        found["dtype"] = {**known["dtype"], "enum": allowed}
    return found


@cache
def _any_kind() -> Schema:
    """Schema for a body of unknown kind: the fields of all kinds, none of them required."""
    merged: dict[str, Any] = {"type": "object", "additionalProperties": False, "$defs": {}, "properties": {}}
    for kind in SPECS:
        merged["$defs"] |= _schema(kind)["$defs"]
        merged["properties"] |= _schema(kind)["properties"]
    merged["properties"]["kind"] = {}
    return merged | {"required": ["model", "data"], "elsewhere": PLACES}


def _deeper_than(value: object, max_depth: int) -> bool:
    """Without recursion, so that no depth overflows the check itself."""
    level = [value]
    for _ in range(max_depth + 1):
        level = [
            item
            for container in level
            if isinstance(container, dict | list)
            for item in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return True


def check_execution(given: object, protocol: str | None, problems: Problems) -> None:
    """Report execution options that a job cannot run with."""
    execution: dict[str, Any] = given if isinstance(given, dict) else {}
    screening = execution.get("screening")
    if screening is not None and protocol != "pixel":
        what = "only evaluations are" if protocol is None else "only attacks under the protocol 'pixel' are"
        message = f"{what} screened: successes are confirmed in float32"
        problems.add(("execution", "screening"), message, given=screening, allowed=[None])
    elif screening is not None and execution.get("dtype", "float32") != "float32":
        message = "only float32 is screened: successes are confirmed in it"
        problems.add(("execution", "screening"), message, given=screening, allowed=[None])
    if execution.get("dtype") == "tf32" and execution.get("device") == "cpu":
        message = "TF32 is arithmetic of GPUs: on a CPU ask for float32"
        allowed = ["float32", "float64", "bfloat16"]
        problems.add(("execution", "dtype"), message, given="tf32", allowed=allowed)
    _check_devices(execution, protocol, problems)
    if protocol is None and execution.get("repeat"):
        message = "only evaluations are repeated: a training is one shard, which goes on from its checkpoints"
        problems.add(("execution", "repeat"), message, given=execution["repeat"], allowed=[None])
    if protocol is None and execution.get("capture"):
        message = "only attacks replay captured passes: the weights of a training change at every step"
        problems.add(("execution", "capture"), message, given=True, allowed=[False])
    if protocol is None and execution.get("channels_last"):
        message = "only evaluations run with the channels last: weights are trained and stored as ever"
        problems.add(("execution", "channels_last"), message, given=True, allowed=[False])
    if execution.get("compile") not in (None, "off"):
        _check_compile(execution, protocol, problems)
    # Only evaluations have a protocol.
    if protocol is not None and (why := FOR_TRAINING.get(str(execution.get("dtype")))):
        message = f"{execution['dtype']} is for training: {why}"
        allowed = execution_options("evaluate")["dtype"]["enum"]
        problems.add(("execution", "dtype"), message, given=execution["dtype"], allowed=allowed)


def _check_compile(execution: Mapping[str, Any], protocol: str | None, problems: Problems) -> None:
    if protocol is None:
        message = "only attacks run compiled passes: the weights of a training change at every step"
    elif protocol != "pixel":
        message = "only attacks under the protocol 'pixel' are compiled: own passes confirm their successes"
    elif execution.get("dtype") == "tf32":
        message = "TF32 is switched on around each pass of the model, which no compiler takes"
    else:
        return
    problems.add(("execution", "compile"), message, given=execution["compile"], allowed=["off"])


def _check_devices(execution: Mapping[str, Any], protocol: str | None, problems: Problems) -> None:
    devices, batch = execution.get("devices", 1), execution.get("batch_size")
    if not isinstance(devices, int) or devices <= 1:  # non-numbers are reported elsewhere
        return
    if protocol is not None:
        message = (
            "only a training uses several devices of the same worker: an evaluation is cut into shards,"
            " which run on all workers"
        )
        problems.add(("execution", "devices"), message, given=devices, allowed=[1])
    elif isinstance(batch, int) and batch < 2 * devices - 1:
        message = (
            f"{devices} devices share every batch, in pairs: it needs at least {2 * devices - 1} examples"
        )
        problems.add(("execution", "batch_size"), message, given=batch)
